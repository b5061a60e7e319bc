"""Start Spark's Python workers as Spark does, but end them silently when the JVM hangs up.

If an idle worker finds its connection closed, it tries to report that to the JVM. Over a Unix
socket this report fails at once, unlike over TCP, and Spark's own daemon prints a traceback. This
happens to each worker that was idle for a minute, or whose session has stopped.
"""

from __future__ import annotations

import socket

from pyspark import daemon

_serve = daemon.worker


def _serve_quietly(sock: socket.socket, authenticated: bool) -> int:
    try:
        return _serve(sock, authenticated)
    except ConnectionError:  # no process can receive the report, so the worker ends
        return 1


if __name__ == "__main__":
    daemon.worker = _serve_quietly
    daemon.manager()
