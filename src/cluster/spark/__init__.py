"""Read the topics of a cluster in Spark: from replicas on the same machine, or by Fetch."""
