"""A reader that has got records never continues with other records than those that followed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from logstore import (
    Log,
    LogConfig,
    LogStore,
    OffsetOutOfRangeError,
    Record,
    UnknownPartitionError,
)
from logstore.log.read.cut import Cut
from logstore.log.reader import ReadableLog

SMALL = LogConfig(segment_bytes=2048)
COUNT = 60


def batched(log: ReadableLog) -> Iterator[Record]:
    for batch in log.read_batches():
        yield from batch.records("t", 0)


def sliced(log: ReadableLog) -> Iterator[Record]:
    return iter(log[0:COUNT])


def backward(log: ReadableLog) -> Iterator[Record]:
    return reversed(log)


def fill(log: Log, name: str, count: int = COUNT) -> None:
    for number in range(count):
        log.append(b"%s %d" % (name.encode(), number) + b"." * 200)


@contextmanager
def half_read_and_cut(
    path: Path, read: Callable[[ReadableLog], Iterator[Record]], cut: int
) -> Iterator[tuple[Log, list[Record], Iterator[Record]]]:
    """Read half of a log, cut the log, and fill it again; give what was read, and the rest."""
    with LogStore.open(path, admin_socket=False) as store:
        log = store.create("t", 0, config=SMALL)
        fill(log, "old")
        records = read(log)
        found = [next(records) for _ in range(30)]
        log.truncate_to(cut)
        fill(log, "new")
        yield log, found, records


READS = [batched, iter, sliced]


def test_the_last_cut_is_found_from_any_earlier_cut() -> None:
    """A reader takes all cuts that it has missed at once."""
    first, second, third = Cut(3), Cut(2), Cut(1)
    first.later, second.later = second, third
    assert first.last is second.last is third.last is third


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("cut", [0, 10, 29])
def test_regression_new_records_do_not_follow_dropped_records(
    tmp_path: Path, read: Callable[[ReadableLog], Iterator[Record]], cut: int
) -> None:
    """Otherwise the reader would skip the new records before its position."""
    with (
        half_read_and_cut(tmp_path, read, cut) as (_, found, records),
        pytest.raises(OffsetOutOfRangeError, match="begin to read again"),
    ):
        found.extend(records)
    assert all(record.value and record.value[:3] == b"old" for record in found)


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("cut", [40, COUNT])
def test_a_cut_that_a_reader_has_not_reached_does_not_stop_it(
    tmp_path: Path, read: Callable[[ReadableLog], Iterator[Record]], cut: int
) -> None:
    """The reader gets what the log has."""
    with half_read_and_cut(tmp_path, read, cut) as (log, found, records):
        found += records
        assert [record.offset for record in found] == list(range(COUNT))
        assert [record.value for record in found] == [record.value for record in log[:COUNT]]


@pytest.mark.parametrize("read", [*READS, backward])
def test_regression_a_view_never_mixes_two_partitions_of_the_same_name(
    tmp_path: Path, read: Callable[[ReadableLog], Iterator[Record]]
) -> None:
    """The partition is deleted and created again while another process reads it."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        fill(store.create("t", 0, config=SMALL), "old", 2000)
        with LogStore.open(tmp_path, read_only=True) as view:
            records = read(view["t", 0])
            found = [next(records) for _ in range(30)]
            store.delete("t", 0)
            fill(store.create("t", 0, config=SMALL), "new", 2100)
            with suppress(OffsetOutOfRangeError, UnknownPartitionError):
                found.extend(records)
    assert all(record.value and record.value[:3] == b"old" for record in found)
