"""Asks the brokers of a cluster what an operator wants to know, by Kafka's own requests."""
