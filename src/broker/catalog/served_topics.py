"""Define the access of the request handlers to the topics of a broker."""

from __future__ import annotations

from typing import Protocol

from broker.catalog.topics import Topic, Topics
from logstore import Log, LogConfig, LogStore


class ServedTopics(Protocol):
    """The topics of a broker without a cluster (`TopicCatalog`), or of a cluster."""

    @property
    def store(self) -> LogStore:
        """The store with the replicas of this broker."""

    @property
    def is_known(self) -> bool:
        """Whether this broker knows the topics.

        Until this broker knows the topics, no topic counts as missing.

        `is_known` never becomes false again. So a caller checks `is_known` before it looks for a
        topic.
        """

    def start(self) -> None:
        """Start the background work on topics."""

    def close(self) -> None:
        """End the background work."""

    def current(self) -> Topics:
        """Return all topics as they are now."""

    def get(self, name: str) -> Topic | None:
        """Find a topic by its name."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Find a topic's name by its id."""

    def id_of(self, name: str, partition: int) -> bytes:
        """Return the topic id of a partition; if it is not known now, return zeros."""

    def log(self, name: str, partition: int) -> Log:
        """Find the log of a partition that this broker serves to clients.

        Raises:
            LogStoreError: this broker does not serve the partition.
        """

    def create(self, name: str, partitions: int, config: LogConfig) -> Topic:
        """Create a topic that the broker itself needs.

        Raises:
            PartitionExistsError: the topic exists.
            LogStoreError: the topic cannot be created now.
        """
