"""Speak Kafka's wire protocol: bytes in, messages out, and back. Nothing in this package does I/O.

Schemas are read and compiled when they are first used, so that this import costs nothing.
"""
