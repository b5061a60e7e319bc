"""Slices of a log are lazy, have a length, and are read directly by data frames."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow
import pytest

from logstore import Log, LogConfig, LogStore, OffsetOutOfRangeError, Record, RecordBatch
from logstore.log.reader import ReadableLog

VALUES = [b"%d" % n for n in range(10)]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Return a log of ten records in three batches; the last has neither keys nor headers."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        log.extend(VALUES[:3], keys=[b"k", None, b"k"], timestamps=[5, 6, 7])
        log.extend(VALUES[3:9], timestamps=[8] * 6, headers=[(("name", b"h"),)] * 6)
        log.append(None, timestamp=9)
        yield log


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 10), (2, 8), (-3, None), (None, -8), (4, 4), (8, 2), (-99, 99)]
)
def test_a_slice_is_what_the_same_slice_of_a_list_is(
    log: Log, start: int | None, stop: int | None
) -> None:
    """Length, items, negative indexes and slices of slices are as in a list of all records."""
    records = list(log)
    part, expected = log[start:stop], records[start:stop]
    assert len(part) == len(expected)
    assert list(part) == expected
    assert list(part[1:-1]) == expected[1:-1]
    assert [part[n] for n in range(-len(expected), len(expected))] == expected * 2
    for outside in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError):
            part[outside]


def test_a_slice_has_no_steps(log: Log) -> None:
    """A step would have to read the records that it leaves out."""
    with pytest.raises(ValueError, match="step"):
        log[::2]
    with pytest.raises(ValueError, match="step"):
        log[:][::-1]


def test_a_slice_reads_when_it_is_looked_at(log: Log) -> None:
    """A slice is a range of offsets: later appends do not make it longer."""
    part = log[8:]
    log.append(b"later")
    assert [record.value for record in part] == [b"8", None]


def test_regression_polars_takes_the_capsule_and_not_the_records(log: Log) -> None:
    """A slice that was a Sequence became one row of Python objects after another."""
    frame = polars.DataFrame(log[:])
    assert frame.columns == ["offset", "timestamp", "key", "value", "headers"]
    assert frame["value"].to_list() == [*VALUES[:9], None]
    assert frame.schema["headers"] != polars.List(polars.Null)


def test_all_readers_of_the_capsule_see_the_same(log: Log) -> None:
    """pyarrow, pandas, Polars and DuckDB get the same offsets, times, keys and values."""
    part = log[1:]
    rows = [(r.offset, r.timestamp, r.key, r.value) for r in part]
    names = ["offset", "timestamp", "key", "value"]
    table = pyarrow.table(part).select(names)
    assert list(zip(*table.to_pydict().values(), strict=True)) == rows
    assert polars.DataFrame(part).select(names).rows() == rows
    assert duckdb.from_arrow(part).select(", ".join(f'"{n}"' for n in names)).fetchall() == rows
    frame = pandas.DataFrame.from_arrow(part)
    assert frame["value"].tolist() == [row[3] for row in rows]
    assert frame["offset"].tolist() == [row[0] for row in rows]


def test_an_empty_slice_is_an_empty_frame_with_the_same_columns(log: Log) -> None:
    """A caller needs no special case for an empty slice."""
    assert pyarrow.table(log[5:5]).schema == pyarrow.table(log[:]).schema
    assert polars.DataFrame(log[5:5]).height == 0


def test_arrow_goes_back_in(log: Log) -> None:
    """Arrow data from a slice can be appended, and is read back unchanged."""
    before = list(log[:9])
    offsets = log.append_arrow(log[:9].to_arrow().select(["value", "key", "timestamp"]))
    assert offsets == range(10, 19)
    again = [(r.timestamp, r.key, r.value) for r in log[10:19]]
    assert again == [(r.timestamp, r.key, r.value) for r in before]


def test_regression_a_slice_from_a_deleted_offset_raises(log: Log) -> None:
    """A fold that continues at an offset must not skip records that retention has deleted."""
    log.delete_records_before(4)
    for start in range(4):
        with pytest.raises(OffsetOutOfRangeError) as raised:
            log[start:]
        assert raised.value.offset == start
        assert str(raised.value) == (
            f"no record at {start} in orders-0: offsets are 4 to 9, the next is 10"
        )
    assert [record.offset for record in log[4:6]] == [4, 5]
    assert len(log[10:]) == 0


def test_regression_a_slice_from_behind_the_end_raises(log: Log) -> None:
    """After a crash, offsets are given again, so the caller has to look."""
    with pytest.raises(OffsetOutOfRangeError):
        log[11:]


def test_bounds_that_count_from_the_end_or_are_open_mean_as_much_as_there_is(log: Log) -> None:
    """`log[:n]`, `log[-n:]` and a stop after the end require no particular record."""
    log.delete_records_before(4)
    records = list(log)
    assert [record.offset for record in records] == [4, 5, 6, 7, 8, 9]
    assert list(log[:]) == list(log[-99:]) == list(log[:99]) == list(log[4:99]) == records
    assert list(log[:6]) == records[:2]
    assert list(log[-3:-1]) == records[-3:-1]
    assert list(log[:3]) == []


def ways_to_read(log: ReadableLog) -> dict[str, Iterator[Any]]:
    """Begin every kind of read at the present log start."""
    start = log.log_start_offset
    return {
        "iter": iter(log),
        "slice": iter(log[start:]),
        "open slice": iter(log[:]),
        "from the end": iter(log[-len(log) :]),
        "columns of a slice": log[:].read_batches(),
        "read_batches": log.read_batches(start),
        "committed": log.read_batches(start, isolation_level="read_committed"),
        "tail": log.tail(start, timeout=0),
        "tail from the start": log.tail("start", timeout=0),
    }


@pytest.mark.parametrize("taken", range(4))
@pytest.mark.parametrize("side", ["owner", "another reader"])
def test_what_retention_overtakes_raises_and_skips_nothing(
    tmp_path: Path, taken: int, side: str
) -> None:
    """Each reader returns all records up to the error, in order."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=LogConfig(segment_bytes=256))
        for number in range(40):
            log.append(b"%d" % number * 20)
        with LogStore.open(tmp_path, read_only=True) as view:
            reader = log if side == "owner" else view.log("orders", 0)
            ways = ways_to_read(reader)
            given: dict[str, list[int]] = {name: [] for name in ways}
            for name, way in ways.items():
                for _ in range(taken):
                    given[name] += offsets_of(next(way))
            log.delete_records_before(30)
            for name, way in ways.items():
                is_overtaken = False
                try:
                    for item in way:
                        given[name] += offsets_of(item)
                except OffsetOutOfRangeError as error:
                    assert error.offset == len(given[name])
                    is_overtaken = True
                assert given[name] == list(range(len(given[name]))), name
                # Another process may hold the deleted files open and read all of them to the end.
                assert is_overtaken or (side != "owner" and len(given[name]) == 40), name


def offsets_of(item: Record | RecordBatch) -> list[int]:
    """Return the offsets of a record or of a batch."""
    return [item.offset] if isinstance(item, Record) else item.offsets.tolist()
