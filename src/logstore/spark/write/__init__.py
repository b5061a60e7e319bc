"""Write logs with Spark: stage in tasks, commit on the driver."""
