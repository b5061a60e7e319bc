"""Implement `make demo-cluster`: three brokers, the flights, and three faults one after another.

faults   the steps in order; each returns its figures
__main__ the page, and the exit code
"""
