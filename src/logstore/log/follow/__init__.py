"""Follow a log that another process writes: read the log's directory repeatedly."""
