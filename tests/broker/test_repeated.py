"""A request that repeats a name gets one description; a long text of a client closes nothing."""

from __future__ import annotations

import pytest

from broker.wire import messages as m
from broker.wire.primitives import CUT_CHARACTERS_MAX
from support.kafka_client import KafkaClient

LONGEST = "x" * (2**15 - 1)  # the longest string that a request can have
SET, TOPIC = 0, 2
Topic = m.MetadataRequest.MetadataRequestTopic
Resource = m.DescribeConfigsRequest.DescribeConfigsResource
Producers = m.DescribeProducersRequest.TopicRequest


def test_metadata_describes_a_repeated_topic_once(client: KafkaClient) -> None:
    """The name counts. Without a name, the id counts, also if a request has both."""
    topic_id = client.create("repeated", 3)
    asked = [Topic(topic_id=number.to_bytes(16, "big"), name="repeated") for number in range(9)]
    asked += [Topic(topic_id=topic_id, name=None)] * 9 + [Topic(name="missing")] * 9
    answer = client.call("Metadata", 12, topics=asked, allow_auto_topic_creation=False)
    assert [row.name for row in answer.topics] == ["repeated", "repeated", "missing"]
    assert [len(row.partitions) for row in answer.topics] == [3, 3, 0]
    everything = client.call("Metadata", 12, topics=None)
    assert "repeated" in [row.name for row in everything.topics]


def test_settings_of_a_repeated_resource_are_described_once(client: KafkaClient) -> None:
    """As in Kafka, an empty list of keys means all keys."""
    client.create("described")
    asked = [Resource(TOPIC, "described", keys) for keys in (None, (), ["retention.ms"]) * 5]
    answer = client.call("DescribeConfigs", resources=asked)
    everything, one = answer.results
    assert len(everything.configs) > 20
    assert [row.name for row in one.configs] == ["retention.ms"]


def test_a_repeated_group_is_described_once(client: KafkaClient) -> None:
    """The same is true for transactional ids, and partitions with producers."""
    client.create("watched", 2)
    answer = client.call("DescribeGroups", groups=["g", "h", "g"])
    assert [row.group_id for row in answer.groups] == ["g", "h"]
    answer = client.call("ConsumerGroupDescribe", group_ids=["g", "h", "g"])
    assert [row.group_id for row in answer.groups] == ["g", "h"]
    answer = client.call("DescribeTransactions", transactional_ids=["a", "a"])
    assert [row.transactional_id for row in answer.transaction_states] == ["a"]
    asked = [Producers("watched", [0, 0, 1]), Producers("watched", [1, 2])]
    answer = client.call("DescribeProducers", topics=asked)
    shown = [[row.partition_index for row in topic.partitions] for topic in answer.topics]
    assert shown == [[0, 1, 2]]


@pytest.mark.parametrize("version", [2, 4, 5, 7])
@pytest.mark.parametrize("text", [LONGEST, "\x01" * len(LONGEST), "ü" * (len(LONGEST) // 2)])
def test_an_error_with_a_long_text_is_answered(
    client: KafkaClient, version: int, text: str
) -> None:
    """Otherwise the connection was closed, or the answer could not be read by clients."""
    request = m.CreateTopicsRequest
    setting = request.CreatableTopicConfig("retention.ms", text)
    topic = request.CreatableTopic("long", 1, 1, (), [setting])
    (row,) = client.call("CreateTopics", version, topics=[topic]).topics
    assert row.error_code == 40
    assert row.error_message.startswith("retention.ms=")
    assert len(row.error_message) == CUT_CHARACTERS_MAX + len("...")


@pytest.mark.parametrize("version", [0, 1])
def test_a_long_name_of_a_setting_is_answered(client: KafkaClient, version: int) -> None:
    """In the older version, the broker closed the connection."""
    client.create(f"named{version}")
    request = m.IncrementalAlterConfigsRequest
    change = request.AlterableConfig(LONGEST, SET, "1")
    resource = request.AlterConfigsResource(TOPIC, f"named{version}", [change])
    (row,) = client.call("IncrementalAlterConfigs", version, resources=[resource]).responses
    assert row.error_code == 40
    assert len(row.error_message) <= CUT_CHARACTERS_MAX + len("...")
