"""Read the directories of a Kafka broker with Spark, as its consumers read them at the time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import logstore.spark
from logstore import LogStore, TopicPartition
from logstore.format.prefix import walk
from support.kafka_golden import given, log_dirs

Read = Callable[..., Any]
Rows = set[tuple[Any, ...]]

LEVELS = ("read_uncommitted", "read_committed")
TOPICS_KILLED = "segments,torn,unfinished"  # the others are as they were before


@pytest.fixture
def reader(spark: Any) -> Read:
    """Give a function that makes a reader, of a batch or a stream, of a broker's log dirs."""

    def reader(dirs: list[Path], **options: str) -> Any:
        if not {"subscribe", "assign"} & options.keys():
            options["subscribePattern"] = ".*"
        source = spark.readStream if options.pop("stream", "") else spark.read
        named = source.format("logstore").option("kafkaLogDirs", "true")
        return named.option("logDirs", json.dumps(list(map(str, dirs)))).options(**options)

    return reader


def rows_of(frame: Any) -> Rows:
    """Read a frame with headers as what a consumer was given: one tuple for each record."""
    order = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    rows = frame.select(*order).toArrow().to_pylist()
    found = {
        (
            row["topic"],
            row["partition"],
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            tuple((each["key"], each["value"]) for each in row["headers"] or ()),
        )
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def expected(name: str, level: str) -> Rows:
    """Give what a consumer was given of the golden dirs, in the same form."""
    return {
        (*key, *row)
        for key, rows in given(name).items()
        for row in (rows.committed if level == "read_committed" else rows.uncommitted)
    }


def test_records_are_those_that_a_consumer_was_given(reader: Read, tmp_path: Path) -> None:
    """In both isolation levels, every column; topics of the broker's own only by their names."""
    dirs = log_dirs("stopped", tmp_path)
    for level in LEVELS:
        options = {"includeHeaders": "true", "kafka.isolation.level": level}
        frame = reader(dirs, **options).load()
        assert rows_of(frame) == expected("stopped", level)
    kinds = {row.topic: row.timestampType for row in frame.collect()}
    assert {topic for topic, kind in kinds.items() if kind} == {"stamped"}
    assert reader(dirs, assign='{"__consumer_offsets": [0]}').load().count() > 0


def test_ranges_and_columns_are_as_of_a_store(reader: Read, tmp_path: Path) -> None:
    """Offsets and times bound what is read; a column that is not wanted is not made."""
    dirs = log_dirs("stopped", tmp_path)
    rows = given("stopped")[TopicPartition("codec-lz4", 0)].uncommitted
    options = {"assign": '{"codec-lz4": [0]}', "columns": "offset,timestamp"}
    bounds = {"startingOffsets": '{"codec-lz4": {"0": 5}}'}
    bounds["endingOffsets"] = '{"codec-lz4": {"0": 30}}'
    found = reader(dirs, **options, **bounds).load().collect()
    assert sorted(row.offset for row in found) == list(range(5, 30))
    times = {row[0]: row[1] for row in rows}
    assert all(row.timestamp.timestamp() * 1000 == times[row.offset] for row in found)
    middle = sorted(times.values())[20]
    since = reader(dirs, startingTimestamp=str(middle), **options).load()
    first = min(offset for offset, time in times.items() if time >= middle)
    assert since.count() == len(times) - first


@pytest.mark.parametrize("level", LEVELS)
def test_a_stream_ends_where_its_isolation_level_does(
    spark: Any, reader: Read, tmp_path: Path, level: str
) -> None:
    """Batches of a few records make up the same rows; an open transaction is waited for."""
    dirs = log_dirs("killed", tmp_path)
    options = {"includeHeaders": "true", "kafka.isolation.level": level, "stream": "yes"}
    options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    frame = reader(dirs, subscribe=TOPICS_KILLED, **options).load()
    query = frame.writeStream.format("memory").queryName(level).trigger(availableNow=True).start()
    query.awaitTermination()
    assert len(query.recentProgress) > 1
    assert rows_of(spark.table(level)) == expected("killed", level)


def test_every_batch_is_verified(spark: Any, tmp_path: Path) -> None:
    """A torn tail is no damage, a flipped bit is one row."""
    dirs = log_dirs("killed", tmp_path)
    assert logstore.spark.verify(spark, dirs, kafka_log_dirs=True).collect() == []
    (path,) = tmp_path.glob(f"*/transactions-0/{0:020d}.log")
    data = bytearray(path.read_bytes())
    batch = next(walk(bytes(data)))
    data[batch.position + batch.size_bytes - 1] ^= 1
    path.write_bytes(data)
    (row,) = logstore.spark.verify(spark, dirs, kafka_log_dirs=True).collect()
    assert (row.dir, row.topic, row.partition) == (str(path.parents[1]), "transactions", 0)
    assert (row.segment, row.position, row.offset) == (0, batch.position, batch.base_offset)
    assert "checksum" in row.reason


def test_partitions_are_described(spark: Any, tmp_path: Path) -> None:
    """One row for each partition of its users', with what a consumer was given of it."""
    dirs = log_dirs("stopped", tmp_path)
    rows = logstore.spark.describe(spark, dirs, kafka_log_dirs=True).collect()
    found = {
        (row.topic, row.partition): (row.log_start_offset, row.log_end_offset, row.records)
        for row in rows
    }
    assert found == {
        key: (each.start, each.end, len(each.uncommitted)) for key, each in given("stopped").items()
    }


def test_what_cannot_be_is_named(spark: Any, reader: Read, tmp_path: Path) -> None:
    """Dirs of the other kind, a level that is none, and writing to a broker's dirs."""
    dirs = log_dirs("stopped", tmp_path)
    LogStore.open(tmp_path / "ours", admin_socket=False).close()

    def message(call: Callable[[], object]) -> str:
        with pytest.raises(PySparkException) as caught:
            call()
        return str(caught.value)

    ours = reader([tmp_path / "ours"], subscribe="t").load()
    assert "leave out kafkaLogDirs" in message(ours.count)
    theirs = spark.read.format("logstore").options(logDirs=str(dirs[0]), subscribe="stamped")
    assert "set kafkaLogDirs=true" in message(theirs.load().count)
    wrong = reader(dirs, **{"kafka.isolation.level": "committed"})
    assert "is none of" in message(lambda: wrong.load().count())
    frame = reader(dirs, subscribe="stamped", columns="value").load()
    writer = frame.write.format("logstore").mode("append")
    writer = writer.options(logDirs=str(dirs[0]), kafkaLogDirs="true", topic="stamped")
    assert "logstore kafka adopt" in message(writer.save)
