"""Connect to other brokers with encryption and logins, and recognize brokers (ADR 41)."""
