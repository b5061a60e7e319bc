"""A stream's planning while the store changes under it; no Spark is started for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from logstore import LogStore, LogStoreError, OffsetOutOfRangeError, UnknownPartitionError
from logstore.spark.options import read_options
from logstore.spark.streaming import StreamReader
from logstore.spark.views import forget

ALL = ReadAllAvailable()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    """Make a store with a partition in each of two log dirs, five records in each."""
    with LogStore.open([tmp_path / "a", tmp_path / "b"], admin_socket=False) as store:
        for partition, name in enumerate("ab"):
            store.create("t", partition, log_dir=tmp_path / name).extend([b"old"] * 5)
        yield store


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Any]:
    """Give a function that makes the reader of a stream."""
    made = []

    def follow(**options: str) -> StreamReader:
        given = {"logDirs": f"{tmp_path / 'a'},{tmp_path / 'b'}", "startingOffsets": "earliest"}
        made.append(StreamReader(read_options(given | options, is_stream=True)))
        return made[-1]

    yield follow
    for reader in made:
        reader.stop()


def read(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    """Read a batch: partition and offset of each record."""
    return [
        (row["partition"], row["offset"])
        for piece in reader.partitions(start, end)
        for batch in reader.read(piece)
        for row in batch.to_pylist()
    ]


def test_a_log_dir_that_comes_back_is_read_from_where_it_was(
    store: LogStore, follow: Any, tmp_path: Path
) -> None:
    """With failOnDataLoss=false its partition keeps its place meanwhile: nothing comes twice."""
    store.close()
    reader = follow(subscribe="t", failOnDataLoss="false")
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    assert len(read(reader, start, first)) == 10
    (tmp_path / "b").rename(tmp_path / "away")
    forget(reader._options.place)
    for limit in (ALL, ReadMaxRows(3)):
        assert reader.latestOffset(first, limit) == first
        assert read(reader, first, first) == []
    (tmp_path / "away").rename(tmp_path / "b")
    with LogStore.open([tmp_path / "a", tmp_path / "b"], admin_socket=False) as again:
        again["t", 1].append(b"new")
    forget(reader._options.place)
    second = reader.latestOffset(first, ALL)
    assert read(reader, first, second) == [(1, 5)]


@pytest.mark.parametrize("how", [{"subscribe": "t"}, {"subscribePattern": "t|u"}])
def test_a_topic_created_anew_is_not_the_one_that_was_followed(
    store: LogStore, follow: Any, how: dict[str, str]
) -> None:
    """However long it has become, and whoever has looked at it meanwhile."""
    reader = follow(**how)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    store.delete("t", 1)
    store.create("t", 1).extend([b"new"] * 9)
    assert reader.reportLatestOffset() == {"t": {"0": 5, "1": 9}}
    with pytest.raises(UnknownPartitionError, match=r"t-1: .* was deleted and created anew"):
        reader.latestOffset(end, ALL)
    with pytest.raises(UnknownPartitionError, match=r"t-1: .* was deleted and created anew"):
        reader.partitions(end, {"t": {"0": 5, "1": 9}})
    lossy = follow(**how, failOnDataLoss="false")
    assert read(lossy, end, lossy.latestOffset(end, ALL)) == [(1, n) for n in range(5, 9)]


def test_a_partition_that_is_gone_is_named(store: LogStore, follow: Any) -> None:
    """By its name and how far it was read, not by offsets it never had."""
    reader = follow(subscribePattern="t|u")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    store.delete("t", 1)
    with pytest.raises(LogStoreError, match=r"t-1: .* offset 5, and it is no longer there"):
        reader.latestOffset(end, ALL)


def test_retention_between_planning_and_reading(store: LogStore, follow: Any) -> None:
    """The batch that was planned names what it wants and what is left."""
    reader = follow(subscribe="t")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    pieces = reader.partitions(start, end)
    store["t", 0].delete_records_before(3)
    with pytest.raises(OffsetOutOfRangeError, match=r"wants offset 0, the log has 3\.\.5"):
        list(reader.read(pieces[0]))
    with pytest.raises(OffsetOutOfRangeError, match="the stream wants offset 0"):
        reader.partitions(start, end)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffsets", {"t": {"0": 1.7, "1": 2}}),
        ("startingOffsets", {"t": {"0": True, "1": 2}}),
        ("startingOffsetsByTimestamp", {"t": {"0": 1.5, "1": 2}}),
        ("assign", {"t": [1.5]}),
    ],
)
def test_a_number_that_is_not_whole_is_refused(follow: Any, name: str, value: Any) -> None:
    """It would be another offset than the one that was written."""
    selection = {} if name == "assign" else {"subscribe": "t"}
    with pytest.raises(ValueError, match=f"{name} is like"):
        follow(**selection, **{name: json.dumps(value)})
