"""Show a broker's state as a web page and as JSON."""
