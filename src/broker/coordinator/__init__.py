"""Coordinate consumer groups: keep them in `__consumer_offsets`, and call them when time is up.

The decisions are those of `broker.groups`. This room holds the locks, the timers and the logs.
"""
