"""Test that a broker without metadata from a controller never says that a topic does not exist."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from broker.requests import metadata
from broker.wire import messages as m
from broker.wire.error_codes import ErrorCode
from cluster.view import EMPTY, ClusterView
from support.cluster_brokers import ClusterBrokers, Running
from support.cluster_questions import code, create, end_of_epoch, list_offsets, parts
from support.kafka_client import KafkaClient, batch_of, fetch_fields, produce_fields
from support.places import fast_directory

Topic = m.MetadataRequest.MetadataRequestTopic
LONG_SECONDS = 30.0
MAY_RETRY = (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.fixture(scope="module")
def brokers() -> Iterator[ClusterBrokers]:
    """Three brokers with one topic."""
    with (
        fast_directory() as root,
        ClusterBrokers(root, lag_seconds_max=30.0, default_replication_factor=3) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def topic_id(brokers: ClusterBrokers) -> bytes:
    return create(brokers, "known")


@pytest.fixture
def known(brokers: ClusterBrokers, topic_id: bytes) -> ClusterView:
    """The metadata of a broker that has the topic."""
    return brokers.leader("known").broker.member.metadata.view


@pytest.fixture
def fresh(
    brokers: ClusterBrokers, known: ClusterView, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Running]:
    """A broker that leads nothing, as it is after a start until a controller sends metadata."""
    _, (other, _) = parts(brokers, "known")
    with monkeypatch.context() as patch:
        patch.setattr(other.broker.member.metadata, "view", EMPTY)
        yield other


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Metadata requests wait only for a moment."""
    monkeypatch.setattr(metadata, "UNKNOWING_SECONDS", 0.05)


@pytest.mark.usefixtures("soon")
def test_regression_metadata_has_no_brokers_and_no_missing_topic(
    fresh: Running, topic_id: bytes
) -> None:
    """A list is empty, and clients ignore it; a question about topics closes the connection."""
    with KafkaClient(fresh.servers) as client:
        for version, topics in ((0, []), (1, None), (12, None), (12, [])):
            listed = client.call("Metadata", version, topics=topics)
            assert not listed.topics and not listed.brokers
            assert listed.controller_id == -1
    for version, topic in ((1, Topic(name="known")), (12, Topic(topic_id, None))):
        with KafkaClient(fresh.servers) as client:
            client.send("Metadata", version, topics=[topic])
            assert client.is_closed_by_broker


def test_regression_metadata_waits_for_the_first_metadata(
    known: ClusterView, fresh: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the controller sends its metadata soon, the client does not notice the wait."""
    monkeypatch.setattr(metadata, "UNKNOWING_SECONDS", LONG_SECONDS)
    wakes: queue.Queue[Callable[[], None]] = queue.Queue()
    monkeypatch.setattr(metadata._Unknowing, "watch", lambda self, wake: wakes.put(wake))
    with KafkaClient(fresh.servers) as client:
        client.send("Metadata", 12, topics=[Topic(name="known")])
        wake = wakes.get(timeout=LONG_SECONDS)
        fresh.broker.member.metadata.view = known
        wake()
        _, answer = client.receive("Metadata", 12)
    assert [code(row) for row in answer.topics] == [ErrorCode.NONE]
    assert len(answer.brokers) == 3


def test_regression_librdkafka_outlives_brokers_without_metadata(
    brokers: ClusterBrokers, topic_id: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer that asks such brokers again and again still delivers afterwards."""
    servers = ",".join(one.servers for one in brokers.up())
    settings = {"bootstrap.servers": servers, "topic.metadata.refresh.interval.ms": 100}
    monkeypatch.setattr(metadata, "UNKNOWING_SECONDS", 0.05)
    asked = threading.Semaphore(0)
    look = metadata._Unknowing.look

    def counted(self: Any, *, is_last: bool) -> Any:
        if is_last:
            asked.release()
        return look(self, is_last=is_last)

    monkeypatch.setattr(metadata._Unknowing, "look", counted)
    producer, failed = Producer(settings), []

    def told(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer.produce("known", b"before", on_delivery=told)
    assert producer.flush(LONG_SECONDS) == 0
    with monkeypatch.context() as patch:
        for one in brokers.up():
            patch.setattr(one.broker.member.metadata, "view", EMPTY)
        for _ in range(5):
            assert asked.acquire(timeout=LONG_SECONDS)
            producer.poll(0)
    producer.produce("known", b"after", on_delivery=told)
    assert producer.flush(LONG_SECONDS) == 0
    assert not failed


def test_regression_descriptions_of_topics_can_be_asked_again(fresh: Running) -> None:
    """DescribeTopicPartitions has a retriable error for a named topic, and lists no topics."""
    request = m.DescribeTopicPartitionsRequest
    with KafkaClient(fresh.servers) as client:
        answer = client.call(
            "DescribeTopicPartitions", topics=[request.TopicRequest("known")],
            response_partition_limit=10, cursor=None,
        )  # fmt: skip
        assert [code(row) for row in answer.topics] == [ErrorCode.LEADER_NOT_AVAILABLE]


def test_regression_records_and_offsets_can_be_asked_for_again(
    fresh: Running, topic_id: bytes
) -> None:
    """Produce, Fetch, ListOffsets and OffsetForLeaderEpoch refuse as a broker that only follows."""
    with KafkaClient(fresh.servers) as client:
        for topic, version in (("known", 12), (topic_id, 13)):
            fields = produce_fields({(topic, 0): batch_of(b"x")})
            answer = client.call("Produce", version, **fields)
            assert code(answer.responses[0].partition_responses[0]) in MAY_RETRY
            answer = client.call("Fetch", version, **fetch_fields({(topic, 0): 0}))
            assert code(answer.responses[0].partitions[0]) in MAY_RETRY
        assert list_offsets(client, "known")[0] in MAY_RETRY
        assert end_of_epoch(client, "known", 0)[0] in MAY_RETRY


def test_coordinators_can_be_asked_for_again(fresh: Running) -> None:
    """FindCoordinator has the retriable error of Kafka, and no topic is created."""
    with KafkaClient(fresh.servers) as client:
        for kind in (0, 1):
            answer = client.call("FindCoordinator", 4, key_type=kind, coordinator_keys=["one"])
            (row,) = answer.coordinators
            assert code(row) is ErrorCode.COORDINATOR_NOT_AVAILABLE
