"""Compaction by key: which records a log may drop, and what the rest looks like. No I/O."""
