"""Serve a store to Kafka's clients. Only `broker.wire`, the protocol as bytes, exists so far."""
