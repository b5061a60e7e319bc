"""Move replicas between the log dirs of a store while they are being written."""
