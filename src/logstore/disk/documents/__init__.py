"""Read and write the small files of a log dir; each file is one document with a checksum."""
