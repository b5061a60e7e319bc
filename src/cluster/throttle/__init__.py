"""Limit the rate of replication between brokers (KIP-73); no I/O."""
