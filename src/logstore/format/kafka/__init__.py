"""Encode, decode and check Kafka's record batch v2."""
