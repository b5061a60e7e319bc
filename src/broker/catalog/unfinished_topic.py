"""Remember which topic is being created or deleted, so that a crash leaves it whole or not at all.

The note is in every log dir while a topic with several partitions is created or deleted. The next
start does the rest: it creates the missing partitions, or deletes the remaining ones. If there is
no partition yet, the topic was not created at all. A note that a log dir kept because it was away
does no harm: the topic is whole, or it is gone, or it has another id.
"""

from __future__ import annotations

import logging
from contextlib import suppress
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


def remember(store: LogStore, fact: str, topic: UnfinishedTopic) -> None:
    """Note that a topic is being created (`CREATED`) or deleted (`DELETED`).

    Raises:
        LogStoreError: no log dir keeps the note.
    """
    dir_facts.remember(store, fact, [topic.name, topic.partitions, topic.id.hex()])


def forget(store: LogStore, fact: str) -> None:
    """Note that this is done; a log dir that does not serve keeps an old note."""
    with suppress(LogStoreError):
        dir_facts.remember(store, fact, [])


def finish(store: LogStore) -> None:
    """Do what a crash has left undone; what cannot be done now is logged, and left."""
    for fact, change in ((CREATED, _create_rest), (DELETED, _delete_rest)):
        notes = _noted(store, fact)
        try:
            for topic in notes:
                change(store, topic)
        except LogStoreError as error:
            LOG.warning("a topic was left unfinished by a crash, and still is: %s", error)
            continue
        if notes:
            forget(store, fact)


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
    """Read the notes of all log dirs; what is no note is left out."""
    found = set()
    for value in dir_facts.values(store, fact):
        if isinstance(value, list) and [type(one) for one in value] == [str, int, str]:
            with suppress(ValueError):
                found.add(UnfinishedTopic(value[0], value[1], bytes.fromhex(value[2])))
    return sorted(found)


def logs_of(store: LogStore, topic: UnfinishedTopic) -> list[Log]:
    """Return the partitions that exist and serve, without those of another topic of this name."""
    logs = []
    for number in range(topic.partitions):
        with suppress(LogStoreError, ValueError):
            logs.append(store.log(topic.name, number))
    return [log for log in logs if log.topic_id == topic.id]
