"""Slices of a log: lazy, sized, and taken by data frames as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow
import pytest

from logstore import Log, LogStore

VALUES = [b"%d" % n for n in range(10)]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Give a log of ten records in three batches; the last has neither keys nor headers."""
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
    """Length, items, negative indexes and slices of slices agree with a list of all records."""
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
    """A step would have to read what it leaves out."""
    with pytest.raises(ValueError, match="step"):
        log[::2]
    with pytest.raises(ValueError, match="step"):
        log[:][::-1]


def test_a_slice_reads_when_it_is_looked_at(log: Log) -> None:
    """It stands for offsets: appends behind it do not make it longer."""
    part = log[8:]
    log.append(b"later")
    assert [record.value for record in part] == [b"8", None]


def test_regression_polars_takes_the_capsule_and_not_the_records(log: Log) -> None:
    """A slice that was a Sequence came as one row of Python objects after the other."""
    frame = polars.DataFrame(log[:])
    assert frame.columns == ["offset", "timestamp", "key", "value", "headers"]
    assert frame["value"].to_list() == [*VALUES[:9], None]
    assert frame.schema["headers"] != polars.List(polars.Null)


def test_all_readers_of_the_capsule_see_the_same(log: Log) -> None:
    """pyarrow, pandas, Polars and DuckDB agree on offsets, times, keys and values."""
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
    """Nothing to read is no special case for who asked."""
    assert pyarrow.table(log[5:5]).schema == pyarrow.table(log[:]).schema
    assert polars.DataFrame(log[5:5]).height == 0


def test_arrow_goes_back_in(log: Log) -> None:
    """What came out as Arrow can be appended as Arrow, and reads the same."""
    before = list(log[:9])
    offsets = log.append_arrow(log[:9].to_arrow().select(["value", "key", "timestamp"]))
    assert offsets == range(10, 19)
    again = [(r.timestamp, r.key, r.value) for r in log[10:19]]
    assert again == [(r.timestamp, r.key, r.value) for r in before]
