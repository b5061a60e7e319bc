"""Hostile clients get an error or nothing, and never more than their share."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from broker.listener_config import Endpoint
from broker.page import admission
from broker.page.http_server import HttpServer
from broker.page.routes import Response

SECONDS = 20.0
GET = b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Asked:
    """Answer each target with itself, and remember it."""

    def __init__(self) -> None:
        self.targets: list[str] = []

    def __call__(self, target: str) -> Response:
        self.targets.append(target)
        return Response(200, "text/plain", target.encode())


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def page(asked: Asked) -> Iterator[HttpServer]:
    names = admission.allowed_names("127.0.0.1", "")
    with contextlib.closing(HttpServer(Endpoint("HTTP", "127.0.0.1", 0), names, asked)) as running:
        running.start()
        yield running


def connect(page: HttpServer) -> socket.socket:
    """Connect to a page."""
    return socket.create_connection((page.endpoint.host, page.endpoint.port), SECONDS)


def read_all(client: socket.socket) -> bytes:
    """Read until the server closes, or resets the connection."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while part := client.recv(1 << 16):
            data += part
    return data


def answer_to(page: HttpServer, request: bytes) -> bytes:
    """Send bytes, and read the whole answer."""
    with connect(page) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(request)
        return read_all(client)


def status_of(answer: bytes) -> int:
    """Read the status of an answer; 0 if there is none."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.0 ") else 0


def test_an_answer(page: HttpServer, asked: Asked) -> None:
    """It has the headers that protect a browser, and closes the connection."""
    head, _, body = answer_to(page, GET).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert (lines[0], body, asked.targets) == ("HTTP/1.0 200 OK", b"/x", ["/x"])
    headers = dict(line.split(": ", 1) for line in lines[1:])
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store" and headers["Content-Length"] == "2"
    assert not {"Server", "Access-Control-Allow-Origin", "Set-Cookie"} & set(headers)
    assert answer_to(page, GET.replace(b"GET", b"HEAD")).partition(b"\r\n\r\n")[2] == b""


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /x HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"DELETE /x HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"CONNECT evil:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET /x HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET /x HTTP/1.1\r\n\r\n", 400),
        (b"GET /x HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody", 400),
        (b"GET /x HTTP/9.9\r\nHost: localhost\r\n\r\n", 505),
        (b"GET /x HTTP/x\r\nHost: localhost\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"GET /x HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n", 431),
        (b"GET /x HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 9000 + b"\r\n\r\n", 431),
        (b"GET /x HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 150 + b"\r\n", 431),
    ],
)
def test_what_is_refused(page: HttpServer, asked: Asked, request_bytes: bytes, status: int) -> None:
    """The page is not asked, the answer quotes nothing, and the next client is served.

    An unread rest of a request may reset the connection before the client has read the answer.
    """
    answer = answer_to(page, request_bytes)
    if answer or len(request_bytes) < admission.HEAD_BYTES_MAX:
        assert status_of(answer) == status, answer
    assert b"evil" not in answer and not asked.targets
    assert status_of(answer_to(page, GET)) == 200


def test_a_request_that_comes_slowly_is_cut(
    page: HttpServer, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However regularly its bytes come: the whole connection has a deadline."""
    monkeypatch.setattr(admission, "CONNECTION_SECONDS", 0.6)
    began = time.monotonic()
    with connect(page) as client:
        client.settimeout(0.05)
        is_open = True
        while is_open and time.monotonic() - began < SECONDS:
            try:
                client.sendall(b"x")
                is_open = client.recv(1) != b""
            except TimeoutError:
                pass
            except ConnectionError:
                is_open = False
    assert not is_open and 0.5 < time.monotonic() - began < 5
    assert not asked.targets


def test_an_answer_that_is_not_read_is_cut(
    page: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that stopped reading holds its thread only until the deadline."""
    monkeypatch.setattr(admission, "CONNECTION_SECONDS", 0.6)
    page.respond = lambda target: Response(200, "text/plain", bytes(64 << 20))
    with connect(page) as client:
        client.sendall(GET)
        assert wait_for(lambda: page.connection_count == 1)
        assert wait_for(lambda: page.connection_count == 0)
        assert len(read_all(client)) < 64 << 20


def test_more_connections_than_places_wait_their_turn(page: HttpServer) -> None:
    """Idle connections lose their places after a second, so a real client is soon served."""
    idle = [connect(page) for _ in range(admission.CONNECTIONS_MAX + 10)]
    try:
        assert wait_for(lambda: page.connection_count == admission.CONNECTIONS_MAX)
        began = time.monotonic()
        assert status_of(answer_to(page, GET)) == 200
        assert time.monotonic() - began < 8
        assert page.connection_count <= admission.CONNECTIONS_MAX
    finally:
        for client in idle:
            client.close()


def test_connections_are_accepted_at_a_pace(page: HttpServer) -> None:
    """After a burst, a client that connects as fast as it can gets 20 connections a second."""
    began = time.monotonic()
    count = admission.BURST + 15
    assert {status_of(answer_to(page, GET)) for _ in range(count)} == {200}
    assert time.monotonic() - began > 14 / admission.CONNECTIONS_PER_SECOND


def test_a_close_ends_everything(asked: Asked) -> None:
    """The port is free, the threads end, and a second close does nothing."""
    running = HttpServer(Endpoint("HTTP", "127.0.0.1", 0), ["localhost"], asked)
    running.start()
    with connect(running) as client:
        assert wait_for(lambda: running.connection_count == 1)
        running.close()
        running.close()
        assert read_all(client) == b""
    assert wait_for(lambda: running.connection_count == 0)
    with contextlib.closing(HttpServer(running.endpoint, [], asked)):
        pass


def wait_for(is_true: object, seconds: float = SECONDS) -> bool:
    """Look every 10 ms whether something is true."""
    assert callable(is_true)
    turn, deadline = threading.Event(), time.monotonic() + seconds
    while not is_true() and time.monotonic() < deadline:
        turn.wait(0.01)
    return bool(is_true())
