"""Coordinate transactions: store them in `__transaction_state`, and write their markers.

`broker.transactions` makes the decisions. This package holds the locks, the timers and the logs.
"""
