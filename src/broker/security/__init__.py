"""Decide who a client is: passwords, SCRAM, certificates. Nothing here does I/O (ADR 41)."""
