"""Remember which topic is being created, so that a crash leaves none with too few partitions.

The fact is in every log dir while a topic with several partitions is created. At the next start the
missing partitions are created. If none was, the topic was not created at all. A fact that a log dir
kept because it was away does no harm: the topic is whole, or it is gone, or it has another id.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from broker.catalog import dir_facts
from logstore import Log, LogStore, LogStoreError

FACT = "broker.topic_being_created"


class UnfinishedTopic(NamedTuple):
    """A topic whose creation has begun."""

    name: str
    partitions: int
    id: bytes


def remember(store: LogStore, topic: UnfinishedTopic) -> None:
    """Note that a topic is being created.

    Raises:
        LogStoreError: no log dir keeps the note.
    """
    dir_facts.remember(store, FACT, [topic.name, topic.partitions, topic.id.hex()])


def forget(store: LogStore) -> None:
    """Note that no topic is being created; a log dir that does not serve keeps an old note."""
    with suppress(LogStoreError):
        dir_facts.remember(store, FACT, [])


def complete(store: LogStore) -> None:
    """Create the partitions that a crash has left out.

    Raises:
        LogStoreError: a partition could not be created.
    """
    for topic in _noted(store):
        logs = logs_of(store, topic)
        if logs:
            present = {log.partition for log in logs}
            for number in sorted(set(range(topic.partitions)) - present):
                if (topic.name, number) not in store:
                    store.create(topic.name, number, config=logs[0].config, topic_id=topic.id)
    forget(store)


def _noted(store: LogStore) -> list[UnfinishedTopic]:
    """Read the notes of all log dirs; what is no note is left out."""
    found = set()
    for value in dir_facts.values(store, FACT):
        if isinstance(value, list) and [type(one) for one in value] == [str, int, str]:
            with suppress(ValueError):
                found.add(UnfinishedTopic(value[0], value[1], bytes.fromhex(value[2])))
    return sorted(found)


def logs_of(store: LogStore, topic: UnfinishedTopic) -> list[Log]:
    """Return the partitions that exist and serve, without those of another topic of this name."""
    logs = []
    for number in range(topic.partitions):
        with suppress(LogStoreError):
            logs.append(store.log(topic.name, number))
    return [log for log in logs if log.topic_id == topic.id]
