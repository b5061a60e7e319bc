"""Show a broker, or a store that is open, in a terminal: `logstore top`."""
