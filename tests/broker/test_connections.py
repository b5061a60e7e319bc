"""Test that a client always gets its answers in order, and disturbs no other client."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import ExitStack

import pytest

from broker.machines.exchange import Answer, Client, CloseConnectionError, Pending
from broker.wire.byte_cursor import WireError
from support.serving import (
    SECONDS,
    Waiting,
    connected,
    echo,
    framed,
    is_closed,
    read_frames,
    serving,
    wait_until,
)

FAULTY: list[Answer] = []


def test_pipelined_requests_are_answered_in_order() -> None:
    """Requests that are sent at once, in pieces of any size, are answered in order."""
    frames = [bytes([number % 256]) * (number * 37 % 5000) for number in range(300)]
    frames[150] = b"x" * 3_000_000
    stream = b"".join(map(framed, frames))
    with serving(echo) as server, connected(server) as client:
        sender = threading.Thread(target=client.sendall, args=(stream,))
        sender.start()
        assert read_frames(client, len(frames)) == frames
        sender.join()


def test_one_request_of_a_connection_runs_at_a_time() -> None:
    """The next request begins after the previous answer, even if that one waited."""
    running, most = [0], [0]
    pendings = [Waiting() for _ in range(3)]
    order: list[int] = []

    def handler(frame: memoryview, client: Client) -> Pending:
        running[0] += 1
        most[0] = max(most[0], running[0])
        running[0] -= 1
        order.append(frame[0])
        return pendings[frame[0]]

    with serving(handler) as server, connected(server) as client:
        client.sendall(b"".join(framed(bytes([number])) for number in range(3)))
        for number, pending in enumerate(pendings):
            assert pending.is_watched.wait(SECONDS) and order == list(range(number + 1))
            pending.put(b"answer %d" % number)
            assert read_frames(client, 1) == [b"answer %d" % number]
            assert pending.is_closed.wait(SECONDS)
    assert most == [1]


def test_a_slow_sender_holds_no_thread() -> None:
    """The connection of a slow sender is parked between its bytes, and its request is complete."""
    with serving(echo) as server, connected(server) as slow, connected(server) as fast:
        for at, byte in enumerate(framed(b"abc")):
            slow.sendall(bytes([byte]))
            wait_until(lambda: server.running_count == 0, "the thread was kept")
            fast.sendall(framed(b"%d" % at))
            assert read_frames(fast, 1) == [b"%d" % at]
        assert read_frames(slow, 1) == [b"abc"]


def test_hundreds_of_idle_connections_hold_no_thread() -> None:
    """Idle connections are parked, hold no thread, and still work afterwards."""
    with serving(echo) as server, ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(400)]
        wait_until(lambda: server.connection_count == 400, "not all were accepted")
        wait_until(lambda: server.running_count == 0, "threads were kept")
        for client in clients:
            client.sendall(framed(b"x"))
        assert all(read_frames(client, 1) == [b"x"] for client in clients)


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, (100 << 20) + 1])
def test_an_oversized_frame_ends_its_connection(size: int) -> None:
    """The requests before an oversized frame are answered; then the connection ends."""
    with serving(echo) as server, connected(server) as client, connected(server) as other:
        client.sendall(framed(b"first"))
        assert read_frames(client, 1) == [b"first"]
        client.sendall(struct.pack(">i", size) + b"rest")
        assert is_closed(client)
        other.sendall(framed(b"ok"))
        assert read_frames(other, 1) == [b"ok"]


@pytest.mark.parametrize("sent", [1, 3, 4, 5, 9])
def test_a_truncated_frame_is_dropped(sent: int) -> None:
    """After a truncated frame, the connection is closed and the frame is dropped."""
    with serving(echo) as server:
        with connected(server) as client:
            client.sendall(framed(b"whole") + framed(b"never")[:sent])
            assert read_frames(client, 1) == [b"whole"]
        wait_until(lambda: server.connection_count == 0, "the connection was kept")


def test_a_half_closed_client_gets_all_its_answers() -> None:
    """A half-closed client gets all answers, and a waiting request is answered at once."""
    pending = Waiting()

    def handler(frame: memoryview, client: Client) -> Answer | Pending:
        return pending if bytes(frame) == b"wait" else echo(frame, client)

    with serving(handler) as server, connected(server) as client:
        client.sendall(framed(b"a") + framed(b"wait") + framed(b"b"))
        client.shutdown(socket.SHUT_WR)
        assert read_frames(client, 3) == [b"a", b"late", b"b"]
        assert time.monotonic() < pending.deadline
        assert is_closed(client)
        assert pending.is_closed.is_set()


def test_regression_a_hang_up_does_not_shorten_a_delay() -> None:
    """The connection rests meanwhile: a hang-up is reported once, not again and again."""
    half, whole = Waiting(0.3), Waiting(0.3)
    half.ends_with_client = whole.ends_with_client = False
    with serving(lambda frame, client: half) as server, connected(server) as client:
        client.sendall(framed(b"wait"))
        client.shutdown(socket.SHUT_WR)
        assert read_frames(client, 1) == [b"late"]
        assert time.monotonic() >= half.deadline and is_closed(client)
    with serving(lambda frame, client: whole) as server:
        with connected(server) as client:
            client.sendall(framed(b"wait"))
            assert whole.is_watched.wait(SECONDS)
        assert whole.is_closed.wait(SECONDS) and time.monotonic() >= whole.deadline
        wait_until(lambda: server.connection_count == 0, "the connection was kept")
    for pending in (half, whole):
        assert len(pending.looks) < 6 and pending.looks[-1] and not any(pending.looks[:-1])


def test_a_client_that_is_gone_leaves_no_waiting_request() -> None:
    """If a client is gone, its waiting request is dropped at once, not at its deadline."""
    pending = Waiting()
    with serving(lambda frame, client: pending) as server:
        with connected(server) as client:
            client.sendall(framed(b"wait"))
            assert pending.is_watched.wait(SECONDS)
            wait_until(lambda: server.running_count == 0, "the thread was kept")
        assert pending.is_closed.wait(SECONDS) and time.monotonic() < pending.deadline
        wait_until(lambda: server.connection_count == 0, "the connection was kept")


def test_a_waiting_request_is_answered_at_its_deadline() -> None:
    """Until its deadline, a waiting request holds no thread; useless wake-ups change nothing."""
    pending = Waiting(0.3)
    with serving(lambda frame, client: pending) as server, connected(server) as client:
        client.sendall(framed(b"wait"))
        assert pending.is_watched.wait(SECONDS)
        for _ in range(5):
            wait_until(lambda: server.running_count == 0, "the thread was kept")
            pending.wake()
        assert read_frames(client, 1) == [b"late"]
        assert time.monotonic() >= pending.deadline
        assert pending.looks[-1] and not any(pending.looks[:-1])


@pytest.mark.parametrize("error", [WireError(0, "no request"), CloseConnectionError("acks=0")])
def test_a_request_without_an_answer_ends_its_connection(error: Exception) -> None:
    """The requests before it are answered; then the connection ends."""

    def handler(frame: memoryview, client: Client) -> Answer:
        if bytes(frame) == b"bad":
            raise error
        return echo(frame, client)

    with serving(handler) as server, connected(server) as client:
        client.sendall(framed(b"good") + framed(b"bad") + framed(b"good"))
        assert read_frames(client, 1) == [b"good"]
        assert is_closed(client)


def test_a_fault_of_a_handler_ends_only_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    """A fault of a handler is logged with a traceback, and the threads continue."""

    def handler(frame: memoryview, client: Client) -> Answer:
        return echo(frame, client) if bytes(frame) == b"good" else FAULTY[5]

    with serving(handler) as server, connected(server) as client, connected(server) as other:
        client.sendall(framed(b"bad"))
        assert is_closed(client)
        other.sendall(framed(b"good"))
        assert read_frames(other, 1) == [b"good"]
    assert "IndexError" in caplog.text


def test_no_answer_is_sent_for_an_empty_one() -> None:
    """A Produce request with acks=0 gets no answer; the next request is served."""

    def handler(frame: memoryview, client: Client) -> Answer:
        return [] if bytes(frame) == b"quiet" else echo(frame, client)

    with serving(handler) as server, connected(server) as client:
        client.sendall(framed(b"quiet") + framed(b"loud"))
        assert read_frames(client, 1) == [b"loud"]


def test_a_request_that_hangs_stalls_no_other_connection() -> None:
    """A hanging request stalls no other connection; after a time, its connection is cut."""
    released, began = threading.Event(), threading.Event()

    def handler(frame: memoryview, client: Client) -> Answer:
        if bytes(frame) == b"hang":
            began.set()
            released.wait(SECONDS)
        return echo(frame, client)

    with (
        serving(handler, request_stuck_ms=200) as server,
        connected(server) as client,
        connected(server) as other,
    ):
        client.sendall(framed(b"hang"))
        assert began.wait(SECONDS)
        for _ in range(100):
            other.sendall(framed(b"x"))
            assert read_frames(other, 1) == [b"x"]
        assert is_closed(client)
        released.set()
        wait_until(lambda: server.connection_count == 1, "the connection was kept")


def test_stop_answers_what_is_under_way() -> None:
    """A stop answers running requests, answers waiting requests at once, and closes the rest."""
    began, released, pending = threading.Event(), threading.Event(), Waiting()

    def handler(frame: memoryview, client: Client) -> Answer | Pending:
        if bytes(frame) == b"wait":
            return pending
        began.set()
        released.wait(SECONDS)
        return echo(frame, client)

    with (
        serving(handler) as server,
        connected(server) as running,
        connected(server) as waiting,
        connected(server) as idle,
    ):
        running.sendall(framed(b"run") + framed(b"run too"))
        waiting.sendall(framed(b"wait"))
        assert began.wait(SECONDS) and pending.is_watched.wait(SECONDS)
        results: list[bool] = []
        stopping = threading.Thread(target=lambda: results.append(server.stop(SECONDS)))
        stopping.start()
        assert is_closed(idle)
        assert read_frames(waiting, 1) == [b"late"]
        released.set()
        assert read_frames(running, 2) == [b"run", b"run too"]
        assert is_closed(running) and is_closed(waiting)
        stopping.join(SECONDS)
        assert results == [True] and server.connection_count == 0


def test_stop_cuts_what_does_not_end() -> None:
    """After a time, a stop cuts requests that do not end, and the client sees the end."""
    began, released = threading.Event(), threading.Event()

    def handler(frame: memoryview, client: Client) -> Answer:
        began.set()
        released.wait(SECONDS)
        return echo(frame, client)

    with serving(handler) as server, connected(server) as client:
        client.sendall(framed(b"hang"))
        assert began.wait(SECONDS)
        assert server.stop(0.05) is False
        assert is_closed(client)
        released.set()


def test_many_busy_clients_share_a_few_threads() -> None:
    """A thread waits 50 ms for the next request of its client only if no other client needs it."""
    clients_count, rounds = 120, 20
    with serving(echo) as server, ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(clients_count)]
        most = 0
        for _ in range(rounds):
            for client in clients:
                client.sendall(framed(b"hello"))
            for client in clients:
                assert read_frames(client, 1) == [b"hello"]
            most = max(most, server.thread_count)
    assert most < clients_count // 2
