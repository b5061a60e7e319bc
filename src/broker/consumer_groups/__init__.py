"""Hold the rules of the new group protocol (KIP-848): epochs and assignments, without I/O.

The broker computes the assignment. The answers to heartbeats tell a member its assignment. If a
member must give up partitions, it must do so before it gets new partitions. The caller passes the
time and the topics with each call.
"""
