"""Decide for consumer groups, without I/O: members, generations, offsets; their records in the log.

A group is given the time with each call, and returns the answers to requests that waited.
"""
