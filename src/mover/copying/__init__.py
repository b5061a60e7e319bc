"""Copy a replica to its target and keep the copy up to date."""
