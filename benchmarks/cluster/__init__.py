"""Implement `make demo-cluster`: ZooKeeper, three brokers, the flights, and three faults.

zookeeper  a ZooKeeper from packages of pip; tests use it, too
processes  the processes of the brokers, and what the demo does to them
faults     the steps in order; each returns its figures
pulse      how many flights were acknowledged when
__main__   the page, and the exit code
"""
