"""Remove records from the end or the beginning of a log."""
