"""Serve frames without a broker: handlers that the tests steer, and a bare client for them."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from broker.config import BrokerConfig
from broker.machines.exchange import Answer, Client, Handler, Pending
from broker.net.server import Server

SECONDS = 20.0


def framed(data: bytes) -> bytes:
    """Put the size of a frame before it."""
    return struct.pack(">i", len(data)) + data


def echo(frame: memoryview, client: Client) -> Answer:
    """Answer with the frame itself."""
    return [framed(bytes(frame))]


class Waiting(Pending):
    """A request that is answered when the test says so, or at its deadline."""

    def __init__(self, seconds: float = SECONDS) -> None:
        super().__init__(time.monotonic() + seconds)
        self.wake: Callable[[], None] = lambda: None
        self.answer: bytes | None = None
        self.looks: list[bool] = []
        self.is_watched = threading.Event()
        self.is_closed = threading.Event()

    def watch(self, wake: Callable[[], None]) -> None:
        """Keep what wakes it."""
        self.wake = wake
        self.is_watched.set()

    def look(self, *, is_last: bool) -> Answer | None:
        """Give what the test put, or say that it was too late."""
        self.looks.append(is_last)
        if self.answer is None and not is_last:
            return None
        return [framed(self.answer or b"late")]

    def close(self) -> None:
        """Note the end."""
        self.is_closed.set()

    def put(self, answer: bytes) -> None:
        """Let it be answered."""
        self.answer = answer
        self.wake()


@contextlib.contextmanager
def serving(handler: Handler, **config: Any) -> Iterator[Server]:
    """Run a server at a free port."""
    server = Server(BrokerConfig(**config), handler)
    server.start()
    try:
        yield server
    finally:
        server.stop(1.0)


@contextlib.contextmanager
def connected(server: Server) -> Iterator[socket.socket]:
    """Connect to a server."""
    endpoint = server.listeners[0].endpoint
    with socket.create_connection((endpoint.host, endpoint.port), SECONDS) as client:
        yield client


def read_frames(client: socket.socket, count: int) -> list[bytes]:
    """Read some frames, without their sizes."""
    return [_read(client, *struct.unpack(">i", _read(client, 4))) for _ in range(count)]


def _read(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = client.recv(size - len(data))
        assert more, f"closed after {len(data)} of {size} bytes"
        data += more
    return data


def is_closed(client: socket.socket) -> bool:
    """Wait until the server closes the connection; False: it sends something instead."""
    with contextlib.suppress(ConnectionError):
        return client.recv(1) == b""
    return True


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until another thread has made a condition true."""
    deadline, pause = time.monotonic() + SECONDS, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, what
        pause.wait(0.002)
