"""Serve the partitions of a cluster to Kafka's clients: leaders, appends, reads, metadata."""
