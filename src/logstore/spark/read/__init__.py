"""Read logs with Spark: plan on the driver, read in tasks."""
