"""Hold state machines that do no I/O: their callers pass the time and act on the results.

Nothing in this package has a thread, a clock or a socket. If several threads use an object, its
docstring says which lock the caller must hold.
"""
