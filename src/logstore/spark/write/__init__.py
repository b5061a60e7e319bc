"""Write logs with Spark: tasks stage records in files, and the driver appends them to logs."""
