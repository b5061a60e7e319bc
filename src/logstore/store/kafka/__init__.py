"""Read, adopt and write the log dirs of a Kafka broker."""
