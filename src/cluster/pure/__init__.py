"""Hold the rules of replication. The rules do no I/O: they take events, and return effects.

A class with such rules is called a room. A room has no clock, socket, thread, file or random
number. The caller passes the time with each event. The caller carries out the effects in their
order, and reports the results as further events.

The rules have numbers. For example, `(P7)` in a comment means rule P7 in `docs/CLUSTER.md`.
"""
