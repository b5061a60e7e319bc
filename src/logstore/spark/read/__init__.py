"""Read logs with Spark: the driver plans a read, and tasks read the records."""
