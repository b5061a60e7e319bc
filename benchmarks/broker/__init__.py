"""Run `logstore broker` with real clients: `make demo-broker`, `make bench-broker`.

raw      a bare connection, for what the clients' libraries have no call for
server   the broker as a process, and what /proc knows about a process
demo/    the demonstration
"""
