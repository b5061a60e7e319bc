"""Test that the times of requests are counted by API and phase, and slow requests named."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

from broker.machines.exchange import Answer, Client
from broker.machines.request_times import BOUNDS, RequestClock, RequestTimes, slowness_of
from broker.wire.frames import encode_request
from broker.wire.messages import MetadataRequest
from support.serving import Waiting, connected, framed, read_frames, serving, wait_until

FRAME = bytes(encode_request(3, 1, 7, "c", MetadataRequest(topics=())))


def test_the_phases_add_up() -> None:
    """If a request waits, its waiting time is not a part of its execution."""
    clock = RequestClock(1, 10.0, 10.5)
    clock.wait(11.0)
    clock.decide(14.0)
    assert clock.phases(14.25) == (0.5, 0.5, 3.0, 0.25)
    clock = RequestClock(1, 10.0, 10.0)
    clock.decide(12.0)
    assert clock.phases(12.0) == (0.0, 2.0, 0.0, 0.0)


def test_requests_are_counted_by_their_total_time() -> None:
    """A request counts in the first bucket whose end is large enough; the sums are by phase."""
    times = RequestTimes()
    times.note(1, (0.0, BOUNDS[0], 0.0, 0.0))
    times.note(1, (0.0, BOUNDS[0], 0.0001, 0.0))
    times.note(1, (3.0, 4.0, 5.0, 6.0))
    times.note(9, (0.0, 0.0, 0.0, 0.0))
    found = times.snapshot()
    assert set(found) == {1, 9} and sum(found[1].counts) == 3
    assert (found[1].counts[0], found[1].counts[1], found[1].counts[-1]) == (1, 1, 1)
    assert found[1].seconds == pytest.approx((3.0, 4.0 + 2 * BOUNDS[0], 5.0001, 6.0))


def test_waiting_is_not_slow() -> None:
    """Only the times of the broker and of the client's reading count."""
    assert slowness_of((0.0, 0.5, 99.0, 0.5), 1.0) == ""
    assert slowness_of((0.6, 0.5, 99.0, 0.0), 1.0).startswith("queue 0.600 s, local 0.500 s")


def test_the_server_measures_requests(caplog: pytest.LogCaptureFixture) -> None:
    """A long request, a waiting request, and a request without an answer are measured."""
    waiting = Waiting()
    slow = threading.Event()

    def handler(frame: memoryview, client: Client) -> Any:
        number = frame[7]  # the last byte of the correlation id
        if number == 1:
            slow.wait(0.2)
        answer: Answer = [] if number == 3 else [framed(b"done")]
        return waiting if number == 2 else answer

    with serving(handler, slow_request_ms=100) as server, connected(server) as client:
        for number in (1, 2, 3, 4):
            client.sendall(framed(FRAME[4:11] + bytes([number]) + FRAME[12:]))
            if number == 2:
                assert waiting.is_watched.wait(20)
                time.monotonic()
                slow.wait(0.1)
                waiting.put(b"done")
            if number != 3:
                read_frames(client, 1)
        wait_until(lambda: sum(times(server).counts) == 4, "all requests")
    queue, local, remote, send = times(server).seconds
    assert 0.2 <= local < 10 and 0.1 <= remote < 10 and 0 <= send < 10 and 0 <= queue < 10
    slow_ones = [row.message for row in caplog.records if row.levelno == logging.WARNING]
    assert len(slow_ones) == 1 and "Metadata of 127.0.0.1: queue" in slow_ones[0]


def times(server: Any) -> Any:
    """Return what was counted for Metadata."""
    return server.request_times.snapshot()[3]
