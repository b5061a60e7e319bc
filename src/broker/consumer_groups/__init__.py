"""Hold the rules of the new group protocol (KIP-848), without I/O: epochs, targets, reconciliation.

The broker computes the assignment. A member learns of its assignment by heartbeats. Before it gets
new partitions, it gives up the partitions that it must give up. The caller passes the time and the
topics with each call.
"""
