"""Serve sockets: listeners, connections, threads (ADR 29). No other room of the broker does I/O."""
