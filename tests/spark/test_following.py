"""A stream's planning while the store changes under it; no Spark is started for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from logstore import LogStore, LogStoreError, OffsetOutOfRangeError, UnknownPartitionError
from logstore.spark.options import ReadOptions, read_options
from logstore.spark.read import origin, stream, views
from logstore.spark.read.read_plan import survey
from logstore.spark.read.stream import StreamReader
from logstore.spark.read.views import forget

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


def test_a_stream_that_runs_sees_a_log_dir_come_back(
    store: LogStore, follow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With failOnDataLoss=false, after a while and by itself."""
    now = 100.0
    monkeypatch.setattr(views, "time", SimpleNamespace(monotonic=lambda: now))
    store.close()
    reader = follow(subscribe="t", failOnDataLoss="false")
    start = reader.initialOffset()
    (tmp_path / "b").rename(tmp_path / "away")
    end = reader.latestOffset(start, ALL)
    assert (end["t"]["0"], end["t"]["1"]) == (5, 0)
    (tmp_path / "away").rename(tmp_path / "b")
    assert reader.latestOffset(end, ALL) == end
    now += views.AWAY_SECONDS + 1
    assert reader.latestOffset(end, ALL)["t"]["1"] == 5


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
    with pytest.raises(UnknownPartitionError, match=r"t-1: .* was deleted and created again"):
        reader.latestOffset(end, ALL)
    with pytest.raises(UnknownPartitionError, match=r"t-1: .* was deleted and created again"):
        reader.partitions(end, {"t": {"0": 5, "1": 9}})
    restarted = follow(**how)
    with pytest.raises(UnknownPartitionError, match=r"t-1: .* was deleted and created again"):
        restarted.latestOffset(end, ALL)
    lossy = follow(**how, failOnDataLoss="false")
    last = lossy.latestOffset(end, ALL)
    assert read(lossy, end, last) == [(1, n) for n in range(9)]
    assert lossy.latestOffset(last, ALL) == last
    restarted.partitions(last, last)


def test_a_checkpoint_of_an_earlier_version_is_gone_on_with(store: LogStore, follow: Any) -> None:
    """It has no topic ids: they stand there from the next batch on."""
    reader = follow(subscribe="t")
    store["t", 0].append(b"new")
    old = {"t": {"0": 5, "1": 5}}
    end = reader.latestOffset(old, ALL)
    assert read(reader, old, end) == [(0, 5)]
    assert end.pop("topic ids") == {
        "t": {str(n): store["t", n].topic_id.hex()[:16] for n in range(2)}
    }
    assert end == {"t": {"0": 6, "1": 5}}


def test_what_a_new_partition_has_lost_already_is_noticed(store: LogStore, follow: Any) -> None:
    """Retention took records of a partition before the stream saw it."""
    reader = follow(subscribe="t")
    start = reader.initialOffset()
    store.create("t", 2).extend([b"new"] * 5)
    end = reader.latestOffset(start, ALL)
    store["t", 2].delete_records_before(2)
    told = r"t-2: .* new, wants offset 0, .* 2\.\.5"
    with pytest.raises(OffsetOutOfRangeError, match=told):
        reader.latestOffset(start, ALL)
    with pytest.raises(OffsetOutOfRangeError, match=told):
        reader.partitions(start, end)
    lossy = follow(subscribe="t", failOnDataLoss="false")
    assert read(lossy, start, end)[-3:] == [(2, 2), (2, 3), (2, 4)]


def test_a_batch_waits_for_enough_records_but_not_for_ever(
    store: LogStore, follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka's source: the first one does not, nor a stream that ends with what is there."""
    now = 100.0
    monkeypatch.setattr(stream, "time", SimpleNamespace(monotonic=lambda: now))
    reader = follow(subscribe="t", minOffsetsPerTrigger="3", maxTriggerDelay="20s")
    first = reader.latestOffset(reader.initialOffset(), ALL)
    store["t", 0].extend([b"new"] * 2)
    assert reader.latestOffset(first, ALL) == first
    store["t", 1].append(b"new")
    second = reader.latestOffset(first, ALL)
    assert (second["t"]["0"], second["t"]["1"]) == (7, 6)
    store["t", 1].append(b"new")
    now += 19
    assert reader.latestOffset(second, ALL) == second
    now += 2
    assert reader.latestOffset(second, ALL)["t"]["1"] == 7
    store["t", 1].append(b"new")
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(second, ALL)["t"]["1"] == 8


def test_an_open_transaction_takes_no_stream_back(store: LogStore, follow: Any) -> None:
    """A stream that read uncommitted records and now reads committed ones stays where it is."""
    reader = follow(subscribe="t", **{"kafka.isolation.level": "read_committed"})
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)

    def surveyed(options: ReadOptions) -> dict[Any, Any]:
        return {key: span._replace(end=2) for key, span in survey(options).items()}

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(origin, "survey", surveyed)
        assert reader.latestOffset(end, ALL) == end
        assert reader.latestOffset(start, ALL)["t"] == {"0": 2, "1": 2}


def test_a_partition_that_is_gone_is_named(store: LogStore, follow: Any) -> None:
    """By its name and how far it was read, not by offsets it never had."""
    reader = follow(subscribePattern="t|u")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    store.delete("t", 1)
    with pytest.raises(
        LogStoreError, match=r"t-1: .* offset 5, but the partition no longer exists"
    ):
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
    with pytest.raises(ValueError, match=f"{name} must be like"):
        follow(**selection, **{name: json.dumps(value)})
