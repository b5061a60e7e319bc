"""Replicas of a topic that was compacted earlier are compared: compaction is no difference."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from cluster.tools import replica_reader
from logstore.format import layouts
from support.compacting import (
    DAY,
    NOW,
    TRANSACTIONAL,
    aborted_by,
    batch_of,
    clean,
    marker,
)
from support.comparing import Replica, Stored, all_of, batch, comparison, offsets

Row = tuple["bytes | None", "bytes | None", int]


def stored(batches: Sequence[bytes]) -> list[Stored]:
    """Give batches as a replica stores them."""
    found = []
    for data in batches:
        header = layouts.read_header(data, 0)
        found.append((header.base_offset, header.last_offset + 1, data))
    return found


def tens(count: int, *, keys: int = 10, seed: float | None = None) -> list[bytes]:
    """Give batches of ten records; the keys recur."""
    rng = random.Random(seed)
    batches = []
    for base in range(0, 10 * count, 10):
        numbers = [rng.randrange(keys) if seed is not None else n % keys for n in range(10)]
        rows: list[Row] = [
            (b"%d" % number, b"v%d" % (base + at), NOW + base + at)
            for at, number in enumerate(numbers)
        ]
        batches.append(batch_of("kafka", base, rows))
    return batches


def cleaned(batches: Sequence[bytes], count: int, *, now_ms: int = NOW) -> list[bytes]:
    """Compact the first batches of a log, as a run of compaction does at some time."""
    done = clean(batches[:count], now_ms=now_ms, is_aborted=aborted_by(batches))
    return [*done.batches, *batches[count:]]


def compared(*replicas: Sequence[bytes], mark: int) -> list[tuple[int, str]]:
    made = [Replica(*stored(one), mark=mark) for one in replicas]
    return offsets(all_of(comparison(*made)))


def test_regression_replicas_that_were_compacted_at_different_times_are_the_same() -> None:
    """One was compacted twice, one once, and one never."""
    log = tens(20)
    once, twice = cleaned(log, 12), cleaned(cleaned(log, 6), 9)
    assert once != twice and max(len(once), len(twice)) < len(log)
    for replicas in ((log, once), (log, twice), (once, twice), (log, once, twice), (once, once)):
        assert compared(*replicas, mark=200) == []


def test_a_batch_with_a_delete_horizon_is_the_same() -> None:
    """Only its header was changed, or its tombstones were removed later."""
    rows: list[Row] = [(b"%d" % n, None if n % 2 else b"v", NOW + n) for n in range(10)]
    log = [batch_of("kafka", 0, rows), *(one for one in tens(3)[1:])]
    first = cleaned(log, 1)
    assert first[0] != log[0]
    later = cleaned(first, 1, now_ms=NOW + 2 * DAY)
    assert compared(log, first, mark=30) == []
    assert compared(log, first, later, mark=30) == []


def test_transactions_and_records_without_keys() -> None:
    """Compaction removes what was aborted, and records without keys; a marker goes later."""
    rows: list[Row] = [(b"a", b"1", NOW), (b"b", b"2", NOW)]
    keyless: list[Row] = [(None, b"1", NOW), (b"c", b"2", NOW)]
    log = [
        batch_of("kafka", 0, rows),
        batch_of("kafka", 2, rows, producer=(7, 0, 0), attributes=TRANSACTIONAL),
        marker(4, 7, commit=False),
        batch_of("kafka", 5, keyless),
        batch_of("kafka", 7, [*rows, (b"c", b"3", NOW)]),
    ]
    first = cleaned(log, 5)
    later = cleaned(cleaned(first, 5), 5, now_ms=NOW + 2 * DAY)
    for replicas in ((log, first), (log, later), (first, later)):
        assert compared(*replicas, mark=10) == []
    assert compared(log, [*log[:1], *log[2:]], mark=10) == [(2, "different")], "not compacted"
    assert compared(log, [*log[:2], *log[3:]], mark=10) == [(4, "different")], "not compacted"
    assert compared(log, [*log[:3], *log[4:]], mark=10) == [(5, "different")], "not compacted"


def test_a_lost_batch_is_found_although_its_keys_come_again() -> None:
    """The replica has two records of a key before the lost batch, so it was not compacted."""
    log = tens(20)
    for lost in range(2, 20):
        short = [*log[:lost], *log[lost + 1 :]]
        assert compared(log, short, mark=200) == [(10 * lost, "different")]


def test_a_lost_batch_after_the_compacted_part_is_found() -> None:
    """Only the lost batch is reported, and not what compaction removed."""
    log = tens(30)
    short = cleaned(log, 10)
    for lost in (10, 15, 19):
        broken = [one for one in short if layouts.read_header(one, 0).base_offset != 10 * lost + 20]
        assert compared(log, broken, mark=300) == [(10 * lost + 20, "different")]
        assert compared(cleaned(log, 8), broken, mark=300) == [(10 * lost + 20, "different")]


def test_a_lost_record_in_the_compacted_part_is_found() -> None:
    """No later record has its key."""
    log = tens(20, keys=1000, seed=1)
    short = cleaned(log, 20)
    unique = next(n for n, one in enumerate(short) if layouts.read_header(one, 0).record_count)
    base = layouts.read_header(short[unique], 0).base_offset
    broken = [*short[:unique], *short[unique + 1 :]]
    assert compared(log, broken, mark=200) == [(base, "different")]


def test_a_changed_record_is_found_beside_compacted_batches() -> None:
    """It is reported at once, and once."""
    log = tens(20)
    changed = batch_of("kafka", 110, [(b"%d" % n, b"x", NOW) for n in range(10)])
    other = [*log[:11], changed, *log[12:]]
    assert compared(cleaned(log, 12), other, mark=200) == [(110, "different")]
    assert compared(cleaned(log, 9), other, mark=200) == [(110, "different")]


def test_other_borders_of_batches_are_a_difference() -> None:
    """Compaction never splits or joins batches."""
    parts = [batch(0, 4), batch(4, 6)]
    whole = [batch(0, 10)]
    assert offsets(all_of(comparison(Replica(*parts), Replica(*whole)))) == [(0, "different")]


def test_random_compactions_and_losses() -> None:
    """Compacted replicas are the same; a batch that one of them loses is found."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(60):
        count = rng.randint(4, 25)
        log = tens(count, keys=rng.choice((3, 12, 60)), seed=rng.random())
        replicas = []
        for _ in range(rng.randint(2, 3)):
            made, done = list(log), 0
            for _ in range(rng.randint(0, 3)):
                done = rng.randint(done, count - 1)
                keep = [one for one in made if layouts.read_header(one, 0).base_offset < 10 * done]
                if keep:
                    made = [*clean(keep).batches, *made[len(keep) :]]
            replicas.append(made)
        assert compared(*replicas, mark=10 * count) == []
        # No replica was compacted up to the last batch, and no later record has its keys.
        broken = replicas[0][:-1]
        found = compared(broken, *replicas[1:], mark=10 * count)
        assert found == [(10 * count - 10, "different")]


def test_very_many_keys_need_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a sample of the keys is kept; it still shows that a log was not compacted."""
    monkeypatch.setattr(replica_reader, "KEYS_MAX", 20)
    log = tens(60, keys=300, seed=2)
    short = [*log[:40], *log[41:]]
    assert compared(log, short, mark=600) == [(400, "different")]
