"""Serve a store to Kafka's clients. Its first room is `broker.wire`, the protocol as bytes."""
