"""Test that replicas of a topic that was compacted follow, whatever compaction has removed."""

from __future__ import annotations

import shutil
from typing import Any

from broker.wire import messages as m
from cluster.run.hosted_replica import HostedReplica
from support.bad_dirs import NAME, SECONDS, reassign
from support.cluster_brokers import ClusterBrokers
from support.kafka_client import KafkaClient, batch_of
from support.places import fast_directory
from support.replica_nodes import wait_until

KEYS, RECORDS = 3, 60


def log_of(brokers: ClusterBrokers, broker: int) -> Any:
    return brokers[broker].store.log(NAME, 0)


def create(client: KafkaClient, segment_bytes: int, *replicas: int, **more: str) -> None:
    """Create a compacted topic with its replicas on these brokers."""
    request = m.CreateTopicsRequest
    settings = {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes)}
    settings |= {key.replace("_", "."): text for key, text in more.items()}
    rows = [request.CreatableTopicConfig(key, text) for key, text in settings.items()]
    placed = [request.CreatableReplicaAssignment(0, list(replicas))]
    (row,) = client.call(
        "CreateTopics", topics=[request.CreatableTopic(NAME, -1, -1, placed, rows)]
    ).topics
    assert not row.error_code, row.error_message


def produce(client: KafkaClient, count: int, first: bytes = b"0") -> None:
    """Append batches of one record; only the first one may have a key of its own."""
    for number in range(count):
        key = b"%d" % (number % KEYS) if number else first
        sent = batch_of(b"%d" % number, keys=[key])
        assert not client.produce(NAME, sent).error_code


def stop_compacting(brokers: ClusterBrokers, client: KafkaClient) -> None:
    """Change the policy of the topic to "delete"; all its logs know it."""
    request = m.IncrementalAlterConfigsRequest
    change = request.AlterableConfig("cleanup.policy", 0, "delete")
    (row,) = client.call(
        "IncrementalAlterConfigs", resources=[request.AlterConfigsResource(2, NAME, [change])]
    ).responses
    assert not row.error_code, row.error_message
    wait_until(
        lambda: all(log_of(brokers, one).config.cleanup_policy == "delete" for one in (1, 2)),
        SECONDS,
    )


def test_regression_a_topic_that_was_compacted_gets_a_new_replica() -> None:
    """The new replica refused the first batch after a gap again and again, for ever."""
    with fast_directory() as root, ClusterBrokers(root, default_replication_factor=2) as brokers:
        with brokers.client(1) as client:
            create(client, 1000, 1, 2)
        leader = brokers.leader(NAME)
        with brokers.client(leader.id) as client:
            produce(client, RECORDS, first=b"first")
            compact(brokers, leader.id)
            offsets = [record.offset for record in log_of(brokers, leader.id)]
            assert offsets[0] == 0 and len(offsets) < RECORDS
            stop_compacting(brokers, client)
        reassign(brokers, {0: [1, 2, 3]})
        brokers.wait_in_sync(NAME, 1, 2, 3)
        assert [record.offset for record in log_of(brokers, 3)] == offsets
        replica = brokers[3].broker.member.replicas.at(NAME, 0)
        assert isinstance(replica, HostedReplica) and replica.log is not None


def test_regression_a_broker_starts_with_a_copy_whose_first_records_were_removed() -> None:
    """A new replica did not come into sync, and its broker could not be started any more."""
    with fast_directory() as root, ClusterBrokers(root, default_replication_factor=2) as brokers:
        with brokers.client(1) as client:
            create(client, 1000, 1, 2)
        leader = brokers.leader(NAME)
        with brokers.client(leader.id) as client:
            produce(client, RECORDS)
        compact(brokers, leader.id)
        first = next(iter(log_of(brokers, leader.id))).offset
        assert first > 0 == log_of(brokers, leader.id).log_start_offset
        reassign(brokers, {0: [1, 2, 3]})
        brokers.wait_in_sync(NAME, 1, 2, 3)
        for one in (3, leader.id):
            brokers[one].kill()
            brokers.start(one)
            brokers.wait_in_sync(NAME, 1, 2, 3)
        assert next(iter(log_of(brokers, 3))).offset == first
        assert log_of(brokers, 3).log_start_offset == 0


def change_leader(brokers: ClusterBrokers) -> None:
    """Let another broker lead, in a new leader epoch; then all brokers are in sync again."""
    up = [one.id for one in brokers.up()]
    before = brokers.leader(NAME)
    before.kill()
    brokers.leader(NAME, other_than=before.id)
    brokers.start(before.id)
    brokers.wait_in_sync(NAME, *up)


def test_regression_a_replica_returns_to_a_leader_that_lacks_its_last_epoch() -> None:
    """The replica stopped with an alarm, although the leader had all acknowledged records.

    Compaction removed all records of this epoch, and then the leader was copied.
    """
    with (
        fast_directory() as root,
        ClusterBrokers(root, default_replication_factor=3, min_insync_replicas=1) as brokers,
    ):
        with brokers.client(1) as client:
            create(client, 11_000, 1, 2, 3)
        for first in (b"first", b"0"):
            with brokers.client(brokers.leader(NAME).id) as client:
                produce(client, 30, first)
            brokers.wait_in_sync(NAME, 1, 2, 3)
            change_leader(brokers)
        away = next(one for one in brokers.up() if one is not brokers.leader(NAME))
        log = away.store.log(NAME, 0)
        wait_until(lambda: log.high_watermark == log.log_end_offset, SECONDS)
        last_epoch = log.leader_epochs[-1][0]
        away.stop()
        change_leader(brokers)
        source = brokers.leader(NAME)
        with brokers.client(source.id) as client:
            produce(client, 200)
        compact(brokers, source.id)
        (copy,) = [one.id for one in brokers.up() if one is not source]
        brokers[copy].kill()
        for path in brokers[copy].paths:
            shutil.rmtree(path)
        brokers.start(copy)
        brokers.wait_in_sync(NAME, source.id, copy)
        source.kill()
        brokers.leader(NAME, other_than=source.id)
        assert last_epoch not in dict(log_of(brokers, copy).leader_epochs)
        brokers.start(away.id)
        brokers.wait_in_sync(NAME, away.id, copy)
        assert brokers[away.id].broker.member.alarms == []
        latest = [{r.key: r.offset for r in log_of(brokers, one)} for one in (away.id, copy)]
        assert latest[0] == latest[1]


def test_regression_a_deleted_key_does_not_return_with_a_replica_that_was_away() -> None:
    """Compaction removed the tombstone before this replica had it, so its old record stayed."""
    with (
        fast_directory() as root,
        ClusterBrokers(root, default_replication_factor=3, min_insync_replicas=1) as brokers,
    ):
        with brokers.client(1) as client:
            create(client, 1000, 1, 2, 3, delete_retention_ms="0")
        leader = brokers.leader(NAME)
        away = next(one for one in brokers.up() if one is not leader)
        with brokers.client(leader.id) as client:
            produce(client, 10, first=b"deleted")
            brokers.wait_in_sync(NAME, 1, 2, 3)
            away.stop()
            brokers.wait_in_sync(NAME, *(one.id for one in brokers.up()))
            assert not client.produce(NAME, batch_of(None, keys=[b"deleted"])).error_code
            for _ in range(3):
                produce(client, 30)
                compact(brokers)
            assert latest(brokers, leader.id)[b"deleted"] is None
            brokers.start(away.id)
            brokers.wait_in_sync(NAME, 1, 2, 3)
            assert latest(brokers, away.id)[b"deleted"] is None
            for _ in range(3):
                produce(client, 30)
                wait_until(lambda: len(ends(brokers)) == 1, SECONDS)
                compact(brokers)
        assert all(b"deleted" not in latest(brokers, one.id) for one in brokers.up())


def compact(brokers: ClusterBrokers, *ids: int) -> None:
    """Compact the replicas of these brokers, or of all brokers."""
    for one in ids or [running.id for running in brokers.up()]:
        log_of(brokers, one).flush()
        log_of(brokers, one).compact()


def ends(brokers: ClusterBrokers) -> set[int]:
    """Return the log ends and the high watermarks of all replicas."""
    logs = [log_of(brokers, one.id) for one in brokers.up()]
    return {end for log in logs for end in (log.log_end_offset, log.high_watermark)}


def latest(brokers: ClusterBrokers, broker: int) -> dict[bytes | None, bytes | None]:
    """Return the latest value of each key in a replica."""
    return {record.key: record.value for record in log_of(brokers, broker)}
