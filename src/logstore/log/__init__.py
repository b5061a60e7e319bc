"""The log of one replica: its segments and indexes, and how it is recovered, read and written."""
