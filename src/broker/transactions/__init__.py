"""Decide about transactions without I/O: what a request changes, and which markers follow.

`broker.transaction_coordinator` holds the locks, the timers and the logs.
"""
