"""Test that a client's deletion waits for all in-sync replicas, and lasts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.wire.error_codes import ErrorCode
from cluster.disks.log_spans import start_of
from cluster.pure.exchange import (
    Acknowledge,
    Appended,
    Deleted,
    GaveUp,
    Lagged,
    ProduceError,
    Refuse,
    StartRose,
    Tick,
)
from cluster.pure.partition import handle
from cluster.pure.replica import Replica
from cluster.requests import FollowerFetch
from support.broker_questions import Asker
from support.cluster_brokers import ClusterBrokers
from support.cluster_questions import create, parts, silent
from support.kafka_client import KafkaClient, batch_of
from support.places import fast_directory
from support.replica_nodes import wait_until
from support.replicas import STATE, TOPIC, order, replica_of

LATE = Refuse("d", ProduceError.TIMED_OUT)


def deleting(start: int = 2, **changes: Any) -> Replica:
    """Return a leader of four replicated records, of which a client has deleted some."""
    replica = replica_of()
    handle(replica, order(state=STATE._replace(**changes)), 0)
    handle(replica, Appended(replica.log_life, ((4, 4),), "client", 4, 4), 0)
    fetch(replica, 2, 0)
    handle(replica, StartRose(start), 0)
    return replica


def fetch(replica: Replica, follower: int, log_start: int) -> list[Any]:
    """Let a follower with all records fetch; return the results of deletions."""
    request = FollowerFetch(TOPIC, 0, follower, 20, 4, 4, 4, log_start=log_start)
    return ended(handle(replica, request, 0))


def ended(effects: list[Any]) -> list[Any]:
    """Return the answers to the deletion."""
    return [one for one in effects if isinstance(one, Acknowledge | Refuse) and one.waiter == "d"]


def test_a_deletion_waits_for_the_isr() -> None:
    """Broker 3 is not in sync; broker 2 reports its log start."""
    replica = deleting()
    assert ended(handle(replica, Deleted("d"), 0)) == []
    assert fetch(replica, 3, 2) == []
    assert fetch(replica, 2, 1) == []
    assert fetch(replica, 2, 2) == [Acknowledge("d", 2)]
    assert fetch(replica, 2, 2) == []


def test_a_deletion_that_all_know_is_answered_at_once() -> None:
    """A second deletion of the same records is answered at once, too."""
    replica = deleting()
    fetch(replica, 2, 3)
    assert ended(handle(replica, Deleted("d"), 0)) == [Acknowledge("d", 2)]


def test_a_proposed_member_counts() -> None:
    """It may already be in the ISR, although the leader does not know this yet (P7)."""
    replica = deleting()
    fetch(replica, 3, 0)
    assert replica.proposed == {1, 2, 3}
    handle(replica, Deleted("d"), 0)
    assert fetch(replica, 2, 2) == []
    assert fetch(replica, 3, 2) == [Acknowledge("d", 2)]


def test_a_member_that_left_is_not_awaited() -> None:
    """The next tick after the new ISR sends the answer."""
    replica = deleting(min_isr=1)
    handle(replica, Deleted("d"), 0)
    handle(replica, Lagged(frozenset({2})), 0)
    assert ended(handle(replica, Tick(), 0)) == []
    handle(replica, order(8, state=STATE._replace(isr={1: 10}, min_isr=1)), 0)
    assert ended(handle(replica, Tick(), 0)) == [Acknowledge("d", 2)]


def test_a_deletion_ends_with_the_role() -> None:
    """The client must ask again, because the next leader may still have the records."""
    replica = deleting()
    handle(replica, Deleted("d"), 0)
    assert ended(handle(replica, order(8, state=STATE._replace(leader=2, leader_epoch=5)), 0)) == [
        LATE
    ]
    assert ended(handle(replica, Deleted("d"), 0)) == [Refuse("d", ProduceError.NOT_LEADER)]


def test_a_client_gives_up() -> None:
    """Later results do not reach the client. The number of waits is limited."""
    replica = deleting()
    handle(replica, Deleted("d"), 0)
    assert ended(handle(replica, GaveUp("d"), 0)) == [LATE]
    assert fetch(replica, 2, 2) == []
    replica.waiting_max = 1
    handle(replica, StartRose(3), 0)
    handle(replica, Deleted("other"), 0)
    assert ended(handle(replica, Deleted("d"), 0)) == [LATE]


def test_a_deletion_waits_for_its_offset_not_for_a_batch() -> None:
    """The start of the first batch differs if only some replicas are compacted."""
    replica = deleting()
    handle(replica, StartRose(0, 3), 0)
    assert ended(handle(replica, Deleted("d"), 0)) == []
    assert fetch(replica, 2, 2) == []
    assert fetch(replica, 2, 3) == [Acknowledge("d", 3)]


@pytest.fixture
def own() -> Iterator[ClusterBrokers]:
    """A cluster for one test, in which a silent follower stays in sync."""
    with (
        fast_directory() as root,
        ClusterBrokers(root, lag_seconds_max=30.0, default_replication_factor=3) as brokers,
    ):
        yield brokers


def test_the_next_leader_has_deleted_the_records(
    own: ClusterBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a member of the ISR is silent, the answer is REQUEST_TIMED_OUT (7)."""
    create(own, "old")
    leader, others = parts(own, "old")
    with KafkaClient(leader.servers) as client:
        ask = Asker(client, leader.id, [])
        for number in range(5):
            assert client.produce("old", batch_of(b"%d" % number)).error_code == 0
        assert ask.delete_records("old", 0, 2) == (ErrorCode.NONE, 2)
        assert {one.store["old", 0].log_start_offset for one in (leader, *others)} == {2}
        with silent(monkeypatch, "old", *others):
            assert ask.delete_records("old", 0, 3, timeout_ms=300) == (7, -1)
        assert ask.delete_records("old", 0, 4) == (ErrorCode.NONE, 4)
    leader.kill()
    following = own.leader("old", other_than=leader.id)
    assert following.store["old", 0].log_start_offset == 4
    with KafkaClient(following.servers) as client:
        ask = Asker(client, following.id, [])
        wait_until(lambda: ask.delete_records("old", 0, -1) == (ErrorCode.NONE, 5))
    with KafkaClient(next(one for one in others if one is not following).servers) as client:
        assert Asker(client, 0, []).delete_records("old", 0, 5)[0] == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER
        )


def test_regression_a_deletion_does_not_wait_for_the_compaction_of_followers(
    own: ClusterBrokers,
) -> None:
    """The leader's first batch began after its followers' first batches, so no answer came."""
    settings = {"cleanup_policy": "compact,delete", "segment_bytes": "4096", "retention_ms": "-1"}
    create(own, "both", 1, min_cleanable_dirty_ratio="1", **settings)
    leader, others = parts(own, "both")
    batch = batch_of(*[b"v" * 60] * 10, keys=[b"%d" % number for number in range(10)])
    with KafkaClient(leader.servers) as client:
        ask = Asker(client, leader.id, [])
        for _ in range(12):
            assert client.produce("both", batch).error_code == 0
        assert client.produce("both", batch_of(b"last", keys=[b"last"])).error_code == 0
        log = leader.store["both", 0]
        log.flush()
        log.compact()
        assert ask.delete_records("both", 0, 25, timeout_ms=5_000) == (ErrorCode.NONE, 25)
        assert {one.store["both", 0].log_start_offset for one in (leader, *others)} == {25}
        first = [start_of(one.store["both", 0]) for one in (leader, *others)]
        assert first == [25, 20, 20], "only the leader has compacted"
