"""Record what clients did and saw, as Jepsen does: each operation begins, and then ends or not.

A history is a list of events. Kinds of events:

    send     invoke: a producer sends a value          ok: it was acknowledged, at an offset
             fail: it was never sent                   info: nobody knows whether it was written
    poll     ok: a consumer read these records while the run lasted
    read     ok: a consumer read a whole partition after all faults had ended
    replica  ok: the log of one broker has these records, after the broker stopped
    fault    info: what was broken or mended

A value is `<process>:<number>`. The numbers of one producer rise within a partition. Each producer
has a process name of its own, also if it replaces another one.

Histories with transactions have further kinds of events, and name the topic of each partition: see
`transactions/kinds.py`.
"""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

Record = tuple[int, str]


class Event(NamedTuple):
    """One line of a history.

    Attributes:
        process: the producer, the consumer, or the broker of a replica.
        what: send, poll, read, replica or fault.
        kind: invoke, ok, fail or info.
        offset: of an acknowledged value; -1 if the client did not hear it.
        records: the offsets and values that were read.
        time: in seconds, from any beginning.
        topic: where the partition is, if there are several topics.
    """

    process: str
    what: str
    kind: str
    partition: int = -1
    value: str = ""
    offset: int = -1
    records: tuple[Record, ...] = ()
    time: float = 0.0
    topic: str = ""


class History:
    """Collects events. Threads: any thread may call any method."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._changing = threading.Lock()

    def add(
        self,
        process: str,
        what: str,
        kind: str,
        partition: int = -1,
        value: str = "",
        offset: int = -1,
        records: Iterable[Record] = (),
        topic: str = "",
    ) -> None:
        """Append an event that happens now."""
        now = time.monotonic()
        event = Event(process, what, kind, partition, value, offset, tuple(records), now, topic)
        with self._changing:
            self._events.append(event)

    @property
    def events(self) -> list[Event]:
        """All events until now."""
        with self._changing:
            return list(self._events)

    def faults(self) -> list[str]:
        """Tell what was broken and mended, in order."""
        return [f"{event.time:.2f} {event.value}" for event in self.events if event.what == "fault"]


def write(events: Iterable[Event], path: Path) -> None:
    """Write a history, a line an event."""
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


def read(path: Path) -> list[Event]:
    """Read what `write` wrote."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [of_line(line) for line in file]


def of_line(line: str) -> Event:
    """Make an event of a line; lines of old histories have no topic."""
    process, what, kind, partition, value, offset, records, when, *topic = json.loads(line)
    pairs = tuple((int(at), str(held)) for at, held in records)
    return Event(process, what, kind, partition, value, offset, pairs, when, *topic)
