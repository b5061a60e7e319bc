"""Hold the rules of groups that change their protocol while they have members, without I/O.

A group of the new protocol may have members of the classic protocol, so that its programs can be
changed one after another.
"""
