"""Write a task's records to a file of encoded batches, which the driver appends later.

    <log dir>/.spark/staged/<query id>/<unique>.batches

Each task writes one file, on the disk of one of its partitions. The file is durable before the task
reports to the driver. Only the commit that gets the task's report reads the file. If no commit
lists a file, the next batch of the same query removes it. A DataFrame write has no next batch, and
nothing shows whether its driver is alive. So if a DataFrame write leaves files, the operator must
remove them (docs/SPARK.md).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from logstore.arrow import build_payload
from logstore.config import LogConfig
from logstore.disk import files
from logstore.errors import RecordTooLargeError, UnknownPartitionError
from logstore.format import layouts
from logstore.format.compression import CODEC_IDS
from logstore.format.layouts import MAGICS
from logstore.log import host
from logstore.log.log import Log
from logstore.names import TopicPartition
from logstore.spark.write.partitioner import by_key
from logstore.store.store import LogStore

SPARK_DIR = ".spark"
# The log sets the columns of this set itself, so the sink ignores them. So a DataFrame that was
# read from a store can be written.
GIVEN_BY_THE_LOG = ("offset", "timestampType")
HELD_BYTES_MAX = 32 << 20
BATCH_BYTES = 1 << 20


class Run(NamedTuple):
    """Describe one encoded batch in a staged file, and its partition."""

    topic: str
    partition: int
    path: str
    position: int
    size_bytes: int
    record_count: int


@dataclass
class StagedFile(WriterCommitMessage):
    """Report to the driver what a task has staged, in a form that can be pickled."""

    query_id: str
    path: str = ""
    runs: list[Run] = field(default_factory=list)


def staging_dir(log_dir: str, query_id: str) -> str:
    """Return the directory of a query's staged files."""
    return os.path.join(log_dir, SPARK_DIR, "staged", query_id)


def make_dirs(base: str, path: str) -> None:
    """Make the directories from `base` down to `path`.

    A directory that exists is accepted, because other tasks may make it at the same time.
    """
    made = base
    for name in os.path.relpath(path, base).split(os.sep):
        made = os.path.join(made, name)
        if not files.exists(made):
            with suppress(FileExistsError):
                files.make_dir(made)


class Stage:
    """Sort records by partition, encode them, and write them to one file."""

    def __init__(self, store: LogStore, query_id: str, topic: str | None, task: int) -> None:
        self._store = store
        self._query_id = query_id
        self._topic = topic
        self._rows = task  # each task begins at another partition
        self._partitions: dict[str, list[int]] = {}
        self._held: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self._held_bytes = 0
        self._fd: int | None = None
        self._position = 0
        self._log: Log | None = None
        self.message = StagedFile(query_id)

    def write(self, batches: Iterable[pa.RecordBatch]) -> StagedFile:
        """Stage all records; if that fails, remove the file.

        Raises:
            LogStoreError: a partition does not exist, a record is too large, or a disk failed.
            ValueError: a record has no topic.
        """
        try:
            for batch in batches:
                self._sort(batch)
                if self._held_bytes >= HELD_BYTES_MAX:
                    self._write_held()
            self._write_held()
            self._finish()
        except BaseException:
            self._discard()
            raise
        return self.message

    # --- which partition --------------------------------------------------------------------------

    def _sort(self, batch: pa.RecordBatch) -> None:
        """Sort the rows of a batch by partition, and keep the rows until they are written."""
        if not batch.num_rows:
            return
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        topics = columns.pop("topic", None)
        chosen = columns.pop("partition", None)
        for name in GIVEN_BY_THE_LOG:
            columns.pop(name, None)
        rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        for topic, indices in self._by_topic(topics, batch.num_rows):
            part = rows if indices is None else rows.take(indices)
            wanted = chosen if chosen is None or indices is None else chosen.take(indices)
            for partition, cells in self._by_partition(topic, part, wanted):
                self._held.setdefault(TopicPartition(topic, partition), []).append(cells)
        self._held_bytes += batch.nbytes

    def _by_topic(self, topics: pa.Array | None, count: int) -> Iterator[tuple[str, Any]]:
        if self._topic is not None:
            yield self._topic, None
            return
        if topics is None or topics.null_count:
            raise ValueError("a record has no topic: set the option topic, or fill that column")
        coded = topics.dictionary_encode()
        codes = coded.indices.to_numpy()
        for code, topic in enumerate(coded.dictionary.to_pylist()):
            yield topic, pa.array(np.flatnonzero(codes == code))

    def _by_partition(
        self, topic: str, rows: pa.RecordBatch, chosen: pa.Array | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        keys = rows.column(rows.schema.names.index("key")) if "key" in rows.schema.names else None
        known = self._known(topic)
        numbers = by_key(keys, known, self._rows, rows.num_rows)
        self._rows += rows.num_rows
        if chosen is not None:
            filled = pc.fill_null(chosen.cast(pa.int64()), -1).to_numpy()
            if chosen.null_count and bool((chosen.drop_null().to_numpy() < 0).any()):
                raise ValueError("a partition must be a number from 0 on, or null")
            numbers = filled if not chosen.null_count else np.where(filled < 0, numbers, filled)
        order = np.argsort(numbers, kind="stable")
        in_order = numbers[order]
        cuts = [0, *(np.flatnonzero(np.diff(in_order)) + 1).tolist(), len(order)]
        sorted_rows = rows if len(cuts) == 2 else rows.take(pa.array(order))
        for start, stop in pairwise(cuts):
            partition = int(in_order[start])
            if partition not in known:
                raise UnknownPartitionError(topic=topic, partition=partition)
            yield partition, sorted_rows.slice(start, stop - start)

    def _known(self, topic: str) -> list[int]:
        if topic not in self._partitions:
            self._partitions[topic] = partitions_of(self._store, topic)
        return self._partitions[topic]

    # --- encoding ---------------------------------------------------------------------------------

    def _write_held(self) -> None:
        for key in sorted(self._held):
            log = self._store.log(*key)
            table = pa.Table.from_batches(self._held[key]).combine_chunks()
            for data, count in encode(table, log.config):
                self._append(log, key, data, count)
        self._held, self._held_bytes = {}, 0

    def _append(self, log: Log, key: TopicPartition, data: bytes, count: int) -> None:
        if self._fd is None:
            self._open(log)
        assert self._fd is not None and self._log is not None
        try:
            files.write_fully(self._fd, [data], self._position)
        except OSError as error:
            raise host.log_dir_of(self._log).failed(error, self.message.path) from error
        run = Run(*key, self.message.path, self._position, len(data), count)
        self.message.runs.append(run)
        self._position += len(data)

    def _open(self, log: Log) -> None:
        self._log = log
        directory = staging_dir(log.log_dir, self._query_id)
        path = os.path.join(directory, f"{os.urandom(16).hex()}.batches")
        try:
            make_dirs(log.log_dir, directory)
            self._fd = files.open_file(path, files.CREATE)
        except OSError as error:
            raise host.log_dir_of(log).failed(error, path) from error
        self.message.path = path

    def _finish(self) -> None:
        """Make the file durable, because the driver relies on this file even after a crash."""
        if self._fd is None or self._log is None:
            return
        try:
            files.sync_file(self._fd)
            files.close(self._fd)
            self._fd = None
            files.sync_dir(os.path.dirname(self.message.path))
        except OSError as error:
            raise host.log_dir_of(self._log).failed(error, self.message.path) from error

    def _discard(self) -> None:
        with suppress(OSError):
            if self._fd is not None:
                files.close(self._fd)
            if self.message.path:
                files.remove_if_there(self.message.path)


def partitions_of(store: LogStore, topic: str) -> list[int]:
    """List the partitions of a topic; raise UnknownPartitionError if the topic has none."""
    found = [key.partition for key in store if key.topic == topic]
    if not found:
        raise UnknownPartitionError(
            f"there is no topic {topic!r} in this store: create its partitions first, or set the "
            "option numPartitions together with the option topic",
            topic=topic,
            partition=-1,
        )
    return found


def encode(table: pa.Table, config: LogConfig) -> Iterator[tuple[bytes, int]]:
    """Encode rows as batches that the log accepts; yield each batch and its number of records.

    Raises:
        RecordTooLargeError: a single record is larger than the log accepts.
    """
    pieces = max(-(-table.nbytes // BATCH_BYTES), 1)
    step = max(-(-table.num_rows // pieces), 1)
    waiting = [table.slice(start, step) for start in range(0, table.num_rows, step)]
    waiting.reverse()
    while waiting:
        rows = waiting.pop()
        payload = build_payload(
            rows,
            now_ms=time.time_ns() // 1_000_000,
            codec_id=CODEC_IDS[config.compression_type],
            is_log_append_time=config.message_timestamp_type == "LogAppendTime",
            magic=MAGICS[config.record_format],
        )
        if payload.size_bytes <= config.max_message_bytes:
            yield b"".join(layouts.frame(payload, 0, -1)), rows.num_rows
        elif rows.num_rows == 1:
            raise RecordTooLargeError(
                size_bytes=payload.size_bytes, max_message_bytes=config.max_message_bytes
            )
        else:
            half = rows.num_rows // 2
            waiting += [rows.slice(half), rows.slice(0, half)]


__all__ = ["Run", "Stage", "StagedFile", "staging_dir"]
