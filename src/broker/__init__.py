"""Serve a store to Kafka's clients. So far, only `broker.wire` exists: the protocol as bytes."""
