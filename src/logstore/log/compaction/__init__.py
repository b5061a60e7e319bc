"""Compaction by key: choose the records to keep, copy them to new segments, replace the old ones.

Only `segment_windows`, `compaction` and `replacement` call the disk.
"""
