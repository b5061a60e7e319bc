"""Test that each change of the store reaches the controller once, with few reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import NoNodeError
from broker.coordination.verbs import Session, Znode
from broker.listener_config import Endpoint
from cluster import znodes
from cluster.control.controller_host import ControllerHost
from cluster.control.controller_store import ControllerStore
from cluster.control.watches import Watches
from cluster.errors import PeerError
from cluster.run.peer_connection import PeerConnection
from cluster.state import parse_state
from cluster.wire.topic_ids import text_of
from support.replica_nodes import wait_until

TOPICS = 60


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    with EmbeddedStore([str(tmp_path)]) as opened:
        yield opened


def test_a_change_is_one_event(store: EmbeddedStore) -> None:
    """The number of watches on the znode does not matter; after the event, it can be set again."""
    session, events = store.connect(), list[Any]()
    watches = Watches(session, events.append)
    session.create("/parent")
    for _ in range(3):
        watches.arm("/parent", "data")
        watches.arm("/parent", "children", children=True)
        watches.arm("/gone", "gone")
    session.set("/parent", b"1")
    session.create("/parent/child")
    session.create("/gone")
    wait_until(lambda: sorted(events) == ["children", "data", "gone"])
    session.set("/parent", b"2")
    watches.arm("/parent", "again")
    session.set("/parent", b"3")
    wait_until(lambda: len(events) == 4)
    assert events[3] == "again"


def test_what_is_forgotten_can_be_watched_again(store: EmbeddedStore) -> None:
    """A new reign watches everything again."""
    session, events = store.connect(), list[Any]()
    watches = Watches(session, events.append)
    session.create("/parent")
    watches.arm("/parent", "old")
    watches.clear()
    watches.arm("/parent", "new")
    session.set("/parent", b"1")
    wait_until(lambda: sorted(events) == ["new", "old"])


class Counting:
    """A session that counts its reads of topics and states."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def get(self, path: str) -> Znode:
        self.reads += path.startswith((znodes.TOPICS, znodes.CONFIGS))
        return self._session.get(path)


class Silent:
    """A connection to a broker that never answers."""

    def ask(self, *_: object) -> Any:
        raise PeerError(address="nobody", reason="it does not answer")

    def close(self) -> None:
        """Do nothing."""


def create(session: Session, name: str) -> None:
    topic_id = text_of(name.encode().ljust(16, b"."))
    session.create(znodes.topic_path(name), znodes.encode_topic(topic_id, {0: [1]}))


def leads(session: Session, name: str) -> bool:
    path = znodes.state_path(name, 0)
    try:
        return parse_state(session.get(path).data, path).leader == 1
    except NoNodeError:
        return False


def test_a_change_of_one_topic_reads_only_that_one(store: EmbeddedStore) -> None:
    """After a new topic, changed settings, or a deletion, other topics are not read again."""
    admin = store.connect()
    counting = Counting(store.connect())
    session = cast("Session", counting)
    controller_store = ControllerStore(session, 1)
    controller_store.prepare()
    data = znodes.encode_registration([Endpoint("PLAINTEXT", "one", 9092)], "", {}, 0)
    admin.create(znodes.broker_path(1), data, ephemeral=True)
    for number in range(TOPICS):
        create(admin, f"t{number}")
    host = ControllerHost(
        controller_store, 1, lambda _: cast("PeerConnection", Silent()), look_seconds=60
    )
    try:
        wait_until(lambda: all(leads(admin, f"t{number}") for number in range(TOPICS)))
        before = counting.reads
        assert before > TOPICS
        create(admin, "new")
        wait_until(lambda: leads(admin, "new"))
        admin.create(znodes.config_path("t7"), znodes.encode_config({"min.insync.replicas": "1"}))
        admin.set(znodes.config_path("t7"), znodes.encode_config({"min.insync.replicas": "2"}))
        path = znodes.state_path("t7", 0)
        wait_until(lambda: parse_state(admin.get(path).data, path).min_isr == 2)
        for one in ("/partitions/0/state", "/partitions/0", "/partitions", ""):
            admin.delete(f"{znodes.topic_path('t8')}{one}")
        wait_until(lambda: len(admin.children(znodes.DELETIONS)) == 1)
        assert counting.reads - before < TOPICS / 2
    finally:
        host.close(10)
