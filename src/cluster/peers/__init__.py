"""Connect to other brokers with encryption and logins, and recognise brokers (ADR 41)."""
