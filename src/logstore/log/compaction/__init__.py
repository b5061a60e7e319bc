"""Compact by key: choose the records to keep, copy them to new segments, remove the old segments.

Only `segment_windows`, `compaction` and `replacement` call the disk.
"""
