"""Judge a history with transactions by what clients were promised.

| anomaly | what was found |
|---|---|
| lost | a transaction was committed, and the last read of committed records lacks one of its
records; or a record was acknowledged, and the last read of all records lacks it |
| torn | nobody knows how a transaction ended, and only some of its records are committed |
| aborted read | a reader of committed records read a record of an aborted transaction |
| zombie | a commit was acknowledged that a fenced producer had asked for |
| vanished | a reader of committed records read a record that is not committed at the end |
| skipped | a reader of committed records passed over a committed record |
| doubled | one reader found a record at two offsets |
| reordered | a later record of a transactional id is before an earlier one of the same partition |
| disagreeing | two readers, or a reader and an acknowledgement, know two records of an offset |
| backwards | the offsets of one reader do not rise |
| invented | a record was read that nobody sent to this partition |
| diverged | the last read from a replica differs from the last read from the leader |
| hanging | the last stable offset stays below the high watermark, or nobody knows both |

`transformed.py` judges the transformers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from jepsen.checker import Anomaly
from jepsen.history import Event, Record
from jepsen.transactions.kinds import (
    COMMITTED_READS,
    LAST,
    LAST_READS,
    order_of,
    transaction_of,
)
from jepsen.transactions.outcomes import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    Place,
    Transaction,
    place_of,
    transactions_of,
)
from jepsen.transactions.transformed import untrue_transformations

Found = Iterator[tuple[str, Place, str]]
Logs = dict[Place, list[Record]]
# The readers of one partition: who, in which way, and what.
Readers = dict[tuple[str, str], list[Record]]


def is_transactional(history: Iterable[Event]) -> bool:
    """Whether this module judges a history."""
    return any(event.what == "init" for event in history)


def check_transactions(history: Iterable[Event]) -> list[Anomaly]:
    """Find all anomalies of a history."""
    events = list(history)
    transactions = transactions_of(events)
    committed, everything = _last(events, "committed"), _last(events, "uncommitted")
    found = [
        *_ended_wrongly(transactions, committed),
        *_lost_records(transactions, everything),
        *untrue_transformations(events, transactions, committed),
        *_hanging(events),
    ]
    for place, readers in sorted(_readers(events).items()):
        sent = {
            value: written.offset
            for one in transactions.values()
            for value, written in one.records.items()
            if written.place == place
        }
        found += [
            (kind, place, text)
            for finder in (
                _uncommitted_reads(readers, transactions, committed[place]),
                _skipped(readers, committed[place]),
                _twice(readers), _out_of_order(readers, sent), _backwards(readers),
                _disagreeing(readers, sent), _unsent(readers, sent), _diverged(readers),
            )
            for kind, text in finder
        ]  # fmt: skip
    return [Anomaly(kind, place[1], f"{place[0]}: {text}") for kind, place, text in found]


def _last(events: Sequence[Event], what: str) -> Logs:
    logs: Logs = defaultdict(list)
    for event in events:
        if (event.process, event.what) == (LAST, what):
            logs[place_of(event)] += event.records
    return logs


def _readers(events: Sequence[Event]) -> dict[Place, Readers]:
    """Collect what each reader read; each take of a transformer is a reader of its own."""
    found: dict[Place, Readers] = defaultdict(lambda: defaultdict(list))
    for event in events:
        if event.what in ("poll", *LAST_READS):
            found[place_of(event)][event.process, event.what].extend(event.records)
        elif event.what == "take":
            found[place_of(event)][event.value, event.what].extend(event.records)
    return found


def _ended_wrongly(transactions: Mapping[str, Transaction], committed: Logs) -> Found:
    """Compare each transaction with the last read of committed records: all of it, or nothing."""
    there = {place: {value for _, value in log} for place, log in committed.items()}
    for one in transactions.values():
        missing = [
            (written.place, value)
            for value, written in one.records.items()
            if value not in there.get(written.place, ())
        ]
        if one.is_committed and one.is_fenced:
            place = next((it.place for it in one.records.values()), ("", -1))
            yield "zombie", place, f"{one.name} was committed by a producer that was fenced before"
        if one.outcome == COMMITTED:
            for place, value in missing:
                yield "lost", place, f"{value} is not committed, but its transaction was"
        elif one.outcome == UNKNOWN and 0 < len(missing) < len(one.records):
            place, value = missing[0]
            yield "torn", place, f"{one.name}: {value} and {len(missing) - 1} more are missing"


def _lost_records(transactions: Mapping[str, Transaction], everything: Logs) -> Found:
    there = {place: {value for _, value in log} for place, log in everything.items()}
    for one in transactions.values():
        for value, written in one.records.items():
            if written.is_acknowledged and value not in there.get(written.place, ()):
                yield "lost", written.place, f"{value} was acknowledged at {written.offset}"


def _hanging(events: Sequence[Event]) -> Found:
    for event in events:
        if event.what == "end" and not 0 <= int(event.value) == event.offset:
            text = f"the last stable offset is {event.offset}, the high watermark {event.value}"
            yield "hanging", place_of(event), text


def _uncommitted_reads(
    readers: Readers, transactions: Mapping[str, Transaction], committed: Sequence[Record]
) -> Iterator[tuple[str, str]]:
    there = {value for _, value in committed}
    for (name, what), records in readers.items():
        for offset, value in records if what in COMMITTED_READS else ():
            one = transactions.get(transaction_of(value))
            if one is not None and one.outcome == ABORTED:
                yield "aborted read", f"{value} at {offset} ({name}, {what})"
            elif value not in there:
                yield "vanished", f"{value} at {offset} ({name}, {what})"


def _skipped(readers: Readers, committed: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Compare what lies between two records of one reader with what is committed."""
    for (name, what), records in readers.items():
        if what not in ("poll", "take"):
            continue
        first = 0 if what == "poll" else min((offset for offset, _ in records), default=0)
        last = max((offset for offset, _ in records), default=-1)
        seen = {offset for offset, _ in records}
        for offset, value in committed:
            if first <= offset <= last and offset not in seen:
                yield "skipped", f"{value} at {offset} ({name}, {what})"


def _twice(readers: Readers) -> Iterator[tuple[str, str]]:
    for (name, what), records in readers.items():
        places: dict[str, int] = {}
        for offset, value in records:
            if places.setdefault(value, offset) != offset:
                yield "doubled", f"{value} is at {places[value]} and {offset} ({name}, {what})"


def _out_of_order(readers: Readers, sent: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Compare the records of one transactional id, also those of producers that were replaced."""
    for (name, what), records in readers.items():
        latest: dict[str, tuple[tuple[int, int, int], str]] = {}
        seen: set[str] = set()
        for offset, value in records:
            if value in seen or value not in sent:
                continue
            seen.add(value)
            whose, order = order_of(value)
            before = latest.get(whose)
            if before is not None and before[0] > order:
                yield "reordered", f"{value} at {offset} is after {before[1]} ({name}, {what})"
            latest[whose] = max(before or (order, value), (order, value))


def _backwards(readers: Readers) -> Iterator[tuple[str, str]]:
    for (name, what), records in readers.items():
        for (before, _), (after, value) in pairwise(records):
            if after <= before:
                yield "backwards", f"{value} at {after} was read after {before} ({name}, {what})"


def _disagreeing(readers: Readers, sent: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    claims = [
        (offset, value, f"{name}, {what}")
        for (name, what), records in readers.items()
        for offset, value in records
    ]
    claims += [(offset, value, "acknowledged") for value, offset in sent.items() if offset >= 0]
    held: dict[int, tuple[str, str]] = {}
    for offset, value, whose in claims:
        first, its = held.setdefault(offset, (value, whose))
        if first != value:
            yield "disagreeing", f"offset {offset} is {first} ({its}) and {value} ({whose})"


def _unsent(readers: Readers, sent: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for (name, what), records in readers.items():
        for offset, value in records:
            if value not in sent:
                yield "invented", f"{value!r} at {offset} ({name}, {what})"


def _diverged(readers: Readers) -> Iterator[tuple[str, str]]:
    for (name, what), records in readers.items():
        if what not in LAST_READS or name == LAST:
            continue
        last = readers[LAST, what]
        if records != last:
            differing = sorted(set(records) ^ set(last))[:3]
            yield "diverged", f"{name} and the leader differ in {what} records: {differing}"
