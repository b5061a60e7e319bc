"""Test that a sender brings one broker up to date, whatever the broker answers."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from broker.listener_config import Endpoint
from broker.wire.error_codes import ErrorCode
from broker.wire.messages import UpdateMetadataResponse
from cluster.control import metadata_sender
from cluster.control.announcements import Announced, Announcements
from cluster.control.metadata_sender import MetadataSender
from cluster.errors import PeerError, PeerGoneError
from cluster.pure.control_exchange import ConnectionAccepted, ConnectionRefused
from cluster.run.peer_connection import PeerConnection
from cluster.view import BrokerView, PartitionView
from cluster.wire.metadata_updates import Update, decode_update
from cluster.wire.roles import Controlling
from support.replica_nodes import wait_until

ONE = BrokerView(1, (Endpoint("PLAINTEXT", "one", 9092),))
TWO = BrokerView(2, (Endpoint("PLAINTEXT", "two", 9092),))
LED = PartitionView(1, 4, (1, 2), (1, 2))
Outcome = ErrorCode | Exception


class Broker:
    """The other end of a connection: it records messages, and answers as a test says."""

    def __init__(self) -> None:
        self.updates: list[Update] = []
        self.outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self.fault: PeerError | None = None  # of an idle connection
        self.checks = 0
        self.is_closed = False

    def ask(self, key: int, version: int, message: Any, seconds: float) -> Any:
        assert (key, version) == (6, 8)
        self.updates.append(decode_update(message))
        try:
            outcome = self.outcomes.get_nowait()
        except queue.Empty:
            outcome = ErrorCode.NONE
        if isinstance(outcome, Exception):
            raise outcome
        return UpdateMetadataResponse(outcome)

    def check(self) -> None:
        self.checks += 1
        if self.fault is not None:
            raise self.fault

    def close(self) -> None:
        self.is_closed = True


class Scene:
    """A sender for broker 2, and its events for the controller."""

    def __init__(self) -> None:
        self.broker, self.events = Broker(), list[Any]()
        self.announcements = Announcements(Controlling(1, 7))
        self.announcements.announce_brokers([ONE, TWO], {1: 50, 2: 60})
        self.announcements.announce([(("orders", 0), Announced(b"a" * 16, LED))])
        self.sender = MetadataSender(
            2, self.announcements, cast("PeerConnection", self.broker), self.events.append
        )

    def change(self, epoch: int) -> None:
        view = LED._replace(leader_epoch=epoch)
        self.announcements.announce([(("orders", 0), Announced(b"a" * 16, view))])

    def kinds(self) -> list[tuple[bool, int]]:
        """Return for each message whether it has everything, and its leader epoch."""
        return [
            (one.is_full, view.leader_epoch)
            for one in self.broker.updates
            for topic in one.topics
            for view in topic.partitions.values()
            if view is not None
        ]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        wait_until(condition, 10)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(metadata_sender, "BACKOFF_SECONDS", 0.002)
    monkeypatch.setattr(metadata_sender, "CHECK_SECONDS", 0.002)
    made = Scene()
    yield made
    made.sender.end()
    made.sender.join(10)
    assert made.broker.is_closed


def test_everything_and_then_the_changes(scene: Scene) -> None:
    """Nothing is sent before the announcements are open, and nothing is sent twice."""
    assert not scene.broker.updates
    scene.announcements.open()
    scene.wait_for(lambda: scene.kinds() == [(True, 4)])
    scene.change(5)
    scene.wait_for(lambda: scene.kinds() == [(True, 4), (False, 5)])
    assert not scene.events


def test_an_update_is_repeated_until_it_is_answered(scene: Scene) -> None:
    """Each repetition has the newest state of each partition."""
    scene.broker.outcomes.put(ErrorCode.NONE)
    for _ in range(3):
        scene.broker.outcomes.put(PeerError(address="two", reason="it did not answer in time"))
    scene.announcements.open()
    scene.wait_for(lambda: scene.kinds() == [(True, 4)])
    scene.change(5)
    scene.wait_for(lambda: scene.kinds() == [(True, 4), *[(False, 5)] * 4])


@pytest.mark.parametrize(
    ("code", "is_full"),
    [
        (ErrorCode.INVALID_UPDATE_VERSION, True),
        (ErrorCode.INVALID_REQUEST, True),
        (ErrorCode.STALE_BROKER_EPOCH, False),
        (ErrorCode.STALE_CONTROLLER_EPOCH, False),
    ],
)
def test_a_broker_that_lacks_changes_gets_everything(
    scene: Scene, code: ErrorCode, is_full: bool
) -> None:
    """A broker with another controller, or another incarnation, gets the same update again."""
    scene.broker.outcomes.put(ErrorCode.NONE)
    scene.broker.outcomes.put(code)
    scene.announcements.open()
    scene.wait_for(lambda: len(scene.broker.updates) == 1)
    scene.change(5)
    scene.wait_for(lambda: scene.kinds() == [(True, 4), (False, 5), (is_full, 5)])


def test_a_broker_that_is_gone_is_reported_and_tried_again(scene: Scene) -> None:
    """Each refusal is reported once; a later accepted connection is reported, too."""
    gone = PeerGoneError(address="two", reason="it refuses connections")
    for _ in range(3):
        scene.broker.outcomes.put(gone)
    scene.announcements.open()
    scene.wait_for(lambda: len(scene.broker.updates) == 4)
    assert scene.events == [ConnectionRefused(2)] * 3
    scene.announcements.announce_brokers([ONE], {1: 50, 2: 60})  # the suspicion is announced
    scene.wait_for(lambda: scene.events[3:] == [ConnectionAccepted(2)])


def test_regression_a_broker_that_dies_while_nothing_is_sent_is_reported(scene: Scene) -> None:
    """Only a refused connection counts."""
    scene.announcements.open()
    scene.broker.fault = PeerError(address="two", reason="it is away")
    scene.wait_for(lambda: scene.broker.checks > 3)
    assert not scene.events
    scene.broker.fault = PeerGoneError(address="two", reason="it refuses connections")
    scene.wait_for(lambda: ConnectionRefused(2) in scene.events)
    assert len(scene.broker.updates) == 1


def test_a_broker_that_is_not_registered_hears_nothing(scene: Scene) -> None:
    """When the broker is registered again, it gets everything."""
    scene.announcements.open()
    scene.wait_for(lambda: len(scene.broker.updates) == 1)
    scene.announcements.announce_brokers([ONE], {1: 50})
    scene.change(5)
    scene.announcements.announce_brokers([ONE, TWO], {1: 50, 2: 90})
    scene.wait_for(lambda: len(scene.broker.updates) == 2)
    assert scene.kinds() == [(True, 4), (True, 5)]
    assert scene.broker.updates[-1].broker_epoch == 90
