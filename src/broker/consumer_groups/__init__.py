"""Hold the rules of the new group protocol (KIP-848), without I/O: epochs, targets, reconciliation.

The broker computes the assignment. A member learns of it by heartbeats, and first gives up what it
must give up. The caller passes the time and the topics with each call.
"""
