"""Connect to other brokers: encryption, logins, and which clients are brokers (ADR 41)."""
