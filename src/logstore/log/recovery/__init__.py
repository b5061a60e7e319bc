"""Open a log, check it, and mend it."""
