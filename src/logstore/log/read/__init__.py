"""Find and step through records of a log."""
