"""Serve HTTP with Python's `http.server`, within the limits of `admission` (ADR 44).

One thread accepts connections, and cuts connections that are too old. Each connection has its own
thread, and is for one request. An answer is complete in memory before its first byte is sent.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler
from typing import Any, BinaryIO

from broker.listener_config import Endpoint
from broker.net.listener import address_error
from broker.page.admission import CONNECTIONS_MAX, HEAD_BYTES_MAX, Pace, age_max, fault_of
from broker.page.routes import OK, Response, error

BACKLOG = 64
LOOK_SECONDS = 0.25
STOP_SECONDS = 2.0
INTERNAL_ERROR, UNAVAILABLE = 500, 503
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}

Respond = Callable[[str], Response]


class _Head:
    """Read the lines of a request's head. The number of bytes is limited."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = HEAD_BYTES_MAX

    def readline(self, size: int) -> bytes:
        line = self._file.readline(min(size, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("head")
        return line

    def close(self) -> None:
        self._file.close()


class _Request(BaseHTTPRequestHandler):
    """Answer one request. HTTP/1.0 closes the connection after each answer."""

    protocol_version = "HTTP/1.0"
    server: HttpServer  # type: ignore[assignment]
    rfile: Any
    # An error may happen before a request line was read.
    command, requestline, request_version = "", "", protocol_version

    def setup(self) -> None:
        """Limit the head."""
        super().setup()
        self.rfile = _Head(self.rfile)

    def handle(self) -> None:
        """Read the head, check it, and answer."""
        try:
            self.raw_requestline = self.rfile.readline(HEAD_BYTES_MAX + 1)
            if self.raw_requestline and self.parse_request():
                self._answer()
        except LineTooLong:
            self.send_error(431)

    def _answer(self) -> None:
        headers = self.headers
        sizes = [*headers.get_all("Content-Length", ()), *headers.get_all("Transfer-Encoding", ())]
        status, reason = fault_of(
            self.command, headers.get_all("Host", ()), sizes, self.server.names
        )
        self.put(self.server.respond(self.path) if status == OK else error(status, reason))

    def put(self, response: Response) -> None:
        """Send an answer, even if the request has no version or a wrong version."""
        self.request_version = self.protocol_version
        self.send_response_only(response.status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{response.kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(response.body)))
        if response.status == 405:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer an unreadable request. The answer does not quote the request."""
        self.put(error(code, "this request cannot be read"))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is inherited
        """Log nothing, because a client could fill the log."""


class HttpServer:
    """Accept connections at one address, and answer their requests.

    Threads: `_lock` guards the connections. A connection is closed and removed under this lock.
    Without the lock, the accepting thread could cut a socket after another file has got its
    descriptor.

    Attributes:
        names: the hosts that requests may name.
        respond: a function that returns the answer to a target.
    """

    def __init__(self, endpoint: Endpoint, names: Collection[str], respond: Respond) -> None:
        """Bind the address; raise OSError if it is in use."""
        family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        try:
            self._listener = socket.create_server(
                (endpoint.host, endpoint.port), family=family, backlog=BACKLOG
            )
        except OSError as error:
            where = str(endpoint._replace(name="http"))
            raise address_error(error, f"the page at {where}") from error
        self._listener.setblocking(False)
        self.endpoint = endpoint._replace(port=self._listener.getsockname()[1])
        self.names, self.respond = frozenset(names), respond
        self._lock = threading.Lock()
        self._open: dict[socket.socket, float] = {}
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)

    def start(self) -> None:
        """Begin to accept connections."""
        self._thread.start()

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._open)

    def close(self) -> None:
        """Stop accepting, and cut all connections. A second call does nothing."""
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS)
        self._cut_older(-1.0)
        self._listener.close()

    # --- the accepting thread ---------------------------------------------------------------------

    def _run(self) -> None:
        pace = Pace(time.monotonic())
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._is_closed.is_set():
                now = time.monotonic()
                self._cut_older(age_max(len(self._open)))
                wait = pace.seconds_left(now)
                if wait or len(self._open) >= CONNECTIONS_MAX:
                    self._is_closed.wait(min(wait or LOOK_SECONDS, LOOK_SECONDS))
                elif selector.select(LOOK_SECONDS) and self._accept():
                    pace.take()

    def _accept(self) -> bool:
        try:
            connection, address = self._listener.accept()
        except OSError:  # the client has left, or no descriptors are left
            self._is_closed.wait(LOOK_SECONDS)
            return False
        with self._lock:
            self._open[connection] = time.monotonic()
        thread = threading.Thread(
            target=self._serve, args=(connection, address), name="page-request", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the process cannot start another thread
            self._forget(connection)
        return True

    def _cut_older(self, seconds: float) -> None:
        """Shut down old connections.

        After the shutdown, the threads of these connections notice an end or an error.
        """
        limit = time.monotonic() - seconds
        for connection, since in self._open.copy().items():
            if since < limit:
                self._cut(connection)

    def _cut(self, connection: socket.socket) -> None:
        with self._lock:
            if connection in self._open:
                with suppress(OSError):  # the client has left
                    connection.shutdown(socket.SHUT_RDWR)

    # --- the thread of a connection ---------------------------------------------------------------

    def _serve(self, connection: socket.socket, address: Any) -> None:
        try:
            connection.settimeout(age_max(0))
            _Request(connection, address, self)  # type: ignore[arg-type]
            connection.shutdown(socket.SHUT_WR)
        except OSError:  # the client has left, or was cut
            pass
        finally:
            self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.pop(connection, None)
            connection.close()
