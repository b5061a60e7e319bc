"""Start Spark's Python workers; end them silently when the JVM closes their connection.

If an idle worker finds its connection closed, the worker tries to report this to the JVM. Over a
Unix socket, this report fails immediately, and Spark's own daemon prints a traceback. Over TCP, the
report does not fail immediately. A worker's connection is closed after the worker was idle for a
minute, or after its session has stopped.
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
