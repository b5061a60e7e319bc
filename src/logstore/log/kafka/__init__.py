"""Read a partition directory that a Kafka broker wrote."""
