"""Coordinate consumer groups: store them in `__consumer_offsets`, and handle their deadlines.

`broker.groups` makes the decisions. This package holds the locks, the timers and the logs.
"""
