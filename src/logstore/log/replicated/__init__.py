"""Take part in replication: what a leader and its followers do with a log."""
