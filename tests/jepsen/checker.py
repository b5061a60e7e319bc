"""Judge a history by what clients were promised; nothing here knows how the brokers work.

| anomaly | what was found |
|---|---|
| lost | a value was acknowledged, and the last read does not have it |
| vanished | a consumer read a value, and the last read does not have it |
| doubled | one reader found a value at two offsets |
| reordered | a later value of a producer is before an earlier one of the same partition |
| disagreeing | two readers, or a reader and an acknowledgement, know two values of an offset |
| backwards | the offsets of one reader do not rise |
| gap | the last read leaves out an offset |
| invented | a value was read that nobody sent to this partition |
| refused | a value was read although its producer never sent it out |
| diverged | a replica lacks a record of the last read, or has another one |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from jepsen.history import Event, Record

Values = Mapping[str, int]
READERS = ("poll", "read", "replica")


class Anomaly(NamedTuple):
    """A promise that was broken, and where."""

    kind: str
    partition: int
    text: str


class Sent(NamedTuple):
    """What is known of one value."""

    process: str
    number: int
    kind: str
    offset: int


def check(history: Iterable[Event]) -> list[Anomaly]:
    """Find all anomalies of a history."""
    events = list(history)
    partitions = {event.partition for event in events if event.partition >= 0}
    return [
        anomaly
        for partition in sorted(partitions)
        for anomaly in _of_partition(
            partition, [event for event in events if event.partition == partition]
        )
    ]


def lost_values(history: Iterable[Event], partition: int) -> list[str]:
    """List the acknowledged values that the last read does not have."""
    events = [event for event in history if event.partition == partition]
    found = {value for _, value in _last_read(events)}
    return [
        value for value, one in _sent(events).items() if one.kind == "ok" and value not in found
    ]


def _of_partition(partition: int, events: Sequence[Event]) -> Iterator[Anomaly]:
    sent, last = _sent(events), _last_read(events)
    readers = _readers(events)
    found = [
        *_missing(sent, last, readers),
        *_twice(readers),
        *_out_of_order(sent, readers),
        *_acknowledged_out_of_order(sent),
        *_disagreeing(sent, readers),
        *_backwards(readers),
        *_gaps(last),
        *_unsent(sent, readers),
        *_diverged(last, readers),
    ]
    for kind, text in found:
        yield Anomaly(kind, partition, text)


Found = Iterator[tuple[str, str]]
# The records that each reader found: by the name of the reader and what it did.
Readers = Mapping[tuple[str, str], list[Record]]


def _sent(events: Sequence[Event]) -> dict[str, Sent]:
    known: dict[str, Sent] = {}
    for event in events:
        if event.what == "send":
            number = int(event.value.rpartition(":")[2])
            known[event.value] = Sent(event.process, number, event.kind, event.offset)
    return known


def _last_read(events: Sequence[Event]) -> list[Record]:
    return [record for event in events if event.what == "read" for record in event.records]


def _readers(events: Sequence[Event]) -> Readers:
    readers: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for event in events:
        if event.what in READERS:
            readers[event.process, event.what].extend(event.records)
    return readers


def _missing(sent: Mapping[str, Sent], last: Sequence[Record], readers: Readers) -> Found:
    there = {value for _, value in last}
    for value, one in sent.items():
        if one.kind == "ok" and value not in there:
            yield "lost", f"{value} was acknowledged at offset {one.offset}"
    gone: dict[str, str] = {}
    for (name, what), records in readers.items():
        if what == "poll":
            gone.update(
                (value, f"{value} was read by {name} at offset {offset}")
                for offset, value in records
                if value not in there
            )
    for text in gone.values():
        yield "vanished", text


def _twice(readers: Readers) -> Found:
    for (name, what), records in readers.items():
        places: dict[str, int] = {}
        for offset, value in records:
            if places.setdefault(value, offset) != offset:
                yield "doubled", f"{value} is at {places[value]} and {offset} ({name}, {what})"


def _out_of_order(sent: Mapping[str, Sent], readers: Readers) -> Found:
    """Compare neighbours of one producer; a value that is there again counts as doubled only."""
    for (name, what), records in readers.items():
        latest: dict[str, int] = {}
        seen: set[str] = set()
        for offset, value in records:
            one = sent.get(value)
            if one is None or value in seen:
                continue
            seen.add(value)
            if latest.get(one.process, -1) > one.number:
                after = latest[one.process]
                yield "reordered", f"{value} at {offset} is after number {after} ({name}, {what})"
            latest[one.process] = max(latest.get(one.process, -1), one.number)


def _acknowledged_out_of_order(sent: Mapping[str, Sent]) -> Found:
    """Check that the offsets which one producer was given rise with its numbers."""
    latest: dict[str, tuple[int, str]] = {}
    for value, one in sorted(sent.items(), key=lambda pair: pair[1].number):
        if one.kind != "ok" or one.offset < 0:
            continue
        before, other = latest.get(one.process, (-1, ""))
        if one.offset <= before:
            yield "reordered", f"{value} got offset {one.offset}, and {other} before it {before}"
        latest[one.process] = (one.offset, value)


def _disagreeing(sent: Mapping[str, Sent], readers: Readers) -> Found:
    held: dict[int, tuple[str, str]] = {}
    claims = [
        (offset, value, f"{name}, {what}")
        for (name, what), records in readers.items()
        for offset, value in records
    ]
    claims += [
        (one.offset, value, "acknowledged")
        for value, one in sent.items()
        if one.kind == "ok" and one.offset >= 0
    ]
    for offset, value, whose in claims:
        first, its = held.setdefault(offset, (value, whose))
        if first != value:
            yield "disagreeing", f"offset {offset} is {first} ({its}) and {value} ({whose})"


def _backwards(readers: Readers) -> Found:
    for (name, what), records in readers.items():
        for (before, _), (after, value) in pairwise(records):
            if after <= before:
                yield "backwards", f"{value} at {after} was read after {before} ({name}, {what})"


def _gaps(last: Sequence[Record]) -> Found:
    following = 0
    for offset, value in last:
        if offset > following:
            yield "gap", f"the offsets {following} to {offset - 1}, before {value}, are missing"
        following = offset + 1


def _unsent(sent: Mapping[str, Sent], readers: Readers) -> Found:
    for (name, what), records in readers.items():
        for offset, value in records:
            if value not in sent:
                yield "invented", f"{value!r} at {offset} ({name}, {what})"
            elif sent[value].kind == "fail":
                yield "refused", f"{value} at {offset} ({name}, {what})"


def _diverged(last: Sequence[Record], readers: Readers) -> Found:
    for (name, what), records in readers.items():
        if what != "replica":
            continue
        held = dict(records)
        for offset, value in last:
            if held.get(offset) != value:
                yield "diverged", f"{name} has {held.get(offset)!r} at {offset}, not {value}"
