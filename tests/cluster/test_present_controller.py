"""Test that a candidate notices the controller's end, and never ends a later reign."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import NoNodeError
from cluster import znodes
from cluster.control import present_controller
from cluster.control.controller_store import ControllerStore, Elected, Reign
from cluster.control.present_controller import PresentController
from cluster.errors import PeerError, PeerGoneError
from cluster.run.peer_connection import PeerConnection

GONE = PeerGoneError(address="one:9092", reason="it refuses connections")
AWAY = PeerError(address="one:9092", reason="it did not answer in time")
LONG = 3600.0  # no test waits for its end


class Connection:
    """A connection whose checks fail as a test says."""

    def __init__(self, *faults: PeerError | None) -> None:
        self.faults, self.is_closed = [*faults], False

    def check(self) -> None:
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault

    def close(self) -> None:
        self.is_closed = True


class Candidate:
    """Broker 2, which waits while broker 1 is the controller."""

    def __init__(self, store: EmbeddedStore, *connections: Connection) -> None:
        self.store = ControllerStore(store.connect(), 2)
        self.connected: list[int] = []
        self._left = [*connections]
        self.present = PresentController(self.store, 2, self._connect)
        self.waits = 0

    def _connect(self, broker: int) -> PeerConnection:
        self.connected.append(broker)
        return cast("PeerConnection", self._left.pop(0))

    def hears(self, seconds: float) -> bool:
        """Return True at the third call."""
        self.waits += 1
        return self.waits == 3


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    with EmbeddedStore([str(tmp_path)]) as opened:
        yield opened


@pytest.fixture
def one(store: EmbeddedStore) -> ControllerStore:
    made = ControllerStore(store.connect(), 1)
    made.prepare()
    assert made.stand(0) == Reign(1, 1)
    return made


def test_regression_a_controller_that_was_killed_is_replaced_at_once(
    store: EmbeddedStore, one: ControllerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session still lives; its next write shows it that it is deposed."""
    monkeypatch.setattr(present_controller, "REST_SECONDS", 0.0)
    candidate = Candidate(store, Connection(None, GONE))
    assert candidate.store.stand(0) is None
    candidate.present.wait(candidate.hears, LONG)
    assert (candidate.connected, candidate.waits) == ([1], 1)
    assert candidate.store.stand(0) == Reign(2, 2)
    assert one.elected() == Elected(2, 2)


def test_only_a_refused_connection_ends_a_reign(store: EmbeddedStore, one: ControllerStore) -> None:
    """A controller that cannot be reached may still live."""
    connection = Connection(AWAY, AWAY, AWAY)
    candidate = Candidate(store, connection)
    candidate.present.wait(candidate.hears, LONG)
    assert candidate.waits == 3 and not connection.faults
    assert one.elected() == Elected(1, 1)


def test_the_connection_is_kept_while_the_controller_is_the_same(
    store: EmbeddedStore, one: ControllerStore
) -> None:
    """The next controller gets a new connection, even the same broker in a new session."""
    first, second = Connection(), Connection()
    candidate = Candidate(store, first, second)
    for _ in range(2):
        candidate.waits = 2
        candidate.present.wait(candidate.hears, LONG)
    assert candidate.connected == [1] and not first.is_closed
    one.resign()
    assert one.stand(0) == Reign(2, 2)
    candidate.waits = 2
    candidate.present.wait(candidate.hears, LONG)
    assert candidate.connected == [1, 1] and first.is_closed
    candidate.present.close()
    assert second.is_closed


def test_a_late_candidate_ends_no_later_reign(store: EmbeddedStore, one: ControllerStore) -> None:
    """Another candidate was faster, so the version of the epoch has changed."""
    late = one.elected()
    assert late is not None
    one.resign()
    other = ControllerStore(store.connect(), 3)
    assert other.stand(0) == Reign(2, 2)
    one.depose(late)
    assert one.elected() == Elected(3, 2)
    other.resign()
    one.depose(Elected(3, 2))  # there is no znode any more
    assert one.elected() is None


def test_its_own_old_znode_is_left_to_its_session(store: EmbeddedStore) -> None:
    """A broker that started again ends its old session itself."""
    candidate = Candidate(store)
    candidate.store.prepare()
    assert candidate.store.stand(0) == Reign(1, 1)
    candidate.present.wait(candidate.hears, LONG)
    assert candidate.connected == [] and candidate.waits == 3


def test_without_a_store_nobody_is_checked(store: EmbeddedStore) -> None:
    """The candidate gets the error, and stands again later."""
    candidate = Candidate(store)
    with pytest.raises(NoNodeError, match=znodes.CONTROLLER_EPOCH):
        candidate.present.wait(candidate.hears, LONG)


def test_whoever_deposes_lets_others_stand(
    store: EmbeddedStore, one: ControllerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate without any connection would stop the cluster if it became the controller."""
    monkeypatch.setattr(present_controller, "REST_SECONDS", 0.2)
    candidate = Candidate(store, Connection(GONE), Connection(GONE), Connection(None, GONE))
    began = time.monotonic()
    candidate.present.wait(candidate.hears, LONG)
    assert time.monotonic() - began >= 0.2 and one.elected() is None
    assert one.stand(0) == Reign(2, 2)
    candidate.waits = 0
    candidate.present.wait(candidate.hears, LONG)  # it reaches no controller: none is deposed
    assert one.elected() == Elected(1, 2)
    one.resign()
    assert one.stand(0) == Reign(3, 3)
    candidate.waits = 0
    candidate.present.wait(candidate.hears, LONG)  # it reached this one first
    assert one.elected() is None


def test_another_candidate_is_not_waited_for(store: EmbeddedStore, one: ControllerStore) -> None:
    """When another candidate is elected, the wait ends."""
    candidate = Candidate(store, Connection(GONE))
    other = ControllerStore(store.connect(), 3)
    depose = candidate.store.depose

    def depose_and_lose(elected: Elected) -> None:
        depose(elected)
        assert other.stand(0) == Reign(2, 2)

    candidate.store.depose = depose_and_lose  # type: ignore[method-assign]
    began = time.monotonic()
    candidate.present.wait(candidate.hears, LONG)
    assert time.monotonic() - began < present_controller.REST_SECONDS
    assert one.elected() == Elected(3, 2)
