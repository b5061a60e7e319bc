"""Check every batch of a whole store, or measure every partition of it, with Spark.

Up to 512 tasks share the segments. A task finds a segment by the names of the partition and the
segment, because the replica may have moved. A task that finds a problem checks the segment again
with a new view. So if an owner truncates the log or retention removes records during the check,
only real damage is reported.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.errors import LogDirError, LogStoreError
from logstore.log import host
from logstore.log.log import Log
from logstore.log.recovery.verification import SegmentDamage
from logstore.spark.options import Place, read_options
from logstore.spark.read.views import find, forget, host_named, view_of
from logstore.store.store import LogStore

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PROBLEMS = (
    "dir STRING, topic STRING, partition INT, segment BIGINT, position BIGINT, offset BIGINT, "
    "reason STRING"
)
SEGMENTS = "topic STRING, partition INT, segment BIGINT"
TASKS_MAX = 512

LogDirs = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Row = tuple[Any, ...]


class Figures(NamedTuple):
    """Describe a partition by the sizes and offsets that a view knows without reading records."""

    dir: str
    topic: str
    partition: int
    bytes: int
    segments: int
    log_start_offset: int
    log_end_offset: int


def place_of(log_dirs: LogDirs, is_kafka: bool) -> Place:
    """Build a place from one path or several paths, as `LogStore.open` accepts them."""
    if isinstance(log_dirs, str | os.PathLike):
        log_dirs = (log_dirs,)
    return Place(tuple(os.fspath(path) for path in log_dirs), is_kafka)


def frame_of(spark: SparkSession, rows: Sequence[Row], schema: str) -> DataFrame:
    """Create a DataFrame of a few rows, without Spark's warning about pandas."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        return spark.createDataFrame(rows, schema)


# --- verify ---------------------------------------------------------------------------------------


def verify(spark: SparkSession, log_dirs: LogDirs, is_kafka: bool = False) -> DataFrame:
    """Check every batch of a store in parallel; return one row per problem.

    The columns are dir, topic, partition, segment (its base offset), position (bytes), offset,
    reason. Another process may own the store. A log dir or a partition that cannot be read also
    gets a row.

    Raises:
        LogDirError: no log dir can be read.
    """
    place = place_of(log_dirs, is_kafka)
    store = view_of(place)
    segments, rows = list_segments(place, store)
    problems = frame_of(spark, rows, PROBLEMS)
    if not segments:
        return problems
    planned = frame_of(spark, segments, SEGMENTS).repartition(min(len(segments), TASKS_MAX))
    return planned.mapInArrow(partial(_check_batches, place), PROBLEMS).union(problems)


def list_segments(place: Place, store: LogStore) -> tuple[list[Row], list[Row]]:
    """List every segment of a store.

    Also return a problem row for each log dir or partition whose segments could not be listed.
    """
    segments: list[Row] = []
    rows: list[Row] = []
    for key in store:
        try:
            log = find(store, key)
            segments += [(*key, segment.base_offset) for segment in host.segments_of(log)]
            first = next((one.base_offset for one in host.segments_of(log)), 0)
            if first > log.log_start_offset:
                reason = "the segments before it are missing"
                rows.append((log.log_dir, *key, first, 0, log.log_start_offset, reason))
        except LogStoreError as error:
            rows.append((_dir_of(place, error), *key, None, None, None, str(error)))
    for log_dir in store.host.log_dirs:
        if log_dir.is_offline:
            reason = f"the log dir is offline: {log_dir.offline_reason}"
            rows.append((log_dir.path, None, None, None, None, None, reason))
    return segments, rows


def _check_batches(place: Place, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check the segments that one task gets, and yield the problems that it finds."""
    import pyarrow as pa

    kinds = [pa.string(), pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.string()]
    names = [column.split()[0] for column in PROBLEMS.split(", ")]
    for batch in batches:
        rows = [
            row
            for segment in batch.to_pylist()
            for row in check_segment(
                place, segment["topic"], segment["partition"], segment["segment"]
            )
        ]
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        arrays = [pa.array(cells, kind) for cells, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def check_segment(place: Place, topic: str, partition: int, base: int) -> list[Row]:
    """Check one segment; check again if it has problems, and return the problems that remain."""
    first = _look(place, topic, partition, base)
    if not first:
        return []
    forget(place)
    second = set(_look(place, topic, partition, base))
    return [row for row in first if row in second]


def _look(place: Place, topic: str, partition: int, base: int) -> list[Row]:
    log_dir = None
    try:
        with host_named():
            store = view_of(place)
            log = store.log(topic, partition)
            log_dir = log.log_dir
            damage = host.verify_segment(log, base, flushed_to(store, log))
    except LogStoreError as error:
        log_dir = log_dir or _dir_of(place, error)
        return [(log_dir, topic, partition, base, None, None, str(error))]
    return [_row(log, base, each) for each in damage]


def _dir_of(place: Place, error: LogStoreError) -> str | None:
    """Return the store's log dir that an error names, or None."""
    path = error.path if isinstance(error, LogDirError) else None
    return path if path in place.log_dirs else None


def _row(log: Log, base: int, damage: SegmentDamage) -> Row:
    place = (log.log_dir, log.topic, log.partition, base)
    return (*place, damage.position, damage.offset, damage.reason)


def flushed_to(store: LogStore, log: Log) -> int:
    """Return the offset up to which the owner has flushed a log, as the checkpoint says."""
    from logstore.names import TopicPartition

    log_dir = store.host.dir_of(log.log_dir)
    return log_dir.checkpoints.recovery_point(TopicPartition(log.topic, log.partition)) or 0


# --- describe -------------------------------------------------------------------------------------


def describe(spark: SparkSession, log_dirs: LogDirs, is_kafka: bool = False) -> DataFrame:
    """Measure every partition of a store; return one row per partition.

    The rows are sorted by dir, topic and partition.
    The columns are dir, topic, partition, bytes, segments, log_start_offset, log_end_offset,
    records, keys (distinct), null_keys, key_skew (the share of the most frequent key among all
    records with a key), min_timestamp, max_timestamp. The keys and timestamps of all records are
    read.

    Raises:
        LogDirOfflineError: a log dir is missing or offline.
    """
    from pyspark.sql import functions as f

    from logstore.spark.read.read_plan import select

    place = place_of(log_dirs, is_kafka)
    options = {
        "logDirs": json.dumps(place.log_dirs),
        "kafkaLogDirs": str(is_kafka),
        "subscribePattern": ".*",
        "columns": "topic,partition,key,timestamp",
    }
    store = view_of(place)
    figures = []
    for key in select(store, read_options(options, is_stream=False)):
        log = find(store, key)
        figures.append(
            Figures(
                log.log_dir,
                *key,
                log.size_bytes,
                len(host.segments_of(log)),
                log.log_start_offset,
                log.log_end_offset,
            )
        )
    kinds = "dir STRING, topic STRING, partition INT, bytes BIGINT, segments INT"
    table = frame_of(spark, figures, f"{kinds}, log_start_offset BIGINT, log_end_offset BIGINT")
    records = spark.read.format("logstore").options(**options).load()
    by_key = records.groupBy("topic", "partition", "key").agg(
        f.count("*").alias("count"), f.min("timestamp").alias("low"), f.max("timestamp").alias("up")
    )
    has_key = f.col("key").isNotNull()
    measured = by_key.groupBy("topic", "partition").agg(
        f.sum("count").alias("records"),
        f.count(f.when(has_key, 1)).alias("keys"),
        f.coalesce(f.sum(f.when(~has_key, f.col("count"))), f.lit(0)).alias("null_keys"),
        (f.max(f.when(has_key, f.col("count"))) / f.sum(f.when(has_key, f.col("count")))).alias(
            "key_skew"
        ),
        f.min("low").alias("min_timestamp"),
        f.max("up").alias("max_timestamp"),
    )
    joined = table.join(measured, ["topic", "partition"], "left")
    filled = joined.fillna(0, ["records", "keys", "null_keys"])
    return filled.select(*table.columns, *measured.columns[2:]).orderBy("dir", "topic", "partition")
