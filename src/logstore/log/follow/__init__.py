"""Follow a log that another process writes, by reading its directory again."""
