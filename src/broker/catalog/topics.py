"""Keep a list of all topics, in which requests find a topic by its name or by its id.

The store lists partitions, each with a topic id, but Kafka's clients ask for topics. The id of a
topic is the topic id of its first partition that serves. The list is made again after partitions
were created or deleted, or after a log dir returned. Until such a change, requests use the same
list of topics.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from broker.catalog.unfinished_topic import (
    CREATED,
    DELETED,
    UnfinishedTopic,
    UnfinishedTopics,
    logs_of,
)
from logstore import (
    Log,
    LogConfig,
    LogStore,
    LogStoreError,
    StoreEvent,
    StoreEventKind,
    UnknownPartitionError,
)

NO_ID = bytes(16)
CHANGE_SECONDS = 1.0  # how long a thread waits for another thread that changes the same topic
# Kafka stores the state of groups and transactions in the topics with these names.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
CHANGES = {
    StoreEventKind.REPLICA_CREATED,
    StoreEventKind.REPLICA_DELETED,
    StoreEventKind.LOG_DIR_ADDED,
    StoreEventKind.LOG_DIR_RETURNED,
    StoreEventKind.LOG_DIR_REMOVED,
}


class Topic(NamedTuple):
    """Hold one topic: its name, its id, and the numbers of its partitions in ascending order."""

    name: str
    id: bytes
    partitions: tuple[int, ...]

    @property
    def is_internal(self) -> bool:
        """Whether clients can read the topic, but not append to it."""
        return self.name in INTERNAL_TOPICS


class Topics(NamedTuple):
    """Hold all topics at one moment; the object is never changed."""

    by_name: dict[str, Topic]
    by_id: dict[bytes, Topic]


class TopicCatalog:
    """The topics of a store.

    Threads: any thread may call any method. A change sets `_is_stale`. A reader clears `_is_stale`
    before it makes the list, so the list misses no change. While a topic is created, extended or
    deleted, its name is in `_changing`. If a disk hangs during a change, only other changes of the
    same topic wait.
    """

    def __init__(self, store: LogStore) -> None:
        self.store = store
        self._topics = Topics({}, {})
        self._is_stale = True
        self._notes = UnfinishedTopics(store)
        self._changing: set[str] = set()
        self._changed = threading.Condition()
        store.add_listener(self._on_event)

    def close(self) -> None:
        """Stop listening to the store."""
        self.store.remove_listener(self._on_event)

    def current(self) -> Topics:
        """Return the topics as they are now."""
        if self._is_stale:
            self._is_stale = False
            self._topics = self._listed()
        return self._topics

    def get(self, name: str) -> Topic | None:
        """Find a topic by its name, even if the store has not reported a change yet."""
        topic = self.current().by_name.get(name)
        first = 0 if topic is None else topic.partitions[0]
        if ((name, first) in self.store) is (topic is None):
            self._is_stale = True
            topic = self.current().by_name.get(name)
        return topic

    def name_of(self, topic_id: bytes) -> str | None:
        """Find a topic's name by its id."""
        topic = self.current().by_id.get(topic_id)
        return None if topic is None else topic.name

    def log(self, name: str, partition: int) -> Log:
        """Find the log of a partition.

        Raises:
            LogStoreError: there is no such partition, or its log dir does not serve.
        """
        try:
            return self.store.log(name, partition)
        except ValueError as error:  # no partition can have this name or number
            raise UnknownPartitionError(topic=name, partition=partition) from error

    def create(self, name: str, partitions: int, config: LogConfig) -> Topic:
        """Create a topic; its partitions share a random id.

        Raises:
            PartitionExistsError: the topic exists.
            LogStoreError: no log dir takes the topic.
        """
        topic = UnfinishedTopic(name, partitions, os.urandom(16))
        with self._change(name), self._notes.noting(CREATED, topic):
            self._create(topic, config)
        return Topic(name, topic.id, tuple(range(partitions)))

    def _create(self, topic: UnfinishedTopic, config: LogConfig) -> None:
        """Create all partitions of a topic; if one cannot be created, delete the others."""
        name, partitions, topic_id = topic
        try:
            # `is_new` permits the creation also while a log dir is offline. The store has a record
            # of the partitions of that log dir, so it refuses a topic that exists there.
            self.store.create_topic(name, partitions, config=config, is_new=True, topic_id=topic_id)
        except LogStoreError:
            for log in logs_of(self.store, topic):
                self._delete(name, log.partition)
            raise

    def finish(self) -> None:
        """Finish the creations and deletions of topics that a crash has interrupted."""
        self._notes.finish()
        self._is_stale = True

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Add partitions to a topic until it has `count`; copy the settings of its first partition.

        Raises:
            LogStoreError: no log dir takes a partition; some partitions may have been added.
        """
        with self._change(topic.name):
            now = self.get(topic.name)
            if now is None or now.id != topic.id:  # another caller has deleted the topic
                raise UnknownPartitionError(topic=topic.name, partition=0)
            config = self.log(now.name, now.partitions[0]).config
            for number in range(now.partitions[-1] + 1, count):
                self.store.create(now.name, number, config=config, topic_id=now.id)

    def delete(self, topic: Topic) -> None:
        """Delete all partitions of a topic.

        Raises:
            LogStoreError: a partition could not be deleted; other partitions may be deleted.
        """
        note = UnfinishedTopic(topic.name, topic.partitions[-1] + 1, topic.id)
        with self._change(topic.name), self._notes.noting(DELETED, note):
            failure: LogStoreError | None = None
            for partition in topic.partitions:
                failure = self._delete(topic.name, partition) or failure
            if failure is not None:
                raise failure

    @contextmanager
    def _change(self, name: str) -> Iterator[None]:
        """Let only one thread change a topic; raise LogStoreError after `CHANGE_SECONDS`."""
        with self._changed:
            if not self._changed.wait_for(lambda: name not in self._changing, CHANGE_SECONDS):
                raise LogStoreError(f"the topic {name!r} is still being changed; try again")
            self._changing.add(name)
        try:
            yield
        finally:
            self._is_stale = True
            with self._changed:
                self._changing.remove(name)
                self._changed.notify_all()

    def _delete(self, name: str, partition: int) -> LogStoreError | None:
        try:
            self.store.delete(name, partition)
        except UnknownPartitionError:  # another caller was faster
            return None
        except LogStoreError as error:
            return error
        return None

    def _listed(self) -> Topics:
        numbers: dict[str, list[int]] = {}
        for name, partition in self.store:
            numbers.setdefault(name, []).append(partition)
        known = self._topics.by_name
        by_name: dict[str, Topic] = {}
        for name, partitions in numbers.items():
            before = known.get(name)
            topic_id = self._id_of(name, partitions) or (NO_ID if before is None else before.id)
            by_name[name] = Topic(name, topic_id, tuple(partitions))
        by_id = {topic.id: topic for topic in by_name.values() if topic.id != NO_ID}
        return Topics(by_name, by_id)

    def _id_of(self, name: str, partitions: list[int]) -> bytes | None:
        """Return the topic id of the first partition that serves, or None if none serves."""
        for partition in partitions:
            try:
                return self.store.log(name, partition).topic_id
            except LogStoreError:
                continue
        return None

    def _on_event(self, event: StoreEvent) -> None:
        if event.kind in CHANGES:
            self._is_stale = True
