"""Test that a request to another broker gets its own answer, or an error."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial

import pytest

from broker import Broker
from broker.wire.frames import encode_response
from broker.wire.messages import MetadataRequest, MetadataResponse
from cluster.errors import BadZnodeError, PeerError, PeerGoneError
from cluster.peers.byte_stream import ByteStream
from cluster.run.peer_connection import LARGE_BYTES, PeerConnection, Read

METADATA, VERSION = 3, 12


def answer_to(frame: bytes, shift: int = 0) -> bytes:
    """Answer a Metadata request; `shift` makes the answer belong to another request."""
    (number,) = struct.unpack_from(">i", frame, 8)
    return bytes(encode_response(METADATA, VERSION, number + shift, MetadataResponse()))


Behaviour = Callable[[socket.socket, bytes], None]


@contextmanager
def peer(behaviour: Behaviour) -> Iterator[tuple[str, int]]:
    """Serve connections one after another, and pass each request to the behaviour."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                with accepted:
                    while frame := accepted.recv(65536):
                        try:
                            behaviour(accepted, frame)
                        except OSError:
                            break

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def connect(host: str, port: int | str) -> PeerConnection:
    return PeerConnection(lambda: (host, int(port)), "broker-2")


def ask(connection: PeerConnection, seconds: float = 5.0) -> object:
    return connection.ask(METADATA, VERSION, MetadataRequest(), seconds)


def test_a_broker_answers() -> None:
    """Several requests use one connection; each gets its own answer."""
    with (
        Broker.start() as broker,
        closing(connect(*broker.bootstrap_servers.split(":"))) as connection,
    ):
        for _ in range(3):
            answer = ask(connection)
            assert [one.node_id for one in answer.brokers] == [0]  # type: ignore[attr-defined]
        assert broker.connection_count == 1


def bad_znode() -> tuple[str, int]:
    raise BadZnodeError(path="/brokers/ids/1", reason="is no JSON")


@pytest.mark.parametrize("where", [lambda: ("b1..example.com", 9092), bad_znode])
def test_regression_an_address_that_cannot_be_used_is_an_error_of_the_broker(
    where: Callable[[], tuple[str, int]],
) -> None:
    """So the asking threads treat such a broker like one that does not answer."""
    with closing(PeerConnection(where, "broker-2")) as connection:
        with pytest.raises(PeerError, match="the address of the broker cannot be used"):
            ask(connection)
        with pytest.raises(PeerError, match="the address of the broker cannot be used"):
            connection.check()


def test_an_answer_in_pieces_is_put_together() -> None:
    """A slow network delivers an answer in pieces."""

    def slowly(accepted: socket.socket, frame: bytes) -> None:
        for byte in answer_to(frame):
            accepted.sendall(bytes([byte]))

    with peer(slowly) as address, closing(connect(*address)) as connection:
        assert ask(connection) == MetadataResponse()


def test_a_large_answer_is_read_by_its_own_reader() -> None:
    """The reader gets exactly the bytes that it asks for, and must read all of them."""
    sent = bytes(range(256)) * (LARGE_BYTES // 128)

    def answer(accepted: socket.socket, frame: bytes) -> None:
        accepted.sendall(struct.pack(">i", len(sent)) + sent)

    with peer(answer) as address, closing(connect(*address)) as connection:

        def in_parts(read: Read, size_bytes: int, number: int) -> bytes:
            return b"".join((read(7), read(size_bytes - 8), read(1)))

        large = connection.ask(METADATA, VERSION, MetadataRequest(), 5.0, in_parts)
        assert large == sent


def test_a_large_answer_that_stops_is_an_error() -> None:
    """Each read has its own deadline."""
    heard: list[bytes] = []

    def answer(accepted: socket.socket, frame: bytes) -> None:
        accepted.sendall(struct.pack(">i", 2 * LARGE_BYTES) + bytes(LARGE_BYTES))

    def in_parts(read: Read, size_bytes: int, number: int) -> None:
        heard.append(read(LARGE_BYTES))
        read(1)

    with peer(answer) as address, closing(connect(*address)) as connection:
        with pytest.raises(PeerError, match="in time"):
            connection.ask(METADATA, VERSION, MetadataRequest(), 0.3, in_parts)
        assert heard == [bytes(LARGE_BYTES)]


def test_a_check_notices_that_the_broker_has_ended() -> None:
    """A check keeps an open connection, replaces a closed one, and reports a refusal."""
    with Broker.start() as broker:
        connection = connect(*broker.bootstrap_servers.split(":"))
        ask(connection)
        for _ in range(3):
            connection.check()
        assert broker.connection_count == 1
        ask(connection)
    with closing(connection), pytest.raises(PeerGoneError, match="it refuses connections"):
        connection.check()


def test_a_check_connects_again_after_a_close() -> None:
    """The port still accepts connections, so the broker lives."""
    closed = threading.Event()

    def answer_once(accepted: socket.socket, frame: bytes) -> None:
        accepted.sendall(answer_to(frame))
        accepted.shutdown(socket.SHUT_RDWR)
        closed.set()

    with peer(answer_once) as address, closing(connect(*address)) as connection:
        for _ in range(2):
            closed.clear()
            assert ask(connection) == MetadataResponse()
            assert closed.wait(10)
            connection.check()


def test_regression_an_interruption_ends_one_check() -> None:
    """Before, every later check failed, too, so the end of a broker was not noticed."""
    with ExitStack() as stack:
        with Broker.start() as broker:
            address = broker.bootstrap_servers.split(":")
            connection = stack.enter_context(closing(connect(*address)))
            for call in (connection.check, partial(ask, connection)):
                connection.check()
                connection.interrupt()
                with pytest.raises(PeerError, match="given up"):
                    call()
            connection.check()
            connection.interrupt()
        with pytest.raises(PeerError, match="given up"):
            connection.check()
        with pytest.raises(PeerGoneError, match="it refuses connections"):
            connection.check()


def cut(accepted: socket.socket, frame: bytes) -> None:
    accepted.sendall(answer_to(frame)[:-1])
    accepted.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (lambda accepted, frame: accepted.sendall(answer_to(frame, 1)), "answered request"),
        (lambda accepted, frame: accepted.sendall(answer_to(frame) * 2), "answer no request"),
        (lambda accepted, frame: accepted.sendall(answer_to(frame) + b"\0"), "answer no request"),
        (lambda accepted, _: accepted.sendall(b"\0\0\0\5\0\0\0\1\0"), "byte"),
        (lambda accepted, _: accepted.sendall(b"\x7f\0\0\0"), "a frame of"),
        (lambda accepted, _: accepted.sendall(b"\xff\0\0\0"), "a frame of"),
        (cut, "closed the connection"),
        (lambda accepted, _: accepted.shutdown(socket.SHUT_RDWR), "closed the connection"),
        (lambda *_: None, "in time"),
    ],
    ids=["other", "two", "more", "damaged", "huge", "negative", "cut", "closed", "silent"],
)
def test_what_is_no_answer_is_an_error(behaviour: Behaviour, reason: str) -> None:
    """The connection is closed, so a late answer is never mistaken for another one."""
    is_bad = True

    def once(accepted: socket.socket, frame: bytes) -> None:
        if is_bad:
            behaviour(accepted, frame)
        else:
            accepted.sendall(answer_to(frame))

    with peer(once) as address, closing(connect(*address)) as connection:
        with pytest.raises(PeerError, match=reason) as raised:
            ask(connection, 0.2)
        assert not isinstance(raised.value, PeerGoneError)
        assert raised.value.address == f"{address[0]}:{address[1]}"
        is_bad = False
        assert ask(connection) == MetadataResponse()


def test_a_port_that_refuses_means_that_the_process_is_gone() -> None:
    """Only a refused connection is a PeerGoneError; a silent broker may live."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    with (
        closing(connect(host, port)) as connection,
        pytest.raises(PeerGoneError),
    ):
        ask(connection)


def test_regression_a_close_takes_no_descriptor_from_a_thread_that_reads() -> None:
    """The reading thread could have read from another connection with the same descriptor."""
    with peer(lambda *_: None) as address:
        connection = connect(*address)
        used: list[ByteStream] = []
        send = connection._send

        def about_to_read(stream: ByteStream, frame: bytes | bytearray, deadline: float) -> int:
            used.append(stream)
            connection.close()
            assert stream.is_open, "the descriptor was given back while it is in use"
            return send(stream, frame, deadline)

        connection._send = about_to_read  # type: ignore[method-assign]
        with pytest.raises(PeerError):
            ask(connection)
        assert not used[0].is_open


def test_a_close_ends_a_running_request() -> None:
    """The request ends at once, and later requests are refused."""
    reached = threading.Event()
    with peer(lambda *_: reached.set()) as address:
        connection = connect(*address)
        began = time.monotonic()

        def close() -> None:
            reached.wait(10)
            connection.close()

        thread = threading.Thread(target=close)
        thread.start()
        with pytest.raises(PeerError):
            ask(connection, 60)
        thread.join()
        assert time.monotonic() - began < 10
        with pytest.raises(PeerError, match="closed by this broker"):
            ask(connection)


def test_an_interrupt_ends_one_request() -> None:
    """The running request fails, or else the next one; the one after that connects again."""
    reached, silent = threading.Event(), [True]

    def once(accepted: socket.socket, frame: bytes) -> None:
        reached.set()
        if not silent.pop():
            accepted.sendall(answer_to(frame))

    with peer(once) as address, closing(connect(*address)) as connection:
        began = time.monotonic()

        def interrupt() -> None:
            reached.wait(10)
            connection.interrupt()

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(PeerError):
            ask(connection, 60)
        thread.join()
        assert time.monotonic() - began < 10
        silent.append(False)
        assert ask(connection) == MetadataResponse()
        connection.interrupt()
        with pytest.raises(PeerError, match="given up by this broker"):
            ask(connection)
        silent.append(False)
        assert ask(connection) == MetadataResponse()
