"""Test that a request cannot make the broker describe the same thing many times."""

from __future__ import annotations

from typing import Any

import pytest

from broker import Broker
from broker.machines.repetitions import DESCRIBING, named_once
from broker.requests.dispatcher import HANDLERS
from broker.wire import messages as m
from support.kafka_client import API_KEYS, NEWEST, KafkaClient

TIMES = 300
Topic = m.MetadataRequest.MetadataRequestTopic
Resource = m.DescribeConfigsRequest.DescribeConfigsResource
Group = m.OffsetFetchRequest.OffsetFetchRequestGroup
Named = m.OffsetFetchRequest.OffsetFetchRequestTopics
Old = m.OffsetFetchRequest.OffsetFetchRequestTopic
Producers = m.DescribeProducersRequest.TopicRequest
OffsetsOf = m.ListOffsetsRequest.ListOffsetsTopic
OffsetOf = m.ListOffsetsRequest.ListOffsetsPartition
NO_ID = bytes(16)


def once(name: str, **fields: Any) -> Any:
    """Leave out the repetitions of a request."""
    return named_once(API_KEYS[name], getattr(m, f"{name}Request")(**fields))


@pytest.mark.parametrize(
    ("name", "version", "fields", "rows"),
    [
        ("Metadata", 1, {"topics": [Topic(name="repeated")]}, "topics"),
        ("Metadata", 13, {"topics": [Topic(name="repeated")]}, "topics"),
        ("DescribeConfigs", None, {"resources": [Resource(2, "repeated", None)]}, "results"),
        ("DescribeConfigs", None, {"resources": [Resource(4, "1", None)]}, "results"),
        ("DescribeGroups", None, {"groups": ["g"]}, "groups"),
        ("ConsumerGroupDescribe", None, {"group_ids": ["g"]}, "groups"),
        ("DescribeTransactions", None, {"transactional_ids": ["t"]}, "transaction_states"),
        ("DescribeProducers", None, {"topics": [Producers("repeated", [0])]}, "topics"),
        ("OffsetFetch", None, {"groups": [Group("g", topics=None)]}, "groups"),
        ("OffsetFetch", 7, {"group_id": "g", "topics": [Old("repeated", [0])]}, "topics"),
    ],
)
def test_regression_a_thing_is_described_once(
    client: KafkaClient, name: str, version: int | None, fields: dict[str, Any], rows: str
) -> None:
    """Before, 6 KB that named a large topic 2,000 times took 20 s and 200 MB of memory."""
    client.call("CreateTopics", topics=[m.CreateTopicsRequest.CreatableTopic("repeated", 3, -1)])
    repeated = {
        key: value * TIMES if isinstance(value, list) else value for key, value in fields.items()
    }
    single = getattr(client.call(name, version, **fields), rows)
    assert getattr(client.call(name, version, **repeated), rows) == single
    assert len(single) == 1


def test_the_first_mentions_keep_their_order() -> None:
    """Clients may expect the answers in the order of their request."""
    assert once("DescribeGroups", groups=["b", "a", "b", "c", "a"]).groups == ["b", "a", "c"]
    topics = [Topic(name="b"), Topic(NO_ID, None), Topic(name="b"), Topic(b"1" * 16, None)]
    assert once("Metadata", topics=topics).topics == [topics[0], topics[1], topics[3]]
    assert once("Metadata", topics=None).topics is None


def test_other_settings_of_the_same_resource_are_described() -> None:
    """The order of the settings is no difference."""
    rows = [Resource(2, "a", one) for one in (["x", "y"], ["y", "x"], None, ["x"], None)]
    rows.append(Resource(4, "a", None))
    found = once("DescribeConfigs", resources=rows).resources
    assert found == [rows[0], rows[2], rows[3], rows[5]]


def test_the_partitions_of_a_topic_are_joined() -> None:
    """A topic and its partitions are in the answer once."""
    found = once("DescribeProducers", topics=[Producers(*row) for row in PLACES]).topics
    assert found == [Producers("a", [1, 2, 3]), Producers("b", [1])]
    old = once("OffsetFetch", topics=[Old(*row) for row in PLACES]).topics
    assert old == [Old("a", [1, 2, 3]), Old("b", [1])]


def test_the_topics_of_a_group_are_joined() -> None:
    """If any mention of a group asks for all its topics, the answer has all of them."""
    groups = [
        Group("g", "m", 3, [Named("a", NO_ID, [1, 1])]),
        Group("h", None, -1, [Named("a", NO_ID, [1])]),
        Group("g", None, -1, [Named("b", NO_ID, [2]), Named("a", NO_ID, [2])]),
        Group("h", None, -1, None),
        Group("h", None, -1, [Named("c", NO_ID, [1])]),
    ]
    assert once("OffsetFetch", topics=None, groups=groups).groups == [
        Group("g", "m", 3, [Named("a", NO_ID, [1, 2]), Named("b", NO_ID, [2])]),
        Group("h", None, -1, None),
    ]


PLACES = [("a", [1, 2, 1]), ("b", [1, 1]), ("a", [3, 1])]


def test_only_announced_requests_are_changed() -> None:
    """Each API whose requests are changed has a handler."""
    assert set(HANDLERS) > DESCRIBING


def test_offsets_of_a_partition_that_is_named_twice(client: KafkaClient, broker: Broker) -> None:
    """As in Kafka, such a partition gets error 42, because each search may take long."""
    client.create("searched", 2)
    for version in range(1, NEWEST["ListOffsets"] + 1):
        rows = [OffsetOf(0, timestamp=-1), OffsetOf(1, timestamp=-1), OffsetOf(0, timestamp=5)]
        (topic,) = client.call(
            "ListOffsets", version, topics=[OffsetsOf("searched", rows)], replica_id=-1
        ).topics
        codes = [(one.partition_index, one.error_code) for one in topic.partitions]
        assert codes == [(0, 42), (1, 0), (0, 42)]
