"""The server answers a client, even if others stall, flood, hang up or read slowly."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logstore.errors import LogStoreError
from logstore.store.admin import place as admin_place
from logstore.store.admin import server as admin_server
from logstore.store.admin.admin import Admin, Arguments, Request
from logstore.store.admin.client import AdminClient
from logstore.store.admin.protocol import REQUEST_BYTES_MAX
from logstore.store.admin.server import (
    CONNECTIONS_MAX,
    OUTGOING_BYTES_MAX,
    AdminServer,
    is_welcome,
)
from support.faulty import no_thread_leaks


class HandClock:
    """A monotonic clock that the test sets."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Scene:
    """A server, its commands, and clients of all kinds."""

    def __init__(self, path: str) -> None:
        self.clock = HandClock()
        self.admin = Admin()
        self.admin.register("echo", lambda arguments, request: arguments, is_quick=True)
        self.server = AdminServer(path, self.admin.answer, self.clock)
        self.server.start()
        self.client = AdminClient(path, os.getpid())
        self.sockets: list[socket.socket] = []

    def connect(self) -> socket.socket:
        """Return a bare connection, which is closed at the end."""
        connection = admin_place.connect(self.server.path)
        connection.settimeout(30)
        self.sockets.append(connection)
        return connection

    def answers(self) -> bool:
        """Report whether a well-behaved client is served."""
        return bool(self.client.call("echo", {"x": 1}, timeout=30) == {"x": 1})

    def end(self) -> None:
        """Close everything."""
        self.server.stop()
        for connection in self.sockets:
            connection.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(str(tmp_path / "s.sock"))
    yield scene
    scene.end()


def read_all(connection: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    parts = []
    try:
        while data := connection.recv(1 << 16):
            parts.append(data)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def test_clients_that_say_nothing_keep_nobody_out(scene: Scene) -> None:
    """If there are too many such clients, the oldest is closed, and the next is served."""
    idle = [scene.connect() for _ in range(CONNECTIONS_MAX + 10)]
    assert scene.answers()
    assert read_all(idle[0]) == b""
    idle[-1].sendall(b'{"command": "echo", "y": 2}\n')
    assert read_all(idle[-1]) == b'{"result":{"y":2}}\n'


def test_who_takes_too_long_is_dropped(scene: Scene) -> None:
    """A half request does not keep its connection forever."""
    slow = scene.connect()
    slow.sendall(b'{"command"')
    assert scene.answers()
    scene.clock.seconds += admin_server.PATIENCE_SECONDS
    scene.server.wake()
    assert read_all(slow) == b""


def test_a_request_may_come_in_pieces(scene: Scene) -> None:
    """A request may come byte by byte, and bytes after its line are not read."""
    client = scene.connect()
    for byte in b'{"command": "echo", "z": 3}\n{"command": "echo"}\n':
        client.sendall(bytes([byte]))
        if byte == ord("\n"):
            break
    assert read_all(client) == b'{"result":{"z":3}}\n'


def test_a_request_has_a_bound(scene: Scene) -> None:
    """A client that sends without end gets an error and is closed."""
    client = scene.connect()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        client.sendall(b"x" * (REQUEST_BYTES_MAX + (1 << 20)))
    assert b"a request has at most" in read_all(client)
    with pytest.raises(LogStoreError, match="a request has at most"):
        scene.client.call("echo", {"x": "x" * REQUEST_BYTES_MAX})
    assert scene.answers()


def test_a_large_answer_goes_to_whoever_takes_it(scene: Scene) -> None:
    """Megabytes are sent; a client that does not read delays no other, and is closed."""
    big = "x" * (3 << 20)
    scene.admin.register("big", lambda arguments, request: big)
    assert scene.client.call("big", timeout=30) == big
    lazy = scene.connect()
    lazy.sendall(b'{"command": "big"}\n')
    assert lazy.recv(1) == b"{"
    assert scene.answers()
    scene.clock.seconds += admin_server.PATIENCE_SECONDS
    scene.server.wake()
    assert len(read_all(lazy)) < len(big)
    assert scene.answers()


def test_a_hanging_request_hangs_alone(scene: Scene) -> None:
    """Other requests are answered; the request can find out that its client is gone."""
    gate, started = threading.Event(), threading.Event()
    seen: list[bool] = []
    ended = threading.Event()

    def hang(arguments: Arguments, request: Request) -> object:
        started.set()
        gate.wait()
        seen.append(request.is_abandoned)
        ended.set()
        return "too late"

    scene.admin.register("hang", hang)
    client = scene.connect()
    client.sendall(b'{"command": "hang"}\n')
    started.wait()
    assert scene.answers()
    client.close()
    assert scene.answers()  # behind it in the loop: the hang-up has been seen
    gate.set()
    ended.wait()
    assert seen == [True]
    assert scene.answers()


def test_progress_comes_before_the_result(scene: Scene) -> None:
    """Progress comes in order, and completely, if the client reads fast enough."""

    def count(arguments: Arguments, request: Request) -> object:
        for number in range(arguments["to"]):
            request.progress(number)
        return "done"

    scene.admin.register("count", count)
    heard: list[object] = []
    assert scene.client.call("count", {"to": 50}, heard.append) == "done"
    assert heard == list(range(50))


def test_progress_not_taken_is_bounded(scene: Scene) -> None:
    """A client that does not read misses some progress, but gets the result."""
    line = "x" * 1000
    told, read = threading.Event(), threading.Event()

    def flood(arguments: Arguments, request: Request) -> object:
        for _ in range(8 * OUTGOING_BYTES_MAX // len(line)):
            request.progress(line)
        told.set()
        read.wait()
        return "done"

    scene.admin.register("flood", flood)
    client = scene.connect()
    client.sendall(b'{"command": "flood"}\n')
    told.wait()
    read.set()
    answer = read_all(client)
    assert answer.endswith(b'{"result":"done"}\n')
    assert len(answer) < 4 * OUTGOING_BYTES_MAX


def test_full_places_are_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """If all connections have running requests, a further client gets an error text."""
    monkeypatch.setattr(admin_server, "CONNECTIONS_MAX", 2)
    gate, started = threading.Event(), threading.Semaphore(0)

    def hang(arguments: Arguments, request: Request) -> object:
        started.release()
        gate.wait()
        return "over"

    scene.admin.register("hang", hang)
    clients = [scene.connect(), scene.connect()]
    for client in clients:
        client.sendall(b'{"command": "hang"}\n')
        started.acquire()
    with pytest.raises(LogStoreError, match="2 clients are already served"):
        scene.client.call("echo")
    gate.set()
    assert [read_all(client) for client in clients] == [b'{"result":"over"}\n'] * 2
    assert scene.answers()


@pytest.mark.parametrize("uid", [12345, -1])
def test_other_users_are_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    """The kernel's user id counts, whatever the mode of the socket is."""
    asked: list[int] = []

    def refuse(user_id: int) -> bool:
        asked.append(user_id)
        return False

    monkeypatch.setattr(admin_server, "is_welcome", refuse)
    with pytest.raises(LogStoreError, match="may not operate this store"):
        scene.client.call("echo")
    assert asked == [os.geteuid()]
    monkeypatch.undo()
    assert is_welcome(os.geteuid()) and is_welcome(0) and not is_welcome(uid)
    assert scene.answers()


def test_a_process_without_descriptors_serves_again_later(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An accept that fails causes no busy loop, and does not end the loop."""
    turned = threading.Event()
    real = AdminServer._accept
    failing: list[int] = [1]

    def accept(server: AdminServer) -> None:
        if failing:
            failing.pop()
            listener, server._listener = server._listener, Broken()  # type: ignore[assignment]
            server._listener.fileno = listener.fileno  # type: ignore[method-assign]
            try:
                real(server)
            finally:
                server._listener = listener
            turned.set()
        else:
            real(server)

    class Broken:
        """A listener in a process that has no descriptor left."""

        fileno: Callable[[], int]

        def accept(self) -> None:
            raise OSError(24, "Too many open files")

    monkeypatch.setattr(AdminServer, "_accept", accept)
    client = scene.connect()
    client.sendall(b'{"command": "echo"}\n')
    turned.wait()
    scene.clock.seconds += admin_server.DEAF_SECONDS
    scene.server.wake()
    assert read_all(client) == b'{"result":{}}\n'


def test_a_server_that_never_started_stops(tmp_path: Path) -> None:
    """The connections of clients that waited are closed."""
    server = AdminServer(str(tmp_path / "s.sock"), Admin().answer)
    with admin_place.connect(server.path) as client:
        server.stop()
        assert read_all(client) == b""
    assert os.listdir(tmp_path) == []


def test_stop_takes_the_name_away_and_hangs_up(tmp_path: Path) -> None:
    """No name, no descriptor and no thread is left."""
    fds = len(os.listdir("/proc/self/fd"))
    with no_thread_leaks():  # the thread of a request that was answered ends by itself
        scene = Scene(str(tmp_path / "s.sock"))
        client = scene.connect()
        assert scene.answers()
        scene.server.stop()
        assert not scene.server._thread.is_alive()
        assert read_all(client) == b""
        scene.end()
    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == fds
    with pytest.raises(LogStoreError, match="cannot be reached"):
        scene.client.call("echo")
