"""Keep a list of all topics, so that requests find topics by name or by id.

The coordination store has the records of the topics (`topic_store`), and the log dirs have their
replicas. If the log dir of a topic does not work, or its disk is lost, the list still has the topic
with its id and its partitions. If a program creates a topic in the store, the list has this topic
before the coordination store has it. After a change of topics, or after a log dir returns, a new
list is made. Before such an event, all requests use the same list.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from broker.catalog import old_notes
from broker.catalog.admin.alterations import Alterations
from broker.catalog.reconciler import LOG_DIR_CHANGES, Reconciler
from broker.catalog.topic_store import TopicStore
from broker.catalog.topic_znodes import TopicRecord, record_of
from broker.coordination.errors import CoordinationError
from logstore import (
    Log,
    LogConfig,
    LogStore,
    LogStoreError,
    PartitionExistsError,
    ReplicaOfflineError,
    StoreEvent,
    StoreEventKind,
    UnknownPartitionError,
)
from logstore.names import validate_topic

LOG = logging.getLogger("broker")
NO_ID = bytes(16)
CHANGE_SECONDS = 1.0  # how long a thread waits for another change of the same topic
# A change of settings, and the addition of partitions, wait this long for another change.
# These changes may take longer than a second, and clients do not repeat them.
ALTER_SECONDS = 5.0
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
    """One topic: its name, its id, and its partition numbers in ascending order."""

    name: str
    id: bytes
    partitions: tuple[int, ...]

    @property
    def is_internal(self) -> bool:
        """Whether clients can read the topic, but not append to it."""
        return self.name in INTERNAL_TOPICS


class Topics(NamedTuple):
    """All topics at one moment. This object is never changed."""

    by_name: dict[str, Topic]
    by_id: dict[bytes, Topic]


class TopicCatalog:
    """The topics of a store.

    Threads: any thread may call any method. A change sets `_is_stale`. A reader clears `_is_stale`
    before it makes the list, so no change is missed. While a topic is created, extended or deleted,
    its name is in `_changing`. If a disk hangs during a change, only changes of the same topic
    wait. The reconciler has a separate listener, because it may wait for a disk.

    Attributes:
        documents: small documents in the same coordination store, for all brokers of the process.
    """

    def __init__(self, store: LogStore) -> None:
        """Open the coordination store.

        Raises:
            LogStoreError: a copy of the coordination store is damaged, or belongs to another store.
        """
        self.store = store
        self._topics = Topics({}, {})
        self._is_stale = True
        self._changing: set[str] = set()
        self._creating: set[str] = set()
        self._changed = threading.Condition()
        self._recorded = TopicStore.of(store)
        self.documents = self._recorded.documents
        self._reconciler = Reconciler(store, self._recorded, self._change)
        self._alterations = Alterations(store, self._recorded, self.log, self._change)
        store.add_listener(self._on_event)
        store.add_listener(self._reconcile)

    def close(self) -> None:
        """Stop listening to the store, and close the coordination store."""
        self.store.remove_listener(self._reconcile)
        self.store.remove_listener(self._on_event)
        self._recorded.release()

    def start(self) -> None:
        """Make the log dirs and the coordination store agree. Complete interrupted changes."""
        try:
            old_notes.take_over(self.store, self._recorded)
        except LogStoreError as error:
            LOG.warning("a topic that a crash left unfinished cannot be finished now: %s", error)
        self._reconciler.run(is_start=True)
        self._alterations.deliver_all()
        self._is_stale = True

    # --- reading ----------------------------------------------------------------------------------

    def current(self) -> Topics:
        """Return the topics as they are now."""
        if self._is_stale:
            self._is_stale = False
            self._topics = self._listed()
        return self._topics

    def get(self, name: str) -> Topic | None:
        """Find a topic by its name, even if the store has not reported a change yet."""
        topic = self.current().by_name.get(name)
        record = self._recorded.records.get(name)
        if record is not None and topic is not None:
            is_found = (name, topic.partitions[0]) in self.store
            return topic if is_found or not self._reconciler.is_gone(record) else None
        first = 0 if topic is None else topic.partitions[0]
        if ((name, first) in self.store) is (topic is None):
            self._is_stale = True
            topic = self.current().by_name.get(name)
        return topic

    @property
    def is_known(self) -> bool:
        """True, because the store has all topics."""
        return True

    def name_of(self, topic_id: bytes) -> str | None:
        """Find a topic's name by its id."""
        topic = self.current().by_id.get(topic_id)
        return None if topic is None else topic.name

    def id_of(self, name: str, partition: int) -> bytes:
        """Return the topic id of a partition; NO_ID while its log dir does not work."""
        try:
            return self.log(name, partition).topic_id
        except LogStoreError:
            return NO_ID

    def log(self, name: str, partition: int) -> Log:
        """Find the log of a partition.

        Raises:
            LogStoreError: there is no such partition, or no log dir that works has it.
        """
        try:
            log = self.store.log(name, partition)
        except ValueError as error:  # no partition can have this name or number
            raise UnknownPartitionError(topic=name, partition=partition) from error
        except UnknownPartitionError:
            record = self._recorded.records.get(name)
            if record is None or partition not in record.ids or self._reconciler.is_all():
                # all log dirs work, so the partition was just deleted, or will be created at once
                raise
            reason = "no log dir that serves has its replica"
            raise ReplicaOfflineError(topic=name, partition=partition, reason=reason) from None
        if self._reconciler.refused and (name, partition) in self._reconciler.refused:
            reason = f"the replica in {log.log_dir} belongs to another topic with this name"
            raise ReplicaOfflineError(topic=name, partition=partition, reason=reason)
        return log

    def config_of(self, topic: Topic) -> LogConfig:
        """Return the settings that apply to a topic.

        Raises:
            LogStoreError: no log of the topic is open, and the topic is not recorded.
        """
        return self._alterations.config_of(topic.name, topic.partitions)

    # --- changes ----------------------------------------------------------------------------------

    def create(self, name: str, partitions: int, config: LogConfig) -> Topic:
        """Create a topic. All its partitions have the same random id.

        Raises:
            PartitionExistsError: the topic exists.
            TopicLimitError: there would be too many topics, or partitions.
            LogStoreError: no log dir accepts the topic.
        """
        record = record_of(validate_topic(name), os.urandom(16), partitions, config)
        with self._change(name):
            self._reconciler.forget_gone(name)
            if self.get(name) is not None:
                raise PartitionExistsError(topic=name, partition=0)
            self._creating.add(name)
            try:
                self._recorded.put(record, unfinished_from=0)
                self._create(record)
            finally:
                self._creating.discard(name)
            self._finish(record)
        return Topic(name, record.id, tuple(record.ids))

    def _create(self, record: TopicRecord) -> None:
        """Create all partitions of a topic.

        If a partition cannot be created, delete the other partitions.
        """
        name, count = record.name, len(record.ids)
        try:
            # `is_new` permits the creation even while a log dir is OFFLINE.
            # The store knows the partitions in the OFFLINE log dir.
            # So if the topic exists in that log dir, the store refuses to create it.
            self.store.create_topic(
                name, count, config=record.config, is_new=True, topic_id=record.id
            )
        except LogStoreError:
            self._undo(record)
            raise

    def _undo(self, record: TopicRecord) -> None:
        """Delete the partitions of a topic, because the whole topic could not be created."""
        try:
            self._recorded.begin_deletion(record)
            self._reconciler.delete_replicas(record)
        except LogStoreError as error:
            LOG.warning(
                "topic %r could not be deleted again, so its creation is completed later: %s",
                record.name,
                error,
            )

    def _finish(self, record: TopicRecord) -> None:
        """Remove the mark of an unfinished creation; after an error, the next start removes it."""
        try:
            self._recorded.put(record)
        except LogStoreError as error:
            LOG.warning("topic %r is still recorded as unfinished: %s", record.name, error)

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Add partitions to a topic until it has `count`, with the present settings of the topic.

        Raises:
            LogStoreError: no log dir accepts a partition. Some partitions may have been added.
        """
        with self._change(topic.name, ALTER_SECONDS):
            old = self._record_now(topic)
            first = max(old.ids) + 1
            wanted = old._replace(
                ids={**old.ids, **dict.fromkeys(range(first, count), old.id)},
                config=self.config_of(topic),
            )
            self._recorded.put(wanted, unfinished_from=first)
            try:
                for number in range(first, count):
                    self.store.create(
                        old.name, number, config=wanted.config, topic_id=wanted.ids[number]
                    )
            except LogStoreError:
                kept = {key: one for key, one in wanted.ids.items() if key in old.ids}
                made = [key for key in range(first, count) if (old.name, key) in self.store]
                self._finish(wanted._replace(ids=kept | dict.fromkeys(made, old.id)))
                raise
            else:
                self._finish(wanted)
            finally:
                self._alterations.deliver_missed(topic.name)

    def delete(self, topic: Topic) -> None:
        """Delete a topic. If a log dir does not work, its replicas are deleted when it returns.

        Raises:
            LogStoreError: no log dir could record the deletion.
        """
        with self._change(topic.name):
            record = self._record_now(topic)
            self._recorded.begin_deletion(record)
            self._reconciler.delete_replicas(record)

    def _record_now(self, topic: Topic) -> TopicRecord:
        """Return the record of a topic. If the topic has no record yet, make one.

        Raises:
            UnknownPartitionError: another caller has deleted the topic.
            LogStoreError: the topic is not recorded, and none of its logs is open.
        """
        now = self.get(topic.name)
        if now is None or now.id != topic.id:
            raise UnknownPartitionError(topic=topic.name, partition=0)
        record = self._recorded.records.get(topic.name)
        record = record or self._reconciler.record(topic.name, topic.partitions)
        if record is None:
            self.log(topic.name, topic.partitions[0])  # this call raises an error with the reason
            raise UnknownPartitionError(topic=topic.name, partition=topic.partitions[0])
        return record

    def alter(self, topic: Topic, changes_of: Callable[[LogConfig], Mapping[str, object]]) -> None:
        """Change the settings of a topic. If a log dir does not work, its logs get them later.

        Args:
            changes_of: a function that gets the present settings and returns the new values, as
                `LogStore.set_config` takes them. No value is None.

        Raises:
            InvalidSettingError: a new value contradicts a setting of a log.
            LogStoreError: no log dir could record the new settings; nothing is changed.
        """
        with self._change(topic.name, ALTER_SECONDS):
            record = self._record_now(topic)
            if not record.ids.keys() >= set(topic.partitions):  # a program has added partitions
                record = self._reconciler.record(topic.name, topic.partitions) or record
            config = self.config_of(topic)
            changes = changes_of(config)
            if changes:
                self._alterations.alter(record, config, changes)

    @contextmanager
    def _change(self, name: str, seconds: float | None = None) -> Iterator[None]:
        """Let only one thread change a topic; raise LogStoreError if the wait takes too long.

        Args:
            seconds: how long to wait for another thread; None means `CHANGE_SECONDS`.
        """
        seconds = CHANGE_SECONDS if seconds is None else seconds
        with self._changed:
            if not self._changed.wait_for(lambda: name not in self._changing, seconds):
                raise LogStoreError(f"the topic {name!r} is still being changed; try again")
            self._changing.add(name)
        try:
            yield
        finally:
            self._is_stale = True
            with self._changed:
                self._changing.remove(name)
                self._changed.notify_all()

    # --- the list ---------------------------------------------------------------------------------

    def _listed(self) -> Topics:
        records = {
            name: record
            for name, record in list(self._recorded.records.items())
            if name not in self._creating
        }
        found: dict[str, list[int]] = {}
        for name, partition in self.store:
            record = records.get(name)
            is_recorded = record is not None and partition in record.ids
            if not is_recorded and not self._reconciler.is_hidden(name, partition):
                found.setdefault(name, []).append(partition)
        known = self._topics.by_name
        by_name: dict[str, Topic] = {}
        for name in sorted({*records, *found}):
            record, more = records.get(name), found.get(name, [])
            if record is not None:
                numbers = tuple(sorted([*record.ids, *more]) if more else record.ids)
                by_name[name] = Topic(name, record.id, numbers)
            else:
                before = known.get(name)
                topic_id = self._id_of(name, more) or (NO_ID if before is None else before.id)
                by_name[name] = Topic(name, topic_id, tuple(more))
        by_id = {topic.id: topic for topic in by_name.values() if topic.id != NO_ID}
        return Topics(by_name, by_id)

    def _id_of(self, name: str, partitions: list[int]) -> bytes | None:
        """Return the topic id of the first open log of the partitions; None if no log is open."""
        for partition in partitions:
            try:
                return self.store.log(name, partition).topic_id
            except LogStoreError:
                continue
        return None

    def _on_event(self, event: StoreEvent) -> None:
        if event.kind in CHANGES:
            self._is_stale = True

    def _reconcile(self, event: StoreEvent) -> None:
        self._reconciler.heard(event)
        self._is_stale = True
        if event.kind in LOG_DIR_CHANGES:
            self._alterations.deliver_all()
        if event.kind is StoreEventKind.LOG_DIR_RETURNED:
            try:
                self.documents.refresh()
            except CoordinationError as error:
                LOG.warning("shared documents are read when a log dir returns: %s", error)
