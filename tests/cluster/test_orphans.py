"""Test that replicas of unknown topics are kept, and reported once if they stay unknown."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from cluster import znodes
from cluster.registration import TopicIdentity
from cluster.run.hosted_replica import HostedReplica
from cluster.run.orphans import Orphans
from cluster.view import EMPTY, ClusterView, PartitionView, TopicView
from cluster.wire.topic_ids import text_of
from support.members import Members
from support.places import fast_directory
from support.replica_nodes import wait_until

A, B = b"a" * 16, b"b" * 16
LED = PartitionView(1, 4, (1,), (1,))


class Replica:
    """The part of a replica that the search uses."""

    def __init__(self, name: str, topic_id: bytes, *, is_there: bool = True) -> None:
        self.name, self.number = name, 0
        self.topic = TopicIdentity(text_of(topic_id), 5)
        self.log = object() if is_there else None


def view_of(**topics: bytes) -> ClusterView:
    known = {name: TopicView(name, topic_id, {0: LED}) for name, topic_id in topics.items()}
    return ClusterView(1, {}, known, {topic_id: name for name, topic_id in topics.items()})


class Scene:
    """The search for orphans of one broker."""

    def __init__(self) -> None:
        self.alarms: list[tuple[Any, ...]] = []
        self.orphans = Orphans(lambda *alarm: self.alarms.append(alarm), 30, 5)

    def look(self, view: ClusterView, now: float, *replicas: Replica) -> list[str]:
        self.orphans.look(cast("list[HostedReplica]", replicas), view, now)
        return sorted(name for name, _ in self.orphans.found)


def test_a_replica_is_reported_once_and_only_if_it_stays_unknown() -> None:
    """The view may be older than the replica; when the topic is known, the alarm ends."""
    scene, one, two = Scene(), Replica("one", A), Replica("two", B)
    unknown, known = view_of(one=A), view_of(one=A, two=B)
    assert scene.look(unknown, 0, one, two) == []
    assert scene.look(unknown, 29, one, two) == []
    assert scene.look(unknown, 35, one, two) == ["two"]
    assert scene.look(unknown, 50, one, two) == ["two"]
    assert [alarm[:2] for alarm in scene.alarms] == [("two", 0)]
    assert scene.look(known, 60, one, two) == []
    assert scene.look(unknown, 70, one, two) == []
    assert scene.look(unknown, 100, one, two) == ["two"]


def test_another_topic_of_the_same_name_is_not_the_replicas() -> None:
    """The topic's id decides; the name decides only for a replica without an id."""
    scene = Scene()
    for now in (0, 30):
        found = scene.look(
            view_of(one=B, three=A), now, Replica("one", A), Replica("one", B), Replica("two", A),
            Replica("three", bytes(16)), Replica("four", bytes(16)), Replica("x", B),
        )  # fmt: skip
    assert found == ["four"]


def test_a_damaged_topic_id_is_unknown() -> None:
    """A bad topic id in a log must not end the searching thread."""
    scene, damaged = Scene(), Replica("one", A)
    damaged.topic = TopicIdentity("no topic id", 5)
    for now in (0, 30):
        found = scene.look(view_of(one=A), now, damaged)
    assert found == ["one"]


def test_without_a_view_or_a_log_nothing_is_known() -> None:
    """Before the first update, and for replicas without a log, there is no alarm."""
    scene = Scene()
    for now in (0, 30, 60):
        assert scene.look(EMPTY, now, Replica("one", A)) == []
        assert scene.look(view_of(), now + 1, Replica("two", B, is_there=False)) == []


def test_a_look_does_nothing_before_its_time() -> None:
    """There are many replicas, and ticks are frequent."""
    scene = Scene()
    scene.look(view_of(), 0, Replica("one", A))
    scene.look(view_of(one=A), 4, Replica("one", A))
    assert scene.look(view_of(), 30, Replica("one", A)) == ["one"]


def test_the_log_names_a_few_of_many(caplog: pytest.LogCaptureFixture) -> None:
    """The log has one line, whatever the number of replicas is."""
    scene = Scene()
    replicas = [Replica(f"t{number:02}", A) for number in range(12)]
    with caplog.at_level(logging.ERROR):
        for now in (0, 30):
            scene.look(view_of(), now, *replicas)
    (line,) = caplog.messages
    assert "12 replicas" in line and "t09-0 and others" in line and "t10" not in line
    assert len(scene.alarms) == 12


def test_a_topic_that_is_removed_by_hand_while_nobody_runs_is_kept() -> None:
    """The store may be an old copy, so the replica stays, and the broker reports it."""
    with fast_directory() as root, Members(root, unknown_seconds=0.0) as members:
        members.create("orders", {0: [1, 2, 3]})
        members.create("other", {0: [1, 2, 3]})
        members.produce("orders", b"kept")
        members.produce("other", b"kept")
        for member in members.members.values():
            member.kill()
        members.delete("orders")
        for broker in (1, 2, 3):
            members.start(broker)
        wait_until(lambda: all(one.member.orphans.found for one in members.members.values()))
        for member in members.members.values():
            assert member.member.orphans.found == {("orders", 0)}
            replica = member.replica("orders")
            assert replica is not None and replica.log is not None
            assert [record.value for record in replica.log] == [b"kept"]
            assert member.member.metadata.view.topics.keys() == {"other"}
        assert members.admin.children(znodes.DELETIONS) == []
