"""Implement `make bench-cluster`: three brokers of this project beside three Apache Kafka brokers.

plan       the sizes of a run, the questions with their goals, and the rows of the table
clusters   a running cluster of either kind
session    what is measured while one cluster runs
watcher    a producer that sees its brokers die, in a process of its own
copying    a follower that catches up, and a bare copy through a socket
elections  the rules of the controller with many partitions, without processes
__main__   the run: the two clusters take turns
"""
