"""The files of a partition: segments, their indexes and their trailers."""
