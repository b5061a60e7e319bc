"""Serves a cluster's partitions to Kafka's clients: leaders, appends, reads, metadata."""
