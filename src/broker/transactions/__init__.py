"""Decide without I/O what a request changes in a transaction, and which markers follow.

`broker.transaction_coordinator` holds the locks, the timers and the logs.
"""
