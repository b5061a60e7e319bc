"""Create all partitions of a topic in one go."""
