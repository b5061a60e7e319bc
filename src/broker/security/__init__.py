"""Find the principal of a client: passwords, SCRAM, certificates. No I/O (ADR 41)."""
