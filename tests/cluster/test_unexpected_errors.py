"""Test that threads of a broker continue after an unexpected error, and log it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from cluster.control import broker_sender, metadata_sender
from cluster.control.announcements import Announcements
from cluster.control.broker_sender import BrokerSender
from cluster.control.metadata_sender import MetadataSender
from cluster.pure.exchange import Tick
from cluster.registration import TopicIdentity
from cluster.requests import AlterPartition, FollowerFetch, StopReplica
from cluster.run import controller_link, fetcher
from cluster.run.controller_link import ControllerLink
from cluster.run.fetcher import Fetcher
from cluster.run.hosted_replica import HostedReplica
from cluster.run.peer_connection import PeerConnection
from cluster.sessions.lease import Lease
from cluster.view import BrokerView
from cluster.wire.follower_fetches import FetchLimits
from cluster.wire.roles import Controlling
from cluster.wire.topic_ids import text_of
from support.members import Members
from support.places import fast_directory
from support.replica_nodes import UNLIMITED, wait_until

TOPIC = TopicIdentity(text_of(b"0123456789abcdef"), 50)
REASON = "nobody expected this"


class Faulty:
    """A connection whose requests all fail with an unexpected error."""

    def __init__(self) -> None:
        self.calls = 0

    def ask(self, key: int, version: int, message: Any, seconds: float, large: Any = None) -> Any:
        self.calls += 1
        raise RuntimeError(REASON)

    def check(self) -> None:
        raise AssertionError("it is never idle")

    def close(self) -> None:
        return


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Faulty:
    for module in (broker_sender, controller_link, fetcher, metadata_sender):
        monkeypatch.setattr(module, "BACKOFF_SECONDS", 0.01)
    return Faulty()


def peer(connection: Faulty) -> PeerConnection:
    return cast("PeerConnection", connection)


def traces(caplog: pytest.LogCaptureFixture) -> int:
    """Count the tracebacks of the unexpected error in the log."""
    return sum(one.exc_info is not None and REASON in str(one.exc_info[1])
               for one in caplog.records)  # fmt: skip


def wait_for_two(
    connection: Faulty, caplog: pytest.LogCaptureFixture, again: Callable[[], object]
) -> None:
    """Wait for a call, let the thread work again, and wait for another call."""
    wait_until(lambda: connection.calls == 1 and traces(caplog) == 1)
    again()
    wait_until(lambda: connection.calls > 1 and traces(caplog) > 1)


def test_regression_a_sender_of_the_controller_goes_on(
    connection: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    """It sends the next request."""
    sender = BrokerSender(1, Controlling(2, 1), peer(connection), dict, lambda _: None)
    stop = StopReplica(TOPIC, 0, 5, 1)
    sender.send("orders", stop)
    wait_for_two(connection, caplog, lambda: sender.send("orders", stop))
    sender.end()
    sender.join()


def test_regression_a_link_to_the_controller_goes_on(
    connection: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    """It sends the next proposal over a new connection."""
    change = AlterPartition(TOPIC, 0, 2, 1, 1, 1, {2: 1})
    link = ControllerLink(lambda: 1, lambda _: peer(connection), lambda _: None)
    link.send(change)
    wait_for_two(connection, caplog, lambda: link.send(change))
    link.close()


def test_regression_a_sender_of_metadata_goes_on(
    connection: Faulty, caplog: pytest.LogCaptureFixture
) -> None:
    """It tries again by itself."""
    announcements = Announcements(Controlling(1, 7))
    announcements.announce_brokers([BrokerView(2, ())], {2: 60})
    announcements.open()
    sender = MetadataSender(2, announcements, peer(connection), lambda _: None)
    wait_until(lambda: connection.calls > 1 and traces(caplog) > 1)
    sender.end()
    sender.join()


class Asking:
    """A replica that always wants to fetch from broker 1."""

    role = log = None
    name, number = "t", 0

    def next_fetch(self) -> tuple[int, FollowerFetch]:
        return 1, FollowerFetch(TOPIC, 0, 2, 5, 1, 0, -1)


def test_regression_a_fetcher_goes_on(connection: Faulty, caplog: pytest.LogCaptureFixture) -> None:
    """It fetches again after its backoff, not in a loop."""
    made = Fetcher(1, "1-dir", peer(connection), FetchLimits(), time.monotonic, UNLIMITED)
    made.add(cast("HostedReplica", Asking()))
    wait_until(lambda: connection.calls > 1 and traces(caplog) > 1)
    made.end()
    made.join()


def test_regression_a_member_goes_on_ticking(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one part of a tick fails, the other parts still run."""
    with fast_directory() as root, Members(root, [1]) as members:
        member, ticks = members.members[1].member, list[object]()

        def tell_all(event: object, *_: object) -> None:
            ticks.append(event)

        with monkeypatch.context() as patch:
            patch.setattr(Lease, "is_held", property(fail))
            patch.setattr(member.replicas, "tell_all", tell_all)
            wait_until(lambda: traces(caplog) > 1 and ticks.count(Tick()) > 1)


def fail(_: object) -> bool:
    raise RuntimeError(REASON)
