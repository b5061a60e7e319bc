"""Show a broker or an open store in a terminal: `logstore top`."""
