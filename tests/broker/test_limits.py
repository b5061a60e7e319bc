"""Test each limit of a connection, and that other connections are not disturbed."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import threading
from pathlib import Path

import pytest

from broker.machines.exchange import Answer, Client
from broker.net.listener import Listener
from broker.wire.fetch import FileRange
from support.serving import (
    SECONDS,
    connected,
    echo,
    framed,
    is_closed,
    read_frames,
    serving,
    wait_until,
)


class OpenFile:
    """A file like a range of a log, which the sender closes."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY)
        self.is_closed = threading.Event()
        self.is_failed = False

    def fileno(self) -> int:
        return self.fd

    def failed(self) -> None:
        self.is_failed = True

    def close(self) -> None:
        if not self.is_closed.is_set():
            self.is_closed.set()
            os.close(self.fd)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"max_connections": 3}, "max_connections=3"), ({"max_connections_per_ip": 3}, "per_ip=3")],
)
def test_connections_above_the_limit_are_closed(
    limits: dict[str, int], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the limit; when another client leaves, there is room again."""
    with serving(echo, **limits) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(3)]
        wait_until(lambda: server.connection_count == 3, "not all were accepted")
        with connected(server) as refused:
            assert is_closed(refused)
        wait_until(lambda: reason in caplog.text, "the log does not say which limit")
        clients[0].close()
        wait_until(lambda: server.connection_count == 2, "the connection was kept")
        with connected(server) as client:
            client.sendall(framed(b"x"))
            assert read_frames(client, 1) == [b"x"]


def test_regression_clients_do_not_starve_brokers() -> None:
    """When clients had all connections, another broker could not fetch, and left the ISR."""
    config = {
        "listeners": "CLIENT://127.0.0.1:0,PEER://127.0.0.1:0", "max_connections": 2,
        "advertised_listeners": "CLIENT://127.0.0.1:9092,PEER://127.0.0.1:9093",
        "zookeeper_connect": "127.0.0.1:2181", "inter_broker_listener_name": "peer",
    }  # fmt: skip
    with serving(echo, **config) as server, contextlib.ExitStack() as stack:
        clients, peers = (one.socket.getsockname() for one in server.listeners)

        def connect(place: tuple[str, int]) -> socket.socket:
            return stack.enter_context(socket.create_connection(place, 20))

        def is_served(client: socket.socket) -> bool:
            client.sendall(framed(b"x"))
            return read_frames(client, 1) == [b"x"]

        assert all(is_served(connect(clients)) for _ in range(2))
        assert is_closed(connect(clients))
        first, second = connect(peers), connect(peers)
        assert is_served(first) and is_served(second)
        assert is_closed(connect(peers)), "brokers have a limit, too"
        first.close()
        wait_until(lambda: server.connection_count == 3, "the connection was kept")
        assert is_closed(connect(clients))
        assert is_served(connect(peers))


def test_an_idle_connection_is_closed() -> None:
    """An idle connection is closed after its time; a connection with requests stays."""
    with (
        serving(echo, connections_max_idle_ms=300) as server,
        connected(server) as idle,
        connected(server) as busy,
    ):
        idle.settimeout(0.02)
        while True:
            busy.sendall(framed(b"x"))
            assert read_frames(busy, 1) == [b"x"]
            with contextlib.suppress(TimeoutError):
                assert idle.recv(1) == b""
                break


def test_a_large_request_must_make_progress() -> None:
    """A client that declares much and sends nothing holds its memory only for a short time."""
    with serving(echo, request_arrival_ms=300) as server, connected(server) as silent:
        silent.sendall(struct.pack(">i", 50_000_000))
        assert is_closed(silent)
        assert server.memory_bytes == 0


def test_a_request_that_does_not_arrive_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """Slowly arriving bytes do not prevent this; the log names the client."""
    with serving(echo, request_arrival_ms=300) as server, connected(server) as slow:
        for byte in struct.pack(">i", 20) + bytes(19):
            with contextlib.suppress(ConnectionError):
                slow.sendall(bytes([byte]))
            threading.Event().wait(0.02)
        wait_until(lambda: server.connection_count == 0, "the connection was kept")
    wait_until(lambda: "does not arrive in time" in caplog.text, "the log does not say why")


def test_requests_wait_for_memory_in_order() -> None:
    """A large request waits until there is room; small requests need no room."""
    size, began, released = 300_000, threading.Semaphore(0), threading.Event()

    def handler(frame: memoryview, client: Client) -> Answer:
        if len(frame) == size:
            began.release()
            released.wait(SECONDS)
        return [framed(bytes(frame[:1]))]

    limits = {"socket_request_max_bytes": size, "queued_max_request_bytes": 2 * size}
    with serving(handler, **limits) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(4)]
        senders = [
            threading.Thread(target=client.sendall, args=(framed(bytes([65 + at]) * size),))
            for at, client in enumerate(clients)
        ]
        for sender in senders:
            sender.start()
        assert began.acquire(timeout=SECONDS) and began.acquire(timeout=SECONDS)
        wait_until(lambda: server.running_count == 2, "the others hold threads")
        assert server.memory_bytes == 2 * size and not began.acquire(timeout=0.05)
        with connected(server) as small:
            small.sendall(framed(b"small"))
            assert read_frames(small, 1) == [b"s"]
        released.set()
        assert [read_frames(client, 1) for client in clients] == [[b"A"], [b"B"], [b"C"], [b"D"]]
        for sender in senders:
            sender.join(SECONDS)
        wait_until(lambda: server.memory_bytes == 0, "memory was kept")


def test_a_client_that_leaves_gives_its_memory_back() -> None:
    """The memory is returned in the middle of a request, and during a wait for memory."""
    size = 300_000
    limits = {"socket_request_max_bytes": size, "queued_max_request_bytes": size}
    with serving(echo, **limits) as server:
        with connected(server) as first:
            first.sendall(framed(b"x" * size)[:200_000])
            wait_until(lambda: server.memory_bytes == size, "no memory was reserved")
            with connected(server) as third:
                with connected(server) as second:
                    second.sendall(framed(b"x" * size)[:100_000])
                    wait_until(lambda: server.connection_count == 3, "not accepted")
                third.sendall(framed(b"y" * size))
                first.close()
                assert read_frames(third, 1) == [b"y" * size]
        wait_until(lambda: server.memory_bytes == 0, "memory was kept")


def test_a_file_is_sent_between_data(tmp_path: Path) -> None:
    """The file may be sent in many pieces, and is closed after its last byte."""
    path = tmp_path / "segment"
    path.write_bytes(bytes(range(256)) * 8000)
    files: list[OpenFile] = []

    def handler(frame: memoryview, client: Client) -> Answer:
        files.append(OpenFile(path))
        files.append(OpenFile(path))
        size = 2_000_000
        return [
            struct.pack(">i", 6 + size + 100), b"before", FileRange(files[-2], 48_000, size),
            FileRange(files[-1], 256, 100),
        ]  # fmt: skip

    with serving(handler) as server, connected(server) as client:
        for _ in range(3):
            client.sendall(framed(b"x"))
        whole = path.read_bytes()
        expected = b"before" + whole[48_000:2_048_000] + whole[256:356]
        assert read_frames(client, 3) == [expected] * 3
        assert all(file.is_closed.wait(SECONDS) for file in files)


def test_a_client_that_reads_nothing_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It holds no thread, and afterwards no file, so its segment may be deleted."""
    path = tmp_path / "segment"
    path.write_bytes(bytes(8_000_000))
    file = OpenFile(path)

    def handler(frame: memoryview, client: Client) -> Answer:
        return [struct.pack(">i", 8_000_000), FileRange(file, 0, 8_000_000)]

    with serving(handler, response_progress_ms=300) as server, connected(server) as client:
        client.sendall(framed(b"x"))
        wait_until(lambda: server.connection_count == 1, "not accepted")
        assert file.is_closed.wait(SECONDS)
        wait_until(lambda: server.connection_count == 0, "the connection was kept")
    wait_until(lambda: "has stopped reading its answer" in caplog.text, "the log does not say why")


def test_a_slow_reader_gets_everything(tmp_path: Path) -> None:
    """The connection is parked until the client takes more, as often as needed."""
    path = tmp_path / "segment"
    path.write_bytes(bytes(6_000_000))

    def handler(frame: memoryview, client: Client) -> Answer:
        return [struct.pack(">i", 6_000_000), FileRange(OpenFile(path), 0, 6_000_000)]

    with serving(handler) as server, connected(server) as client:
        client.sendall(framed(b"x"))
        left = 6_000_004
        while left:
            wait_until(lambda: server.running_count == 0, "the thread was kept")
            for _ in range(64):
                left -= len(client.recv(min(left, 65536)))
                if not left:
                    break


def test_a_file_that_cannot_be_read_ends_the_connection(tmp_path: Path) -> None:
    """The file is shorter than its range; no wrong bytes are sent instead."""
    path = tmp_path / "segment"
    path.write_bytes(b"short")
    file = OpenFile(path)

    def handler(frame: memoryview, client: Client) -> Answer:
        return [struct.pack(">i", 100), FileRange(file, 0, 100)]

    with serving(handler) as server, connected(server) as client:
        client.sendall(framed(b"x"))
        assert client.recv(9, socket.MSG_WAITALL)[4:] == b"short"
        assert is_closed(client) and file.is_closed.wait(SECONDS)


def test_without_descriptors_accepting_rests(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients are accepted again as soon as there are descriptors."""
    accept, failures = Listener.accept, [2]

    def failing(listener: Listener) -> tuple[socket.socket, str] | None:
        if failures[0]:
            failures[0] -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listener)

    monkeypatch.setattr(Listener, "accept", failing)
    with serving(echo) as server, connected(server) as client:
        client.sendall(framed(b"x"))
        assert read_frames(client, 1) == [b"x"]
    assert failures == [0] and "Too many open files" in caplog.text


def test_regression_slow_requests_do_not_hold_all_memory(caplog: pytest.LogCaptureFixture) -> None:
    """Two clients that trickle held it for as long as they liked; one that is fast is spared."""
    size = 8 << 20
    limits = {
        "socket_request_max_bytes": size, "queued_max_request_bytes": 3 * size,
        "request_arrival_ms": 3_000,
    }  # fmt: skip
    stopped = threading.Event()

    def trickle(client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            client.sendall(struct.pack(">i", size))
            while not stopped.wait(0.05):
                client.sendall(bytes(10_000))  # fast enough for the time limit of a request

    with serving(echo, **limits) as server, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connected(server)) for _ in range(2)]
        fast = stack.enter_context(connected(server))
        fast.sendall(struct.pack(">i", size) + bytes(size - 1000))
        threads = [threading.Thread(target=trickle, args=(one,)) for one in slow]
        stack.callback(stopped.set)
        for thread in threads:
            thread.start()
        wait_until(lambda: server.memory_bytes == 3 * size, "the memory is not taken")
        with connected(server) as waiting:
            waiting.sendall(framed(bytes(300_000)))
            assert len(read_frames(waiting, 1)[0]) == 300_000
            wait_until(lambda: server.connection_count == 3, "not one was cut")
            fast.sendall(bytes(1000))
            assert len(read_frames(fast, 1)[0]) == size
        stopped.set()
        for thread in threads:
            thread.join()
    wait_until(lambda: "others wait for its memory" in caplog.text, "the log does not say why")
