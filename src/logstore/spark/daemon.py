"""Start Spark's Python workers as Spark does, but let them end in silence when the JVM hangs up.

A worker at rest that finds its connection closed tries to tell the JVM so. Over a Unix socket that
fails at once, unlike over TCP, and Spark's own daemon prints a traceback for it: one for every
worker that has rested for a minute, or whose session stops.
"""

from __future__ import annotations

import socket

from pyspark import daemon

_serve = daemon.worker


def _serve_quietly(sock: socket.socket, authenticated: bool) -> int:
    try:
        return _serve(sock, authenticated)
    except ConnectionError:  # nobody is there to be told; the worker ends
        return 1


if __name__ == "__main__":
    daemon.worker = _serve_quietly
    daemon.manager()
