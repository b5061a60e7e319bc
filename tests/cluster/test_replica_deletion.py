"""Test the deletion of a replica: once, late, repeated, and for other incarnations."""

from __future__ import annotations

import pytest

from cluster.pure.attest import DirFailed
from cluster.pure.exchange import CreateReplica, Opened, RemoveReplica, SendToController
from cluster.pure.partition import handle
from cluster.pure.replica import Replica
from cluster.registration import NO_TOPIC
from cluster.requests import StopAnswer, StopReplica
from support.replicas import NEWER, TOPIC, host_of, order, replica_of


@pytest.mark.parametrize(
    ("stop", "is_removed"),
    [
        (StopReplica(TOPIC, 0, 10, 8), True),
        (StopReplica(TOPIC, 0, 10, 7), False),
        (StopReplica(TOPIC, 0, 9, 8), False),
        (StopReplica(NEWER, 0, 10, 8), False),
    ],
)
def test_a_replica_is_deleted(stop: StopReplica, is_removed: bool) -> None:
    """Topic and incarnation must match, and the version must be later (P19)."""
    replica = replica_of()
    handle(replica, order(), 0)
    effects = handle(replica, stop, 0)
    answer = SendToController(StopAnswer(TOPIC, 0, 1, 8))
    assert effects == ([RemoveReplica(), answer] if is_removed else [])
    assert replica.exists is not is_removed
    handle(replica, order(8), 0)
    assert replica.exists is not is_removed or replica.log.end == 0


def test_regression_a_late_request_does_not_create_a_deleted_replica_again() -> None:
    """Only a later version than the deletion may assign the replica again (P19)."""
    replica = replica_of()
    handle(replica, order(7), 0)
    handle(replica, StopReplica(TOPIC, 0, 10, 9), 0)
    for version in (8, 9):
        assert handle(replica, order(version), 0) == []
    effects = handle(replica, order(10), 0)
    assert effects[0] == CreateReplica(TOPIC, "a", 10)


def test_regression_a_late_request_creates_nothing_where_nothing_was() -> None:
    """The StopReplica came first, and the replica had never been created (P19)."""
    replica = Replica(host_of(), 0)
    answer = [SendToController(StopAnswer(TOPIC, 0, 1, 9))]
    assert handle(replica, StopReplica(TOPIC, 0, 10, 9), 0) == answer
    assert handle(replica, order(9), 0) == []
    assert CreateReplica(TOPIC, "a", 10) in handle(replica, order(10), 0)


def test_a_deletion_is_answered_again() -> None:
    """The first answer may be lost, or the broker may have a newer topic's replica (P19)."""
    stop = StopReplica(TOPIC, 0, 10, 9)
    answer = [SendToController(StopAnswer(TOPIC, 0, 1, 9))]
    replica = replica_of()
    handle(replica, stop, 0)
    assert handle(replica, stop, 0) == answer
    assert handle(replica, stop._replace(broker_epoch=9), 0) == []
    handle(replica, order(1, topic=NEWER), 0)
    assert handle(replica, stop, 0) == answer


def test_a_deletion_is_not_answered_while_a_replica_may_be_left() -> None:
    """It may be on a bad log dir, without a topic id, or of another topic (P19)."""
    stop = StopReplica(TOPIC, 0, 10, 9)
    bad = Replica(host_of(), 0)
    bad.host.handle(DirFailed("b"), 0)
    assert handle(bad, stop, 0) == []
    nameless = Replica(host_of(), 0)
    handle(nameless, Opened("a", NO_TOPIC, exists=True), 0)
    assert handle(nameless, stop, 0) == []
    older = replica_of()
    assert handle(older, stop._replace(topic=NEWER), 0) == []
    assert older.exists


def test_a_deletion_of_a_newer_topic_is_remembered() -> None:
    """The older topic's replica was deleted; a late request creates no newer one (P19)."""
    replica = replica_of()
    handle(replica, StopReplica(TOPIC, 0, 10, 9), 0)
    answer = [SendToController(StopAnswer(NEWER, 0, 1, 3))]
    assert handle(replica, StopReplica(NEWER, 0, 10, 3), 0) == answer
    assert handle(replica, order(2, topic=NEWER), 0) == []
