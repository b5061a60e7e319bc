"""The checker finds every anomaly that is planted in a good history, and none in the good one."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from jepsen.checker import check, lost_values
from jepsen.history import Event, History, Record, read, write

PARTITIONS, WRITERS, NUMBERS, SEEDS = 2, 3, 24, 10
Planted = tuple[list[Event], str]


def good_history(seed: int) -> list[Event]:
    """Make a history as a cluster without faults gives it, but some answers are lost."""
    rng = random.Random(seed)
    history = History()
    logs: list[list[str]] = [[] for _ in range(PARTITIONS)]
    sent = [f"w{writer}:{number}" for number in range(NUMBERS) for writer in range(WRITERS)]
    for place, value in enumerate(sent):
        partition, process = place % PARTITIONS, value.partition(":")[0]
        history.add(process, "send", "invoke", partition, value)
        ending = rng.choice(["ok"] * 8 + ["written", "not written", "fail", "no offset"])
        if ending in ("ok", "written", "no offset"):
            logs[partition].append(value)
        offset = len(logs[partition]) - 1 if ending == "ok" else -1
        kind = {"ok": "ok", "no offset": "ok", "fail": "fail"}.get(ending, "info")
        history.add(process, "send", kind, partition, value, offset)
        if rng.random() < 0.1:
            poll(history, rng, logs)
    for partition, log in enumerate(logs):
        history.add("slow", "poll", "ok", partition, records=enumerate(log))
        history.add("last", "read", "ok", partition, records=enumerate(log))
        for broker in "123":
            history.add(f"b{broker}", "replica", "ok", partition, records=enumerate(log))
    return history.events


def poll(history: History, rng: random.Random, logs: list[list[str]]) -> None:
    """Let a new consumer read some records."""
    name, partition = f"r{rng.random()}", rng.randrange(PARTITIONS)
    records = list(enumerate(logs[partition]))
    start = rng.randint(0, len(records))
    middle, end = (rng.randint(start, len(records)) for _ in "ab")
    for part in (records[start:middle], records[middle : max(middle, end)]):
        history.add(name, "poll", "ok", partition, records=part)


def change(
    events: list[Event], what: str, alter: Callable[[list[Record]], list[Record]], process: str = ""
) -> list[Event]:
    """Alter what the first reader of a kind read in partition 0."""
    found = next(
        event
        for event in events
        if (event.what, event.partition) == (what, 0)
        and len(event.records) > 5
        and event.process.startswith(process)
    )
    altered = tuple(alter(list(found.records)))
    return [event._replace(records=altered) if event is found else event for event in events]


def an_acknowledged(events: list[Event]) -> Event:
    """Find an acknowledged value of partition 0 whose client heard its offset."""
    return next(event for event in events if event.partition == 0 and event.offset >= 0)


def lost(events: list[Event]) -> Planted:
    """Cut all logs before the last value that was acknowledged with an offset."""
    gone = [event for event in events if event.partition == 0 and event.offset >= 0][-1]
    altered = [
        event._replace(records=event.records[: gone.offset]) if event.partition == 0 else event
        for event in events
        if event.what != "poll"
    ]
    assert gone.value in lost_values(altered, 0)
    return altered, "lost"


def vanished(events: list[Event]) -> Planted:
    """Let a consumer see a value of an unknown outcome that is gone at the end."""
    end = max(len(event.records) for event in events if event.what == "read")
    sent = [Event("w8", "send", kind, 0, "w8:0") for kind in ("invoke", "info")]
    seen = Event("r9", "poll", "ok", 0, records=((end + 1, "w8:0"),))
    return [*events, *sent, seen], "vanished"


def doubled(events: list[Event]) -> Planted:
    """Append the last batch of a log once more, in all logs."""
    altered = []
    for event in events:
        records = event.records
        if event.what in ("read", "replica") and event.partition == 0:
            again = [(len(records) + place, value) for place, (_, value) in enumerate(records[-3:])]
            event = event._replace(records=(*records, *again))
        altered.append(event)
    return altered, "doubled"


def reordered(events: list[Event]) -> Planted:
    """Exchange two values of one producer whose outcomes are unknown to it."""
    pair = [
        event.value
        for event in events
        if (event.what, event.partition, event.process) == ("send", 0, "w0") and event.kind == "ok"
    ][:2]
    swap = {pair[0]: pair[1], pair[1]: pair[0]}
    altered = []
    for event in events:
        if event.what == "send" and event.value in swap and event.kind != "invoke":
            event = event._replace(offset=-1)
        held = tuple((offset, swap.get(value, value)) for offset, value in event.records)
        altered.append(event._replace(records=held))
    return altered, "reordered"


def acknowledged_in_another_order(events: list[Event]) -> Planted:
    """Give a producer the offset of its earlier value for a later one."""
    first = an_acknowledged(events)
    place = next(
        place
        for place, event in enumerate(events)
        if event.process == first.process and event.partition == 0 and event.offset > first.offset
    )  # fmt: skip
    altered = list(events)
    altered[place] = events[place]._replace(offset=first.offset)
    return altered, "reordered"


def two_readers_disagree(events: list[Event]) -> Planted:
    """Let a consumer read another value at an offset."""

    def alter(records: list[Record]) -> list[Record]:
        last = records[-1]
        return [*records[:2], (records[2][0], last[1]), *records[3:-1]]

    return change(events, "poll", alter), "disagreeing"


def an_acknowledgement_disagrees(events: list[Event]) -> Planted:
    """Acknowledge a value at the offset of another one."""
    first = an_acknowledged(events)
    return [
        event._replace(offset=first.offset + 1) if event is first else event for event in events
    ], "disagreeing"


def backwards(events: list[Event]) -> Planted:
    """Let a consumer read records twice."""
    return change(events, "poll", lambda records: [*records, records[0]]), "backwards"


def gap(events: list[Event]) -> Planted:
    """Leave out an offset."""
    return [
        event._replace(
            records=tuple((offset + (offset > 3), value) for offset, value in event.records),
            offset=event.offset + (event.offset > 3),
        )
        for event in events
    ], "gap"


def invented(events: list[Event]) -> Planted:
    """Let a consumer read what nobody sent."""
    return change(events, "poll", lambda records: [*records[:-1], (records[-1][0], "w7:1")]), (
        "invented"
    )


def of_another_partition(events: list[Event]) -> Planted:
    """Let a consumer read what was sent to another partition."""
    other = next(event.value for event in events if event.what == "send" and event.partition == 1)
    return change(events, "poll", lambda records: [*records, (10_000, other)]), "invented"


def refused(events: list[Event]) -> Planted:
    """Let a value be in the log that its producer never sent out."""
    sent = [Event("w8", "send", kind, 0, "w8:0") for kind in ("invoke", "fail")]
    altered = change(events, "read", lambda records: [*records, (len(records), "w8:0")])
    return [*altered, *sent], "refused"


def a_replica_lacks_a_record(events: list[Event]) -> Planted:
    """Cut the log of one broker."""
    return change(events, "replica", lambda records: records[:-1], "b2"), "diverged"


def a_replica_has_another_record(events: list[Event]) -> Planted:
    """Let the log of one broker have two records in another order."""

    def alter(records: list[Record]) -> list[Record]:
        (one, first), (other, second), *rest = records
        return [(one, second), (other, first), *rest]

    return change(events, "replica", alter, "b3"), "diverged"


PLANTED = [
    lost, vanished, doubled, reordered, acknowledged_in_another_order, two_readers_disagree,
    an_acknowledgement_disagrees, backwards, gap, invented, of_another_partition, refused,
    a_replica_lacks_a_record, a_replica_has_another_record,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_good_history(seed: int, tmp_path: Path) -> None:
    """Nothing is found, also after the history was written to a file."""
    events = good_history(seed)
    assert check(events) == []
    write(events, tmp_path / "history.jsonl.gz")
    assert read(tmp_path / "history.jsonl.gz") == events


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_each_anomaly_is_found(plant: Callable[[list[Event]], Planted]) -> None:
    """One anomaly, planted in many histories, is found in each, with its partition."""
    for seed in range(SEEDS):
        events, kind = plant(good_history(seed))
        found = {(one.kind, one.partition) for one in check(events)}
        assert (kind, 0) in found, f"seed {seed}: {found}"


def test_only_one_kind_is_found_where_only_one_is_planted() -> None:
    """A lost value, one that vanished, a doubled batch, and a gap are nothing else besides."""
    for plant in (lost, vanished, doubled, gap):
        for seed in range(SEEDS):
            events, kind = plant(good_history(seed))
            assert {one.kind for one in check(events)} == {kind}, f"seed {seed}"
