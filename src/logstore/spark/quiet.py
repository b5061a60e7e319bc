"""Let Spark's Python workers end in silence when the JVM hangs up.

A worker at rest that finds its connection closed tries to tell the JVM so. Over a Unix socket that
fails at once, unlike over TCP, and Spark prints a traceback for it: for every worker of a session
that stops. Those that run tasks are started by `logstore.spark.daemon`. Those that plan reads and
commit writes are always started by Spark's own daemon, and are told with the first they do for us.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable

Serve = Callable[[socket.socket, bool], int]


def quietly(serve: Serve) -> Serve:
    """Wrap what serves one connection in a worker, and gives its exit code."""

    def serve_quietly(sock: socket.socket, authenticated: bool) -> int:
        try:
            return serve(sock, authenticated)
        except ConnectionError:  # nobody is there to be told; the worker ends
            return 1

    return serve_quietly


def end_quietly() -> None:
    """If this process is a worker of Spark's own daemon, have it end in silence."""
    main = sys.modules["__main__"]
    if getattr(getattr(main, "__spec__", None), "name", "") == "pyspark.daemon":
        main.worker = quietly(main.worker)  # type: ignore[attr-defined]
