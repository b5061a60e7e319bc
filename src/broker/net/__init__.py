"""Serve sockets: listeners, connections, threads (ADR 29).

Only this package uses the sockets of clients.
"""
