"""Hold the rules of consumer groups, without I/O: members, generations, offsets, and records.

The caller passes the time with each call. A group also returns the answers to earlier requests,
which have waited.
"""
