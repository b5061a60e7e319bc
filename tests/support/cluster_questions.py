"""Ask the brokers of a cluster over bare sockets, and let followers be silent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from broker.wire import messages as m
from broker.wire.error_codes import ErrorCode
from cluster.run.hosted_replica import HostedReplica
from support.cluster_brokers import ClusterBrokers, Running
from support.kafka_client import KafkaClient, batch_of
from support.replica_nodes import wait_until


def create(brokers: ClusterBrokers, name: str, partitions: int = 1, **settings: str) -> bytes:
    """Create a topic; all brokers know its leaders."""
    with brokers.client(1) as client:
        topic_id = client.create(name, partitions, **settings)
    for partition in range(partitions):
        brokers.leader(name, partition)
    return topic_id


def parts(brokers: ClusterBrokers, name: str) -> tuple[Running, list[Running]]:
    """Give the leader of a partition, and the other brokers."""
    leader = brokers.leader(name)
    return leader, [one for one in brokers.up() if one is not leader]


def replica_of(running: Running, name: str) -> HostedReplica:
    """Give the replica of a broker, as soon as the broker has it."""
    replicas = running.broker.member.replicas
    wait_until(lambda: replicas.at(name, 0) is not None)
    found = replicas.at(name, 0)
    assert found is not None
    return found


@contextmanager
def silent(monkeypatch: pytest.MonkeyPatch, name: str, *followers: Running) -> Iterator[None]:
    """Let followers fetch no more; they stay in sync until `replica.lag.time.max.ms` is over."""
    with monkeypatch.context() as patch:
        replicas = [replica_of(one, name) for one in followers]
        for one in replicas:
            patch.setattr(one, "next_fetch", lambda: None)
        yield
    for running, one in zip(followers, replicas, strict=True):
        running.broker.member.may_fetch(one)


def code(row: Any) -> ErrorCode:
    return ErrorCode(row.error_code)


def list_offsets(client: KafkaClient, name: str, timestamp: int = -1, **fields: Any) -> Any:
    """Ask for an offset; give the code and the offset."""
    request = m.ListOffsetsRequest
    epoch = fields.pop("epoch", -1)
    one = request.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=epoch, timestamp=timestamp
    )
    version = fields.pop("version", 10)
    topic = request.ListOffsetsTopic(name, [one])
    answer = client.call("ListOffsets", version, replica_id=-1, topics=[topic], **fields)
    (row,) = answer.topics[0].partitions
    return code(row), row.offset


def end_of_epoch(client: KafkaClient, name: str, asked: int, epoch: int = -1) -> Any:
    """Ask where an epoch ends; give the code, the epoch and the offset."""
    request = m.OffsetForLeaderEpochRequest
    one = request.OffsetForLeaderPartition(0, epoch, asked)
    topic = request.OffsetForLeaderTopic(name, [one])
    answer = client.call("OffsetForLeaderEpoch", replica_id=-1, topics=[topic])
    (row,) = answer.topics[0].partitions
    return code(row), row.leader_epoch, row.end_offset


def are_too_few(client: KafkaClient, name: str) -> bool:
    """Check that a leader has heard that its ISR is too small; before that, a produce waits."""
    row = client.produce(name, batch_of(b"x"), timeout_ms=200)
    return code(row) is ErrorCode.NOT_ENOUGH_REPLICAS
