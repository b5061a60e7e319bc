"""Test that markers are written again until each partition has one, or needs none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from broker.catalog.leadership import NotServedError
from broker.transaction_coordinator.marker_routes import (
    HERE,
    Fenced,
    MarkerRow,
    Result,
    Told,
)
from broker.transaction_coordinator.marker_writer import ROWS_MAX, Job, MarkerWriter
from broker.transactions.steps import Markers
from broker.transactions.transaction import Place
from broker.wire.error_codes import ErrorCode
from support.coordinating import Scheduler

A, B, C = ("a", 0), ("b", 0), ("c", 0)


class World:
    """Brokers 2, 3 and this one; a test sets routes, results, and which brokers answer."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.routes: dict[Place, int | None] = {}
        self.results: dict[Place, list[ErrorCode]] = {}
        self.silent: set[int] = set()
        self.written: list[Place] = []
        self.requests: list[tuple[int, int]] = []
        self.done = 0
        self.is_wanted, self.is_in_charge = True, False
        self.epochs: dict[Place, int] = {}  # the coordinator epoch in the log of a partition
        self.sent: dict[Place, set[int]] = {}
        self.writer = MarkerWriter(self, cast(Any, self))
        self.writer.start(self.scheduler, lambda: self.scheduler.seconds)

    def route(self, place: Place) -> int | None:
        if place not in self.routes:
            raise NotServedError(code=ErrorCode.LEADER_NOT_AVAILABLE, reason="no leader")
        return self.routes[place]

    def result(self, row: MarkerRow) -> Result:
        place = row.place
        self.sent.setdefault(place, set()).add(row.coordinator_epoch)
        current = self.epochs.get(place)
        if current is not None and not 0 <= current <= row.coordinator_epoch:
            return Fenced(current)
        codes = self.results.get(place)
        code = codes.pop(0) if codes else ErrorCode.NONE
        if not code:
            self.written.append(place)
        return code

    def send(self, broker: int, rows: Sequence[MarkerRow], told: Told) -> None:
        self.requests.append((broker, len(rows)))
        if broker not in self.silent:
            for number, row in enumerate(rows):
                told(number, self.result(row))

    def append_soon(self, row: MarkerRow, done: Any, is_wanted: Any) -> None:
        assert is_wanted()
        assert row[:3] == (5, 1, True)
        done(self.result(row))

    def write(self, *places: Place) -> Job:
        def count() -> None:
            self.done += 1

        markers = Markers(5, 1, True, frozenset(places))
        job = Job(markers, 9, lambda: self.is_wanted, count, lambda: self.is_in_charge)
        self.writer.write(job)
        self.scheduler.run()
        return job

    def wait(self, seconds: float = 5.0) -> None:
        self.scheduler.until(self.scheduler.seconds + seconds)


def test_markers_go_to_their_leaders() -> None:
    """Each leader gets one request with all its markers."""
    world = World()
    world.routes = {A: HERE, B: 2, C: 2}
    world.write(A, B, C)
    assert sorted(world.written) == [A, B, C] and world.requests == [(2, 2)]
    assert world.done == 1 and not world.scheduler.set_timers


def test_a_refused_marker_is_written_again() -> None:
    """A refused marker is written again, here or elsewhere; others are not written twice."""
    world = World()
    world.routes = {A: HERE, B: 2, C: 2}
    late = ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.results = {A: [ErrorCode.KAFKA_STORAGE_ERROR] * 3, B: [late, late]}
    world.write(A, B, C)
    assert world.written == [C]
    world.routes[B] = 3
    world.wait()
    assert sorted(world.written) == [A, B, C] and world.done == 1
    assert world.requests[0] == (2, 2) and set(world.requests[1:]) == {(3, 1)}


def test_a_silent_broker_is_asked_until_another_leads() -> None:
    """The waits grow to one second, until another broker leads."""
    world = World()
    world.routes, world.silent = {B: 2}, {2}
    world.write(B)
    world.wait(30.0)
    assert 25 < len(world.requests) < 45
    world.routes = {}
    world.wait()
    world.routes = {B: 3}
    world.wait()
    assert world.written == [B] and world.done == 1


def test_partitions_that_need_no_marker() -> None:
    """A deleted topic, and a partition with a newer epoch, need no marker."""
    world = World()
    world.routes = {A: None, B: HERE}
    world.results = {B: [ErrorCode.INVALID_PRODUCER_EPOCH]}
    world.write(A, B)
    assert world.done == 1 and not world.written


def test_a_coordinator_that_was_replaced_writes_no_more() -> None:
    """It stops when its object has ended."""
    world = World()
    world.routes = {}
    world.write(A)
    world.is_wanted = False
    world.routes = {A: HERE}
    world.wait()
    assert not world.written and not world.done


@pytest.mark.parametrize("broker", [HERE, 2])
def test_regression_a_partition_with_a_later_coordinator_epoch(broker: int) -> None:
    """The transaction stayed prepared until the coordinator changed: no marker was sent again."""
    world = World()
    world.routes = {A: broker, B: broker}
    world.epochs = {A: 12}
    job = world.write(A, B)
    world.wait(30.0)
    assert world.written == [B] and world.sent[A] == {9}  # perhaps another broker coordinates
    assert world.done == 0 and job.left == {A}
    world.is_in_charge = True
    world.wait()
    assert world.written == [B, A] and world.done == 1 and world.sent[A] == {9, 12}
    world.is_in_charge = False
    world.epochs = {A: -1}  # a broker of an earlier version does not name its epoch
    world.write(A)
    world.wait()
    world.is_wanted = False
    world.wait()
    assert world.done == 1 and not world.scheduler.set_timers


def test_a_large_transaction_needs_several_requests() -> None:
    """Each request has a bounded number of markers."""
    world = World()
    places = [("t", number) for number in range(2 * ROWS_MAX + 5)]
    world.routes = dict.fromkeys(places, 2)
    world.write(*places)
    assert [count for _, count in world.requests] == [ROWS_MAX, ROWS_MAX, 5] and world.done == 1
