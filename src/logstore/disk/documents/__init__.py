"""Read and write the small files of a log dir; each is one document with a checksum."""
