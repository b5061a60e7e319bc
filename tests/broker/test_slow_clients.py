"""Test clients that send or take a few bytes again and again: they keep no thread and no deadline.

Each of these clients does something every few milliseconds, so a call to its socket never waits for
50 ms in vain.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.listener_config import Endpoint
from broker.machines.exchange import Answer, Client
from broker.net.connection import Connection
from broker.net.server import Server
from broker.wire.fetch import FileRange
from support.serving import SECONDS, connected, echo, framed, read_frames, serving, wait_until

THREADS = 2
ANSWER_BYTES = 48 << 20
PAUSE = 0.005
BYTES_SENT = 400  # with the pauses, these take at least 2 s
SEGMENT_BYTES = 536  # so small that the broker notices each small read of the client


class OpenFile:
    """A file like a range of a log, which the sender closes."""

    topic = "t"

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.fileno, self.close = self._file.fileno, self._file.close

    def failed(self) -> None:
        """Ignore this."""


@contextlib.contextmanager
def slow_reader(server: Server) -> Iterator[socket.socket]:
    """Connect with a small buffer."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 10)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        endpoint = server.listeners[0].endpoint
        client.connect((endpoint.host, endpoint.port))
        yield client


def read_slowly(clients: list[socket.socket], is_over: threading.Event) -> None:
    """Take a few bytes of each answer, until the test is over."""
    while not is_over.wait(PAUSE):
        for client in clients:
            with contextlib.suppress(OSError):
                client.recv(8192, socket.MSG_DONTWAIT)


@pytest.mark.parametrize("is_file", [False, True])
def test_regression_clients_that_read_slowly_keep_no_thread(tmp_path: Path, is_file: bool) -> None:
    """Before, each of them kept a thread until the end of its answer, and others had to wait."""
    path = tmp_path / "answer"
    path.write_bytes(bytes(ANSWER_BYTES))

    def handler(frame: memoryview, client: Client) -> Answer:
        if bytes(frame) != b"large":
            return [framed(bytes(frame))]
        size = struct.pack(">i", ANSWER_BYTES)
        if is_file:
            return [size, FileRange(OpenFile(path), 0, ANSWER_BYTES)]
        return [size, bytes(ANSWER_BYTES)]

    is_over = threading.Event()
    with serving(handler, max_worker_threads=THREADS) as server, contextlib.ExitStack() as stack:
        readers = [stack.enter_context(slow_reader(server)) for _ in range(THREADS)]
        thread = threading.Thread(target=read_slowly, args=(readers, is_over))
        thread.start()
        stack.callback(thread.join)
        stack.callback(is_over.set)
        for reader in readers:
            reader.sendall(framed(b"large"))
        wait_until(lambda: server.running_count == THREADS, "the readers have no threads")
        for _ in range(20):
            with connected(server) as client:
                client.settimeout(SECONDS / 4)  # the answers last much longer
                client.sendall(framed(b"small"))
                assert read_frames(client, 1) == [b"small"]
        assert server.connection_count >= THREADS


@pytest.mark.parametrize("size", [1000, 50 << 20])
def test_regression_a_request_that_arrives_byte_by_byte_is_late(size: int) -> None:
    """Before, a large request could arrive for ever, and kept its memory and its thread."""
    is_never = threading.Event()
    with serving(echo, request_arrival_ms=300) as server, connected(server) as client:
        client.sendall(struct.pack(">i", size))
        for _ in range(BYTES_SENT):
            is_never.wait(PAUSE)
            with contextlib.suppress(OSError):
                client.sendall(b"x")
        assert server.connection_count == 0


def test_regression_a_request_is_not_late_because_earlier_requests_came_first() -> None:
    """Before, the time began with the first of many requests, if each read ended within one."""
    is_never = threading.Event()
    with serving(echo, request_arrival_ms=400) as server, connected(server) as client:
        request = framed(b"x" * 100)
        client.sendall(request[:50])
        for _ in range(60):
            client.sendall(request[50:] + request[:50])
            assert read_frames(client, 1) == [b"x" * 100]
            is_never.wait(0.01)
        is_never.wait(0.15)  # the connection is parked within a request
        client.sendall(request[50:])
        assert read_frames(client, 1) == [b"x" * 100]


def test_regression_answers_that_nobody_reads_need_a_limited_memory() -> None:
    """Before, each connection could keep an answer of any size, by reading a byte now and then."""
    size = 16 << 20
    answer = struct.pack(">i", size) + bytes(size)

    def handler(frame: memoryview, client: Client) -> Answer:
        return [bytearray(answer) if bytes(frame) == b"large" else framed(bytes(frame))]

    limits = {"queued_max_request_bytes": 2 * size + 4096, "socket_request_max_bytes": 1000}
    with serving(handler, **limits) as server, contextlib.ExitStack() as stack:
        readers = [stack.enter_context(slow_reader(server)) for _ in range(5)]
        for reader in readers:
            reader.sendall(framed(b"large"))
        wait_until(lambda: server.connection_count == 2, "the answers keep their memory")
        with connected(server) as client:
            client.sendall(framed(b"small"))
            assert read_frames(client, 1) == [b"small"]
        assert server.connection_count >= 2


def test_an_answer_of_which_a_part_was_read_needs_its_whole_memory() -> None:
    """A client cannot hide an answer by reading almost all of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        far = stack.enter_context(socket.create_connection(listener.getsockname()))
        near = stack.enter_context(listener.accept()[0])
        connection = Connection(near, Client(Endpoint("A", "127.0.0.1", 1), "127.0.0.1"), 100, 0.0)
        connection.put([bytearray(32 << 20), b"x" * 10])
        assert not connection.send()
        assert connection.unread_bytes == (32 << 20) + 10
        far.setblocking(False)
        while not connection.send(lambda: True):
            assert connection.unread_bytes in ((32 << 20) + 10, 10)
            with contextlib.suppress(BlockingIOError):
                far.recv(1 << 20)
        assert connection.unread_bytes == 0
