"""Implement the commands `logstore move` and `logstore reassign` of the program `logstore.cli`."""
