"""Hold the rules of replication without I/O: each room takes events, and returns effects.

A room knows no clock, socket, thread, file or random number. The caller passes the time with each
event, carries out the effects in their order, and reports the results as further events.
"""
