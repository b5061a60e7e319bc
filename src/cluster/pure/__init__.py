"""Hold the rules of replication without I/O: they take events, and return effects.

A class with such rules is called a room. A room has no clock, socket, thread, file or random
number. The caller passes the time with each event, carries out the effects in their order, and
reports the results as further events.
"""
