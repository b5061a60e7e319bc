"""Hold the files of a partition: segments, their indexes and trailers."""
