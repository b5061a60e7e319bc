"""One replica's log: segments, indexes, recovery, reading, appending."""
