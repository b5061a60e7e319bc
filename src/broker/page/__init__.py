"""Serve a page and JSON that show what a broker knows: facts are gathered, and turned into HTML."""
