"""Turn the facts of a broker into HTML, without any I/O."""
