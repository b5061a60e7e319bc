"""Run a real Apache Kafka beside this engine: `make bench-kafka`."""
