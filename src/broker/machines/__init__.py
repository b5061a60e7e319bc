"""Decide without I/O: state machines whose callers pass the time and act on the answers.

Nothing here has a thread, a clock or a socket. Where several threads use an object, its docstring
says which lock the caller holds.
"""
