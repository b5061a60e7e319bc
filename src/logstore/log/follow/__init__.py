"""Follow a log that another process writes, and read what its directory has."""
