"""Test one encrypted connection, step by step, by its calls to the socket."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from broker.config import BrokerConfig
from broker.listener_config import Endpoint
from broker.machines.exchange import Client
from broker.net.connection import EndOfStreamError
from broker.net.tls import listener_context
from broker.net.tls_connection import DECRYPTED_BYTES, ENCRYPTED_BYTES, TlsConnection
from support.secured import Certificates, client_context, secure_config

BUFFER_BYTES = 4 << 20


class Recorder:
    """A socket that records how many bytes each call asked for, and got."""

    def __init__(self, real: socket.socket) -> None:
        self.real = real
        self.received: list[tuple[int, int, int]] = []
        self.sent: list[int] = []

    def recv(self, size: int, flags: int = 0) -> bytes:
        data = self.real.recv(size, flags)
        self.received.append((size, flags, len(data)))
        return data

    def send(self, data: memoryview, flags: int = 0) -> int:
        self.sent.append(len(data))
        return self.real.send(data, flags)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class Pair:
    """The two ends of a connection, the broker's and the client's, in one thread."""

    def __init__(self, directory: Path) -> None:
        certificates = Certificates.make(directory)
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            self.far = socket.create_connection(server.getsockname(), 10.0)
            self.far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            near, _ = server.accept()
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = client_context(certificates)
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")
        self.recorder = Recorder(near)
        client = Client(Endpoint("SSL", "127.0.0.1", 1), "127.0.0.1")
        made = listener_context(BrokerConfig.of(secure_config(certificates)))
        self.near = TlsConnection(near, client, 1 << 20, time.monotonic(), made)
        self.near.socket = self.recorder  # type: ignore[assignment]
        self._shake_hands()
        self.recorder.received.clear()
        self.recorder.sent.clear()

    def _shake_hands(self) -> None:
        while not self.near.is_secured:
            with suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
            self.far.sendall(self.outgoing.read())
            self.near.receive()
            assert self.near.send()
            self.incoming.write(self.far.recv(1 << 16))

    def close(self) -> None:
        self.near.close()
        self.far.close()


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    made = Pair(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("size", [1, 20_000, 70_000, 150_000, 300_000, 300_001, 310_007])
def test_regression_a_large_request_waits_for_no_byte_that_it_has(pair: Pair, size: int) -> None:
    """TLS had a part of a record; before, a call that waited for these bytes took 50 ms."""
    pair.tls.write(size.to_bytes(4) + bytes(size))
    pair.far.sendall(pair.outgoing.read())
    while not pair.near.frames:
        assert pair.near.receive()
    assert len(pair.near.frames[0]) == size
    for asked, flags, got in pair.recorder.received:
        assert asked <= max(DECRYPTED_BYTES, 64 << 10)
        assert not flags & socket.MSG_WAITALL or got == asked


def test_an_answer_is_encrypted_in_parts(pair: Pair) -> None:
    """So a slow client uses little memory; it gets the right bytes."""
    data = bytes(range(256)) * 4000
    pair.near.put([data[:100], memoryview(data)[100:]])
    found = b""
    while pair.near.has_output or len(found) < len(data):
        pair.near.send()
        pair.incoming.write(pair.far.recv(1 << 20))
        with suppress(ssl.SSLWantReadError):
            while True:
                found += pair.tls.read(1 << 16)
    assert found == data
    assert max(pair.recorder.sent) < ENCRYPTED_BYTES + 10_000


def test_the_last_requests_before_the_end_are_answered(pair: Pair) -> None:
    """This holds even if the client ends its stream in the same packet."""
    pair.tls.write((3).to_bytes(4) + b"abc")
    with suppress(ssl.SSLError):
        pair.tls.unwrap()
    pair.far.sendall(pair.outgoing.read())
    assert pair.near.receive() and bytes(pair.near.frames[0]) == b"abc"
    with pytest.raises(EndOfStreamError):
        pair.near.receive()
