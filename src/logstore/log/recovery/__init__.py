"""Open a log, check it, and repair it."""
