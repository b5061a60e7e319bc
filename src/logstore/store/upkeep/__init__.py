"""Maintain a running store: flush, checkpoint, purge, scrub, compact, and report events."""
