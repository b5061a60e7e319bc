"""Answer requests of administrators about settings, log dirs, partitions and reassignments."""
