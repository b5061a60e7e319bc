"""Run `logstore broker` with real clients: `make demo-broker`, `make bench-broker`.

raw      a bare connection, for requests that the clients' libraries cannot send
server   runs the broker as a process, and reads from /proc what a process uses
clients  runs a client of confluent-kafka in a process of its own
sockets  many bare sockets in one process
bench    measures two brokers in turn, and keeps the figures as rows
cases    the cases that are measured
demo/    the demonstration
"""
