"""Move notes that earlier versions made about unfinished topics to the coordination store.

While an earlier version created or deleted a topic, every log dir stored a note about this topic,
under one of two names. After a crash, the next start finds the notes. A note may be old: meanwhile,
its topic may be complete, deleted, or created again with another id. So a note is used only if a
log dir has a replica with the topic id of the note.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from broker.catalog import dir_facts
from broker.catalog.topic_store import TopicStore
from broker.catalog.topic_znodes import record_of
from logstore import Log, LogStore, LogStoreError

CREATED, DELETED = "broker.topic_being_created", "broker.topic_being_deleted"


class Note(NamedTuple):
    """A topic whose creation or deletion had begun."""

    name: str
    partitions: int
    id: bytes


def take_over(store: LogStore, topics: TopicStore) -> None:
    """Copy the notes into the coordination store, and remove the notes.

    Raises:
        LogStoreError: no log dir could be written; the notes stay.
    """
    for fact in (CREATED, DELETED):
        notes = _notes(store, fact)
        for note in notes:
            logs = _logs_of(store, note)
            if not logs:
                continue
            record = record_of(note.name, note.id, note.partitions, logs[0].config)
            if fact == DELETED:
                topics.begin_deletion(record)
            elif note.name not in topics.records:
                topics.put(record, unfinished_from=0)
        if notes:
            dir_facts.remember(store, fact, [])


def _notes(store: LogStore, fact: str) -> list[Note]:
    """Read the notes of all log dirs; leave out rows that are not valid notes."""
    found = set()
    for rows in dir_facts.values(store, fact):
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, list) and [type(one) for one in row] == [str, int, str]:
                with suppress(ValueError):
                    found.add(Note(row[0], row[1], bytes.fromhex(row[2])))
    return sorted(found)


def _logs_of(store: LogStore, note: Note) -> list[Log]:
    """Return the open logs of a topic. Leave out another topic with the same name."""
    logs = []
    for number in range(note.partitions):
        with suppress(LogStoreError, ValueError):
            logs.append(store.log(note.name, number))
    return [log for log in logs if log.topic_id == note.id]
