"""Read and write the small files of a log dir: each one checked document."""
