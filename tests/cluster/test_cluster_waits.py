"""Test requests that wait in a cluster: for replicas, for records, and for a role's end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from broker.wire.error_codes import ErrorCode
from cluster.pure import exchange as x
from support.cluster_brokers import ClusterBrokers, Running
from support.cluster_questions import (
    are_too_few,
    code,
    create,
    list_offsets,
    parts,
    replica_of,
    silent,
)
from support.kafka_client import KafkaClient, batch_of, fetch_fields, produce_fields, values_in
from support.places import fast_directory
from support.replica_nodes import wait_until

LONG_MS = 15_000


@pytest.fixture(scope="module")
def shared() -> Iterator[ClusterBrokers]:
    """A cluster whose brokers stay alive, for several tests."""
    with fast_directory() as root, cluster(root) as brokers:
        yield brokers


@pytest.fixture
def own() -> Iterator[ClusterBrokers]:
    """A cluster for one test."""
    with fast_directory() as root, cluster(root) as brokers:
        yield brokers


def cluster(root: Any) -> ClusterBrokers:
    # A follower that is silent for a while stays in sync.
    return ClusterBrokers(root, lag_seconds_max=30.0, default_replication_factor=3)


def test_acks_all_waits_for_the_replicas(
    shared: ClusterBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait holds no thread, and no reader sees the records before all replicas have them."""
    create(shared, "waits")
    leader, others = parts(shared, "waits")
    with KafkaClient(leader.servers) as client, KafkaClient(leader.servers) as reader:
        with silent(monkeypatch, "waits", *others):
            row = client.produce("waits", batch_of(b"late"), timeout_ms=300)
            assert code(row) is ErrorCode.REQUEST_TIMED_OUT and row.base_offset == -1
            row = client.produce("waits", batch_of(b"early"), acks=1)
            assert (code(row), row.base_offset) == (ErrorCode.NONE, 1)
            fields = produce_fields({("waits", 0): batch_of(b"in time")}, timeout_ms=LONG_MS)
            client.send("Produce", 12, **fields)
            log = leader.store["waits", 0]
            wait_until(lambda: log.log_end_offset == 3)
            found = reader.fetch("waits", 0)
            assert (found.high_watermark, values_in(found.records)) == (0, [])
            assert list_offsets(reader, "waits") == (ErrorCode.NONE, 0)
            wait_until(lambda: client_threads(leader) == 0)
        _, answer = client.receive("Produce", 12)
        (row,) = answer.responses[0].partition_responses
        assert (code(row), row.base_offset) == (ErrorCode.NONE, 2)
        assert values_in(reader.fetch("waits", 0).records) == [b"late", b"early", b"in time"]


def client_threads(running: Running) -> int:
    """Count the threads that run clients' requests; a follower's Fetch only waits."""
    return running.broker.broker.running_count


def test_a_wait_of_a_produce_ends_with_the_role(
    own: ClusterBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error leaves open whether the batch was written, so later batches must wait."""
    create(own, "ends")
    leader, others = parts(own, "ends")
    first, second = (batch_of(b"x", producer=(9, 0, number)) for number in range(2))
    with KafkaClient(leader.servers) as client, silent(monkeypatch, "ends", *others):
        fields = produce_fields({("ends", 0): first}, timeout_ms=LONG_MS)
        client.send("Produce", 12, **fields)
        wait_until(lambda: leader.store["ends", 0].log_end_offset == 1)
        began = time.monotonic()
        replica_of(leader, "ends").tell(x.RoleEnded())
        _, answer = client.receive("Produce", 12)
        assert time.monotonic() - began < LONG_MS / 3000
        (row,) = answer.responses[0].partition_responses
        assert code(row) is ErrorCode.REQUEST_TIMED_OUT
        assert code(client.produce("ends", second)) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert code(client.produce("ends", first)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_wait_of_a_fetch_ends_with_the_role(own: ClusterBrokers) -> None:
    """The consumer looks for the next leader at once."""
    create(own, "ends")
    leader, _ = parts(own, "ends")
    with KafkaClient(leader.servers) as client:
        fields = fetch_fields({("ends", 0): 0}, max_wait_ms=LONG_MS)
        client.send("Fetch", 12, **fields)
        watches = leader.broker.leadership.watches
        wait_until(lambda: watches.count == 1)
        began = time.monotonic()
        replica_of(leader, "ends").tell(x.RoleEnded())
        _, answer = client.receive("Fetch", 12)
        assert time.monotonic() - began < LONG_MS / 3000
        assert code(answer.responses[0].partitions[0]) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        wait_until(lambda: watches.count == 0)


def test_a_new_leader_does_not_know_the_end_at_once(
    own: ClusterBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its high watermark may be too low, so it returns no end offset yet (KIP-207)."""
    create(own, "ends")
    leader, others = parts(own, "ends")
    order = own[1].broker.member.metadata.view.topics["ends"].partitions[0].replicas
    second, third = own[order[1]], own[order[2]]
    assert {second, third} == set(others)
    with silent(monkeypatch, "ends", third):
        with silent(monkeypatch, "ends", second), KafkaClient(leader.servers) as client:
            assert code(client.produce("ends", batch_of(b"x"), acks=1)) is ErrorCode.NONE
        wait_until(lambda: second.store["ends", 0].log_end_offset == 1)
        assert second.store["ends", 0].high_watermark == 0
        leader.kill()
        assert own.leader("ends", other_than=leader.id) is second
        with KafkaClient(second.servers) as client:
            assert list_offsets(client, "ends")[0] is ErrorCode.OFFSET_NOT_AVAILABLE
            assert list_offsets(client, "ends", version=4)[0] is ErrorCode.LEADER_NOT_AVAILABLE
            assert list_offsets(client, "ends", 5_000)[0] is ErrorCode.OFFSET_NOT_AVAILABLE
            assert list_offsets(client, "ends", -2) == (ErrorCode.NONE, 0)
    with KafkaClient(second.servers) as client:
        wait_until(lambda: list_offsets(client, "ends") == (ErrorCode.NONE, 1))


def test_too_few_replicas(own: ClusterBrokers) -> None:
    """With acks=all, nothing is written; acks=1 is accepted."""
    create(own, "few", min_insync_replicas="3")
    leader, (other, _) = parts(own, "few")
    other.kill()
    with KafkaClient(leader.servers) as client:
        wait_until(lambda: are_too_few(client, "few"))
        end = leader.store["few", 0].log_end_offset
        row = client.produce("few", batch_of(b"x"))
        assert code(row) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert leader.store["few", 0].log_end_offset == end
        assert code(client.produce("few", batch_of(b"x"), acks=1)) is ErrorCode.NONE


def test_regression_a_batch_after_a_refused_one_is_refused_alike(own: ClusterBrokers) -> None:
    """The producer sends both again, in order; a real gap still gets its own error."""
    create(own, "gaps", min_insync_replicas="3")
    leader, (other, _) = parts(own, "gaps")

    with KafkaClient(leader.servers) as client:

        def send(sequence: int, producer: int = 77) -> ErrorCode:
            batch = batch_of(b"x", producer=(producer, 0, sequence))
            return code(client.produce("gaps", batch))

        assert send(0) is ErrorCode.NONE
        other.kill()
        wait_until(lambda: are_too_few(client, "gaps"))
        assert send(1) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert send(0, 88) is ErrorCode.NOT_ENOUGH_REPLICAS  # the first of all of this producer
        own.start(other.id)
        wait_until(lambda: not are_too_few(client, "gaps"))
        assert send(2) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert send(0) is ErrorCode.NONE
        assert [send(3), send(1), send(2)] == [
            ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE, ErrorCode.NONE,
        ]  # fmt: skip
        assert send(4) is ErrorCode.NOT_ENOUGH_REPLICAS  # the batch before it was refused, too
        assert [send(3), send(4)] == [ErrorCode.NONE, ErrorCode.NONE]
        assert send(6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(1, 88) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert [send(0, 88), send(1, 88)] == [ErrorCode.NONE, ErrorCode.NONE]
