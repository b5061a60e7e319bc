"""The checker finds every anomaly of transactions that is planted in a good history."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from jepsen.history import Event, Record, read, write
from jepsen.plan import INPUTS, OUTPUTS
from jepsen.transactions.checker import check_transactions, is_transactional
from jepsen.transactions.histories import good_history
from jepsen.transactions.kinds import LAST, order_of, transaction_of
from jepsen.transactions.outcomes import ABORTED, COMMITTED, UNKNOWN, transactions_of

SEEDS = 10
EVERY_READ = ("poll", "take", "committed", "uncommitted")
Planted = tuple[list[Event], str]
Change = Callable[[list[Record]], list[Record]]


def change(
    events: list[Event],
    alter: Change,
    whats: Iterable[str],
    event: Event | None = None,
    process: str = "",
) -> list[Event]:
    """Alter what readers read, in the partition of an event or in all partitions."""
    return [
        one._replace(records=tuple(alter(list(one.records))))
        if one.what in whats
        and one.process.startswith(process)
        and (event is None or (one.topic, one.partition) == (event.topic, event.partition))
        else one
        for one in events
    ]


def without(value: str) -> Change:
    """Leave a record out."""
    return lambda records: [one for one in records if one[1] != value]


def plus(record: Record) -> Change:
    """Add a record where its offset belongs."""
    return lambda records: sorted({*records, record})


def chosen(events: list[Event], outcome: str, *, is_there: bool) -> Event:
    """Find a write of a transaction of several records, by what became of it.

    Args:
        is_there: whether it is committed in fact.
    """
    known = transactions_of(events)
    there = {value for one in events if one.what == "committed" for _, value in one.records}
    found = [
        one
        for one in events
        if (one.what, one.kind) == ("write", "ok")
        and known[transaction_of(one.value)].outcome == outcome
        and len(known[transaction_of(one.value)].records) > 1
        and (one.value in there) == is_there
        and one.topic != OUTPUTS
        and one.offset >= 0
    ]
    return random.Random(len(events)).choice(found)


def lost(events: list[Event]) -> Planted:
    """Let a committed record not be there at the end."""
    gone = chosen(events, COMMITTED, is_there=True)
    return change(events, without(gone.value), ("committed",)), "lost"


def lost_of_an_aborted_transaction(events: list[Event]) -> Planted:
    """Let an acknowledged record be in no log."""
    gone = chosen(events, ABORTED, is_there=False)
    return change(events, without(gone.value), EVERY_READ), "lost"


def torn(events: list[Event]) -> Planted:
    """Let one record of a transaction be missing whose commit nobody heard of."""
    gone = chosen(events, UNKNOWN, is_there=True)
    return change(events, without(gone.value), EVERY_READ), "torn"


def torn_the_other_way(events: list[Event]) -> Planted:
    """Let only one record of a transaction of unknown end be committed."""
    more = chosen(events, UNKNOWN, is_there=False)
    return change(events, plus((more.offset, more.value)), ("committed",), more), "torn"


def an_aborted_record_is_committed(events: list[Event]) -> Planted:
    """Let a record of an aborted transaction be committed in all replicas."""
    more = chosen(events, ABORTED, is_there=False)
    return change(events, plus((more.offset, more.value)), ("committed",), more), "aborted read"


def a_consumer_reads_an_aborted_record(events: list[Event]) -> Planted:
    """Let one session read a record of an aborted transaction."""
    more = chosen(events, ABORTED, is_there=False)
    alter = plus((more.offset, more.value))
    return change(events, alter, ("poll",), more, "slow"), "aborted read"


def a_transformer_reads_an_aborted_record(events: list[Event]) -> Planted:
    """Let a transformer take a record of an aborted transaction."""
    more = next(
        one
        for one in events
        if (one.what, one.topic) == ("write", INPUTS)
        and transactions_of(events)[transaction_of(one.value)].outcome == ABORTED
    )
    takes = [one for one in events if one.what == "take" and one.partition == more.partition]
    taken = takes[0]._replace(records=(*takes[0].records, (10_000, more.value)))
    return [taken if one is takes[0] else one for one in events], "aborted read"


def zombie(events: list[Event]) -> Planted:
    """Acknowledge the commit of a producer that was fenced before."""
    known = transactions_of(events)
    name = next(one.name for one in known.values() if one.is_fenced)
    return [
        one._replace(kind="ok") if (one.what, one.kind, one.value) == ("commit", "info", name)
        else one
        for one in events
    ], "zombie"  # fmt: skip


def vanished(events: list[Event]) -> Planted:
    """Let a consumer read a record of unknown end that is not committed."""
    more = chosen(events, UNKNOWN, is_there=False)
    alter = plus((more.offset, more.value))
    return change(events, alter, ("poll",), more, "slow"), "vanished"


def skipped(events: list[Event]) -> Planted:
    """Let a consumer pass over a record."""
    gone = next(one for one in events if one.process == "slow" and len(one.records) > 2)
    alter = without(gone.records[1][1])
    return change(events, alter, ("poll",), gone, "slow"), "skipped"


def doubled(events: list[Event]) -> Planted:
    """Let a record be in all logs twice."""
    one = chosen(events, COMMITTED, is_there=True)
    alter = plus((10_000, one.value))
    return change(events, alter, ("committed", "uncommitted"), one), "doubled"


def swap(records: list[Record], first: str, second: str) -> list[Record]:
    """Exchange two records."""
    names = {first: second, second: first}
    return [(offset, names.get(value, value)) for offset, value in records]


def reordered_among(events: list[Event], part: int) -> Planted:
    """Exchange two records of a transactional id that differ in a part of their order."""
    log = next(one for one in events if (one.process, one.what) == (LAST, "uncommitted")).records
    first, second = next(
        (one, other)
        for _, one in log
        for _, other in log
        if order_of(one)[0] == order_of(other)[0]
        and order_of(one)[1] < order_of(other)[1]
        and order_of(one)[1][:part] == order_of(other)[1][:part]
        and order_of(one)[1][part] != order_of(other)[1][part]
    )
    altered = change(events, lambda records: swap(records, first, second), EVERY_READ)
    return altered, "reordered"


def reordered_in_a_transaction(events: list[Event]) -> Planted:
    """Exchange two records of one transaction."""
    return reordered_among(events, 2)


def reordered_transactions(events: list[Event]) -> Planted:
    """Exchange records of two transactions of one producer."""
    return reordered_among(events, 1)


def a_fenced_producer_writes(events: list[Event]) -> Planted:
    """Let a record of a producer be after a record of its successor."""
    return reordered_among(events, 0)


def two_readers_disagree(events: list[Event]) -> Planted:
    """Let a consumer read another record at an offset."""
    one = next(one for one in events if one.process == "slow" and len(one.records) > 2)
    first, second = one.records[0][1], one.records[1][1]
    altered = change(events, lambda records: swap(records, first, second), ("poll",), one, "slow")
    return altered, "disagreeing"


def an_acknowledgement_disagrees(events: list[Event]) -> Planted:
    """Acknowledge a record at the offset of another one."""
    one = next(one for one in events if one.what == "uncommitted" and len(one.records) > 3)
    (offset, _), (_, value) = one.records[:2]
    return [
        it._replace(offset=offset) if (it.what, it.kind, it.value) == ("write", "ok", value)
        else it
        for it in events
    ], "disagreeing"  # fmt: skip


def backwards(events: list[Event]) -> Planted:
    """Let a consumer read a record twice."""
    alter: Change = lambda records: [*records, *records[:1]]  # noqa: E731
    return change(events, alter, ("poll",), None, "slow"), "backwards"


def invented(events: list[Event]) -> Planted:
    """Let a consumer read what nobody sent."""
    return change(events, plus((10_000, "w9.0:0:0")), ("poll",), None, "slow"), "invented"


def of_another_partition(events: list[Event]) -> Planted:
    """Let a consumer read what was sent to another partition."""
    one = chosen(events, COMMITTED, is_there=True)
    return [
        *events,
        Event("r", "poll", "ok", 0, records=((10_000, one.value),), topic=OUTPUTS),
    ], "invented"


def a_replica_lacks_a_record(events: list[Event]) -> Planted:
    """Cut the log of one broker."""
    return change(events, lambda records: records[:-1], ("uncommitted",), None, "b2"), "diverged"


def a_replica_shows_an_aborted_record(events: list[Event]) -> Planted:
    """Let one replica count an aborted record as committed."""
    more = chosen(events, ABORTED, is_there=False)
    alter = plus((more.offset, more.value))
    return change(events, alter, ("committed",), more, f"{LAST} in"), "diverged"


def hanging(events: list[Event]) -> Planted:
    """Let the last stable offset stay behind."""
    one = next(one for one in events if one.what == "end" and one.offset > 0)
    return [it._replace(offset=it.offset - 1) if it is one else it for it in events], "hanging"


def no_end_is_known(events: list[Event]) -> Planted:
    """Let no broker tell where a partition ends."""
    one = next(one for one in events if one.what == "end" and one.offset > 0)
    return [it._replace(offset=-1, value="-1") if it is one else it for it in events], "hanging"


def transformed_twice(events: list[Event]) -> Planted:
    """Commit two outputs of one input."""
    log = next(
        one for one in events
        if (one.process, one.what, one.topic) == (LAST, "committed", OUTPUTS) and one.records
    )  # fmt: skip
    _, value = log.records[0]
    again = f"t9.0:0:0|{value.split('|', 1)[1]}"
    sent = Event("t9.0", "write", "ok", log.partition, again, topic=OUTPUTS)
    return change([*events, sent], plus((10_000, again)), ("committed",), log), "transformed twice"


def not_transformed(events: list[Event]) -> Planted:
    """Let a committed output be missing, as if nobody had made it."""
    log = next(
        one for one in events
        if (one.process, one.what, one.topic) == (LAST, "committed", OUTPUTS) and one.records
    )  # fmt: skip
    gone = log.records[0][1]
    altered = change(events, without(gone), EVERY_READ)
    return [one for one in altered if one.value != gone], "not transformed"


def wrong_input(events: list[Event]) -> Planted:
    """Commit an output of an input that nobody committed."""
    made = "t9.0:0:0|0@10000|w0.0:0:0"
    sent = Event("t9.0", "write", "ok", 0, made, topic=OUTPUTS)
    there = Event(LAST, "committed", "ok", 0, records=((10_000, made),), topic=OUTPUTS)
    return [*events, sent, there], "wrong input"


def wrong_offsets(events: list[Event]) -> Planted:
    """Let the group forget its last commit."""
    one = next(one for one in events if one.what == "group" and one.offset > 0)
    return [
        it._replace(offset=it.offset - 1) if it is one else it for it in events
    ], "wrong offsets"


PLANTED = [
    lost, lost_of_an_aborted_transaction, torn, torn_the_other_way, an_aborted_record_is_committed,
    a_consumer_reads_an_aborted_record, a_transformer_reads_an_aborted_record, zombie, vanished,
    skipped, doubled, reordered_in_a_transaction, reordered_transactions, a_fenced_producer_writes,
    two_readers_disagree, an_acknowledgement_disagrees, backwards, invented, of_another_partition,
    a_replica_lacks_a_record, a_replica_shows_an_aborted_record, hanging, no_end_is_known,
    transformed_twice,
    not_transformed, wrong_input, wrong_offsets,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_good_history_with_transactions(seed: int, tmp_path: Path) -> None:
    """Nothing is found, also after the history was written to a file."""
    events = good_history(seed)
    assert check_transactions(events) == [] and is_transactional(events)
    assert {one.outcome for one in transactions_of(events).values()} == {
        COMMITTED, ABORTED, UNKNOWN,
    }  # fmt: skip
    write(events, tmp_path / "history.jsonl.gz")
    assert read(tmp_path / "history.jsonl.gz") == events


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_each_anomaly_of_transactions_is_found(plant: Callable[[list[Event]], Planted]) -> None:
    """One anomaly, planted in many histories, is found in each."""
    for seed in range(SEEDS):
        events, kind = plant(good_history(seed))
        found = {one.kind for one in check_transactions(events)}
        assert kind in found, f"seed {seed}: {found}"


def test_only_one_kind_of_anomaly_is_found_where_only_one_is_planted() -> None:
    """These anomalies are nothing else besides."""
    for plant in (skipped, hanging, wrong_offsets, a_replica_lacks_a_record):
        for seed in range(SEEDS):
            events, kind = plant(good_history(seed))
            assert {one.kind for one in check_transactions(events)} == {kind}, f"seed {seed}"
