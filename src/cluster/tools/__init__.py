"""Give operators commands for a cluster. The commands send Kafka's own requests to its brokers."""
