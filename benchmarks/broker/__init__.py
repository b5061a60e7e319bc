"""Run `logstore broker` with real clients: `make demo-broker`, `make bench-broker`.

raw      a bare connection, for what the clients' libraries have no call for
server   the broker as a process, and what /proc knows about a process
clients  a process with a client of confluent-kafka
sockets  many bare sockets in one process
bench    two brokers that are measured in turn, and the rows
cases    the questions
demo/    the demonstration
"""
