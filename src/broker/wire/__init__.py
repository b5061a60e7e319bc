"""Convert Kafka's wire protocol between bytes and messages. Nothing in this package does I/O.

Schemas are read and compiled when they are first used, so that importing this package is cheap.
"""
