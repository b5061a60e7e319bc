"""A log rolls at its limits, flushes when a flush is due, and wakes waiting threads."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from logstore import Log, LogConfig, LogStore
from logstore.disk import files
from logstore.format.columnar import record_batch as columnar
from support.clock import Clock


def create(store: LogStore, **config: Any) -> Log:
    """Make an empty log."""
    return store.create("orders", 0, config=LogConfig(**config))


def bases(log: Log) -> list[int]:
    """Return the base offsets of the segments."""
    return [segment.base_offset for segment in log._state.segments]


def test_a_segment_takes_batches_up_to_its_size(store: LogStore) -> None:
    """A segment is filled to the byte; a batch that is larger than a segment has its own."""
    log = create(store, segment_bytes=3 * 96)
    for _ in range(7):
        log.append(b"x" * 8)
    assert bases(log) == [0, 3, 6]
    log.append(b"x" * 1000)
    log.append(b"x" * 8)
    assert bases(log) == [0, 3, 6, 7, 8]
    assert len(list(log)) == 9 and log.verify() == []


def test_a_segment_ends_when_it_is_old(store: LogStore, clock: Clock) -> None:
    """The segment ends at the next append, of any kind, or at the next check of its age."""
    log = create(store, segment_ms=1000)
    clock.ms += 5000
    log.append(b"x")  # its age begins with its first record
    clock.ms += 999
    assert not log.roll_if_due(clock.ms)
    log.append(b"x")
    clock.ms += 1
    log.append(b"x")
    clock.ms += 1000
    log.extend([b"x", b"x"])
    clock.ms += 1000
    assert log.roll_if_due(clock.ms)
    assert not log.roll_if_due(clock.ms)  # nothing stands in the new one
    assert bases(log) == [0, 2, 3, 5]


@pytest.mark.parametrize("way", ["append", "extend", "encoded"])
def test_regression_a_segment_ends_when_its_index_is_full(store: LogStore, way: str) -> None:
    """The size of the index was checked only if the segment was full, too."""
    log = create(store, index_interval_bytes=80, segment_index_bytes=80)
    batch = columnar.frame_one(0, 0, 5, b"x" * 50)
    for _ in range(25):
        if way == "append":
            log.append(b"x" * 50)
        elif way == "extend":
            log.extend([b"x" * 50])
        else:
            log.append_encoded(batch)
    assert bases(log) == [0, 10, 20]


def test_regression_a_segment_spans_no_more_offsets_than_its_index_can_say(
    tmp_path: Path, clock: Clock
) -> None:
    """Appends failed with OverflowError after 2**32 offsets in one segment."""
    with LogStore.open(tmp_path / "logs", clock=clock) as store:
        log = create(store, index_interval_bytes=80)
        for _ in range(5):
            log.append_encoded(columnar.hole(0, 2**31 - 1, 0))
        assert log.append(b"x") == 5 * (2**31 - 1)
        assert len(bases(log)) == 6
    with LogStore.open(tmp_path / "logs", clock=clock) as store:
        log = store.log("orders", 0)
        assert log[-1].value == b"x" and log.verify() == []
        assert [record.value for record in log] == [b"x"]


def test_regression_flush_messages_counts_records(store: LogStore) -> None:
    """A flush comes after this many unflushed records, and all records of a batch count."""
    log = create(store, flush_messages=3)
    points = []
    for _ in range(7):
        log.append(b"x")
        points.append(log.recovery_point)
    assert points == [0, 0, 3, 3, 3, 6, 6]
    log.extend([b"x"] * 5)
    assert log.recovery_point == 12


def test_flush_ms_flushes_when_it_is_due(store: LogStore, clock: Clock) -> None:
    """The time counts from the last flush; without unflushed records, nothing is done."""
    log = create(store, flush_ms=1000)
    clock.ms += 5000
    assert not log.flush_if_due(clock.ms)
    log.append(b"x")
    assert log.flush_if_due(clock.ms) and log.recovery_point == 1
    clock.ms += 999
    log.append(b"x")
    assert not log.flush_if_due(clock.ms)
    clock.ms += 1
    assert log.flush_if_due(clock.ms) and log.recovery_point == 2


def test_a_flush_syncs_what_is_new_and_no_more(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sealed segments are synced, then the active one; a second flush has no work."""
    log = create(store, segment_bytes=256)
    for _ in range(5):
        log.append(b"x" * 40)
    calls, sync = [], files.fdatasync

    def count(fd: int) -> None:
        calls.append(fd)
        sync(fd)

    monkeypatch.setattr(files, "fdatasync", count)
    assert log.flush() == 5 and len(calls) == 3
    assert log.flush() == 5 and len(calls) == 3
    log.append(b"x" * 40)
    assert log.flush() == 6 and len(calls) == 4


def test_a_tail_ends_when_nothing_comes(store: LogStore) -> None:
    """The tail begins at the start, at the end, or at an offset; a negative one is from the end."""
    log = create(store)
    log.extend([b"a", b"b", b"c"])
    for offset, expected in (("start", 3), ("end", 0), (1, 2), (-1, 1), (3, 0)):
        assert len(list(log.tail(offset, timeout=0))) == expected
    with pytest.raises(ValueError, match="neither"):
        log.tail("middle")
    with pytest.raises(LookupError):
        log.tail(4)


def test_a_tail_is_woken_by_each_append(store: LogStore) -> None:
    """Another thread appends, and the tail yields each record at once."""
    log = create(store)
    turn = threading.Semaphore(0)
    seen = []

    def append() -> None:
        log.append(b"0")
        for number in range(1, 5):
            assert turn.acquire(timeout=60)
            log.extend([b"%d" % number], durable=number % 2 == 0)

    thread = threading.Thread(target=append)
    thread.start()
    for record in log.tail("start", timeout=60):
        seen.append(record.value)
        turn.release()
        if len(seen) == 5:
            break
    thread.join(60)
    assert seen == [b"0", b"1", b"2", b"3", b"4"]
