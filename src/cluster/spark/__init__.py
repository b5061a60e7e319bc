"""Read the topics of a cluster in Spark: from replicas on the executor's machine, or by Fetch."""
