"""Compaction by key: which records a log may drop, what the rest looks like, and its files.

Only `segment_windows`, `compaction` and `replacement` call the disk.
"""
