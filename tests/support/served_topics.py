"""A broker over two log dirs, and what a client of it sees of a topic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker import Broker
from broker.wire import messages
from support.kafka_client import KafkaClient, batch_of
from support.serving import wait_until

Topic = messages.CreateTopicsRequest.CreatableTopic
Config = messages.CreateTopicsRequest.CreatableTopicConfig


class Served:
    """A broker over two log dirs, and a client of it."""

    def __init__(self, dirs: list[Path]) -> None:
        self.broker = Broker.start(dirs)
        self.store = self.broker.store
        self.client = KafkaClient(self.broker.bootstrap_servers)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.__exit__(None, None, None)
        self.broker.close()

    def topic(self, name: str = "t") -> Any:
        """Ask for the metadata of a topic."""
        asked = [messages.MetadataRequest.MetadataRequestTopic(name=name)]
        answer = self.client.call("Metadata", 12, topics=asked, allow_auto_topic_creation=False)
        return answer.topics[0]

    def leaders(self, name: str = "t") -> dict[int, int]:
        """Return the leader of each partition; -1 has the error 5."""
        rows = self.topic(name).partitions
        assert all(row.error_code == (5 if row.leader_id == -1 else 0) for row in rows)
        return {row.partition_index: row.leader_id for row in rows}

    def create(self, name: str = "t", partitions: int = 4) -> tuple[int, bytes]:
        """Ask for a topic with a setting of its own."""
        topic = Topic(name, partitions, 1, (), [Config("retention.ms", "123456789")])
        row = self.client.call("CreateTopics", topics=[topic], timeout_ms=1000).topics[0]
        return row.error_code, row.topic_id

    def delete(self, name: str = "t") -> int:
        """Ask for the deletion of a topic."""
        one = messages.DeleteTopicsRequest.DeleteTopicState(name)
        answer = self.client.call("DeleteTopics", topics=[one], timeout_ms=1000)
        return int(answer.responses[0].error_code)

    def retention(self, name: str = "t") -> str:
        """Ask for a setting of a topic."""
        one = messages.DescribeConfigsRequest.DescribeConfigsResource(2, name, ["retention.ms"])
        (result,) = self.client.call("DescribeConfigs", resources=[one]).results
        assert result.error_code == 0
        return str(result.configs[0].value)

    def fill(self, name: str = "t") -> None:
        """Write a record to each partition."""
        for number in self.leaders(name):
            row = self.client.produce(name, batch_of(b"%d" % number), number)
            assert row.error_code == 0

    def codes(self, name: str = "t") -> set[tuple[int, int]]:
        """Produce to and fetch from each partition, and return the errors."""
        return {
            (
                self.client.produce(name, batch_of(b"more"), number).error_code,
                self.client.fetch(name, 0, number).error_code,
            )
            for number in self.leaders(name)
        }

    def on(self, path: Path, name: str = "t") -> list[int]:
        """List the partitions of a topic whose replica is in a log dir."""
        return [key[1] for key in self.store if self.store.log(*key).log_dir == str(path)]


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    wait_until(lambda: bool(condition()), "the log dirs and the coordination store agree")
