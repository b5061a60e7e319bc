"""Take over the log dirs of a stopped Kafka broker, and hand them back (ADR 47)."""
