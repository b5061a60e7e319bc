"""Compaction by key: choose the records that stay, write them anew, and replace the segments.

Only `segment_windows`, `compaction` and `replacement` call the disk.
"""
