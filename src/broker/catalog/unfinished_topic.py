"""Store which topics are being created or deleted, so that a start after a crash can finish them.

While a topic with several partitions is created or deleted, every log dir stores a note about it.
After a crash, the next start creates the missing partitions, or deletes the remaining partitions.
If the crash came before the first partition was created, the topic is not created. A log dir that
did not serve for a time may still store an old note. This note does no harm. By then, the topic is
complete or deleted. A new topic with the same name has another id.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from broker.catalog import dir_facts
from logstore import Log, LogStore, LogStoreError

LOG = logging.getLogger("broker")
CREATED, DELETED = "broker.topic_being_created", "broker.topic_being_deleted"


class UnfinishedTopic(NamedTuple):
    """A topic whose creation or deletion has begun."""

    name: str
    partitions: int
    id: bytes


class UnfinishedTopics:
    """Write and read a store's notes about unfinished topics.

    Threads: any thread may call any method. `_lock` guards the topics that are being changed, and
    is held while the notes are written. A log dir that hangs delays this write by two seconds at
    most.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._topics: dict[str, list[UnfinishedTopic]] = {CREATED: [], DELETED: []}

    @contextmanager
    def noting(self, fact: str, topic: UnfinishedTopic) -> Iterator[None]:
        """Keep a note while a topic is created (`CREATED`) or deleted (`DELETED`).

        If the creation or deletion fails, the note stays in the log dirs until the next change of
        the same kind. A topic with one partition needs no note.

        Raises:
            LogStoreError: no log dir keeps the note.
        """
        if topic.partitions == 1:
            yield
            return
        self._add(fact, topic)
        try:
            yield
        except BaseException:
            with self._lock:
                self._topics[fact].remove(topic)
            raise
        with self._lock:
            self._topics[fact].remove(topic)
            with suppress(LogStoreError):  # a log dir that does not serve keeps an old note
                self._write(fact)

    def _add(self, fact: str, topic: UnfinishedTopic) -> None:
        with self._lock:
            self._topics[fact].append(topic)
            try:
                self._write(fact)
            except BaseException:
                self._topics[fact].remove(topic)
                raise

    def _write(self, fact: str) -> None:
        rows = [[topic.name, topic.partitions, topic.id.hex()] for topic in self._topics[fact]]
        dir_facts.remember(self._store, fact, rows)

    def finish(self) -> None:
        """Finish the changes that a crash interrupted; if one fails, warn and keep the notes."""
        for fact, change in ((CREATED, _create_rest), (DELETED, _delete_rest)):
            topics = _noted(self._store, fact)
            try:
                for topic in topics:
                    change(self._store, topic)
            except LogStoreError as error:
                LOG.warning(
                    "a topic that a crash left unfinished cannot be finished now: %s", error
                )
                continue
            if topics:
                with self._lock, suppress(LogStoreError):
                    self._write(fact)


def _create_rest(store: LogStore, topic: UnfinishedTopic) -> None:
    logs = logs_of(store, topic)
    if logs:
        for number in sorted(set(range(topic.partitions)) - {log.partition for log in logs}):
            if (topic.name, number) not in store:
                store.create(topic.name, number, config=logs[0].config, topic_id=topic.id)


def _delete_rest(store: LogStore, topic: UnfinishedTopic) -> None:
    for log in logs_of(store, topic):
        store.delete(topic.name, log.partition)


def _noted(store: LogStore, fact: str) -> list[UnfinishedTopic]:
    """Read the notes of all log dirs; leave out rows that are not valid notes."""
    found = set()
    for rows in dir_facts.values(store, fact):
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, list) and [type(one) for one in row] == [str, int, str]:
                with suppress(ValueError):
                    found.add(UnfinishedTopic(row[0], row[1], bytes.fromhex(row[2])))
    return sorted(found)


def logs_of(store: LogStore, topic: UnfinishedTopic) -> list[Log]:
    """Return a topic's logs that serve; leave out logs of another topic with the same name."""
    logs = []
    for number in range(topic.partitions):
        with suppress(LogStoreError, ValueError):
            logs.append(store.log(topic.name, number))
    return [log for log in logs if log.topic_id == topic.id]
