"""Hold the store: several log dirs, their partitions, their start, their housekeeping."""
