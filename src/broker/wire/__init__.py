"""Convert Kafka's wire protocol between bytes and messages. Nothing in this package does I/O.

A schema is read and compiled when it is first used, so that importing this package is cheap.
"""
