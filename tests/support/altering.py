"""Change the settings and the number of partitions of a topic, and look what its logs have."""

from __future__ import annotations

from broker.catalog.topic_store import TopicStore
from broker.wire import messages
from logstore import LogStore, LogStoreError
from support.kafka_client import KafkaClient


def alter(client: KafkaClient, value: int, name: str = "t") -> int:
    """Ask for another retention; return the error."""
    kinds = messages.IncrementalAlterConfigsRequest
    setting = kinds.AlterableConfig("retention.ms", 0, str(value))
    resource = kinds.AlterConfigsResource(2, name, [setting])
    answer = client.call("IncrementalAlterConfigs", resources=[resource])
    return int(answer.responses[0].error_code)


def grow(client: KafkaClient, count: int, name: str = "t") -> int:
    """Ask for more partitions; return the error."""
    one = messages.CreatePartitionsRequest.CreatePartitionsTopic(name, count, None)
    answer = client.call("CreatePartitions", topics=[one], timeout_ms=30_000)
    return int(answer.results[0].error_code)


def retention_of(store: LogStore, name: str = "t") -> dict[int, int | None]:
    """Return the retention of each partition of a topic that serves."""
    found = {}
    for topic, number in store:
        if topic == name:
            try:
                found[number] = store.log(topic, number).config.retention_ms
            except LogStoreError:
                continue
    return found


def unfinished(store: LogStore) -> list[str]:
    """List the topics with settings that some logs may lack."""
    topics = TopicStore.of(store)
    found = list(topics.alterations)
    topics.release()
    return found
