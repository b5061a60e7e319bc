"""Change the partitions of a running store: create, configure, delete, promote, repair."""
