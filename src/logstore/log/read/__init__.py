"""Find the records of a log, and step through them."""
