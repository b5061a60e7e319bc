"""Test the controller's requests to a broker: waiting requests share a message."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.control.broker_sender import BrokerSender
from cluster.errors import PeerError
from cluster.registration import TopicIdentity
from cluster.requests import LeaderAndIsr
from cluster.state import State
from cluster.wire.roles import Controlling, decode_roles
from cluster.wire.topic_ids import text_of
from support.replica_nodes import wait_until

TOPIC = TopicIdentity(text_of(b"0123456789abcdef"), 50)
NEWER = TopicIdentity(text_of(b"fedcba9876543210"), 60)


class Connection:
    """A broker that never answers; the first request waits for `go`."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.heard: list[list[LeaderAndIsr]] = []

    def ask(self, key: int, version: int, message: Any, seconds: float) -> Any:
        self.heard.append([one.role for one in decode_roles(message)])
        self.go.wait(20)
        raise PeerError(address="test", reason="it does not answer")

    def close(self) -> None:
        self.go.set()


@pytest.fixture
def connection() -> Connection:
    return Connection()


@pytest.fixture
def sender(connection: Any) -> Iterator[BrokerSender]:
    made = BrokerSender(1, Controlling(9, 4), connection, dict, lambda _: None)
    made.send("busy", role(0))
    wait_until(lambda: len(connection.heard) == 1)
    yield made
    made.end()
    made.join()


def role(version: int, *, is_new: bool = False, topic: TopicIdentity = TOPIC) -> LeaderAndIsr:
    state = State(1, 1 + version, 1, {1: 7}, {}, frozenset(), 7, (1,), None, 1)
    return LeaderAndIsr(topic, 0, 7, version, state, is_new=is_new)


@pytest.mark.parametrize(
    ("later", "is_new"),
    [(role(1), True), (role(2), True), (role(1, topic=NEWER), False)],
)
def test_regression_a_new_replica_stays_new_until_it_is_sent(
    sender: BrokerSender, connection: Connection, later: LeaderAndIsr, is_new: bool
) -> None:
    """A later request about the same topic keeps the mark that the replica is new (P17)."""
    sender.send("orders", role(1, is_new=True))
    sender.send("orders", later)
    connection.go.set()
    wait_until(lambda: len(connection.heard) == 2)
    (sent,) = connection.heard[1]
    assert (sent.version, sent.is_new) == (later.version, is_new)
    sender.send("orders", role(3))
    wait_until(lambda: len(connection.heard) == 3)
    (sent,) = connection.heard[2]
    assert (sent.version, sent.is_new) == (3, False)
