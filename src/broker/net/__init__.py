"""Serve sockets: listeners, connections, threads (ADR 29). The broker does I/O only here."""
