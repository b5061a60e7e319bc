"""Convert whole batches of a log to the Arrow columns that Spark expects.

    key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,
    timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, readFrom STRING

Spark compares types exactly: the type of each field, and whether the field may be null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from logstore.format.arrow_columns import binary_array, header_array, null_arrays
from logstore.format.batch import RecordBatch
from logstore.format.columnar.columns import together
from logstore.format.columnar.payload import LOG_APPEND_TIME

SPARK_TYPES = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "readFrom": "STRING",
}
INSTANT = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
ARROW_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": INSTANT,
    "timestampType": pa.int32(),
    "headers": HEADERS,
    "readFrom": pa.string(),
}
# The values of the column readFrom: files on this machine, or a broker.
LOCAL, FETCHED = "local", "fetched"

MS_MAX = (2**63 - 1) // 1000  # Spark's timestamps are microseconds in 64 bits

# Small batches are joined until they are large enough to be worth a transfer to the JVM.
# Large batches are cut.
ROWS_MIN = 32 * 1024
BYTES_MIN = 4 << 20
BYTES_MAX = 64 << 20

Batches = Sequence[RecordBatch]
Build = Callable[[Batches], pa.Array]


def schema_text(columns: Iterable[str]) -> str:
    """Format the schema of some columns as Spark's DDL."""
    return ", ".join(f"{name} {SPARK_TYPES[name]}" for name in columns)


class ArrowColumns:
    """Convert the record batches of one partition to Arrow batches with the chosen columns.

    Args:
        read_from: the value of the column `readFrom`.
    """

    def __init__(
        self, topic: str, partition: int, columns: Sequence[str], read_from: str = LOCAL
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.schema = pa.schema([(name, ARROW_TYPES[name]) for name in columns])
        builds: dict[str, Build] = {
            "key": _keys,
            "value": _values,
            "topic": _Repeated(topic),
            "partition": self._partitions,
            "offset": _offsets,
            "timestamp": self._timestamps,
            "timestampType": _timestamp_types,
            "headers": _header_lists,
            "readFrom": _Repeated(read_from),
        }
        self._builds = [builds[name] for name in columns]

    def stream(self, batches: Iterable[RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield Arrow batches, each of them large enough to be worth a transfer to the JVM."""
        held: list[RecordBatch] = []
        rows = size = 0
        for batch in batches:
            batch_bytes = batch.header.payload_bytes or batch.held_bytes
            if held and size + batch_bytes > BYTES_MAX:
                yield from self._cut(held, rows, size)
                held, rows, size = [], 0, 0
            held.append(batch)
            rows += batch.count
            size += batch_bytes
            if rows >= ROWS_MIN or size >= BYTES_MIN:
                yield from self._cut(held, rows, size)
                held, rows, size = [], 0, 0
        if held:
            yield from self._cut(held, rows, size)

    def _cut(self, held: Batches, rows: int, size_bytes: int) -> Iterator[pa.RecordBatch]:
        whole = pa.RecordBatch.from_arrays(
            [build(held) for build in self._builds], schema=self.schema
        )
        step = rows if size_bytes <= BYTES_MAX else max(rows * BYTES_MAX // size_bytes, 1)
        for start in range(0, rows, step):
            yield whole.slice(start, step)

    def _timestamps(self, batches: Batches) -> pa.Array:
        times = np.concatenate([batch.timestamps for batch in batches])
        try:
            return _numbers(times, pa.timestamp("ms", tz="UTC")).cast(INSTANT)
        except pa.ArrowInvalid as error:
            # Spark's Kafka source gives an error for such a timestamp, too.
            at = int(np.argmax((times > MS_MAX) | (times < -MS_MAX)))
            offset = int(np.concatenate([batch.offsets for batch in batches])[at])
            raise ValueError(
                f"record {offset} of {self.topic}-{self.partition} has the timestamp {times[at]} "
                "ms, and Spark's timestamps end in the year 294247: read without the timestamps, "
                "for example with option('columns', 'key,value,offset')"
            ) from error

    def _partitions(self, batches: Batches) -> pa.Array:
        return _numbers(np.full(_count(batches), self.partition, np.int32), pa.int32())


class _Repeated:
    """Build a column that has the same text in every row."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._column = pa.array([], pa.string())

    def __call__(self, batches: Batches) -> pa.Array:
        count = _count(batches)
        if count > len(self._column):
            text = self._text.encode()
            starts = np.arange(count + 1, dtype=np.int32) * np.int32(len(text))
            buffers = [None, pa.py_buffer(starts), pa.py_buffer(text * count)]
            self._column = pa.Array.from_buffers(pa.string(), count, buffers)
        return self._column.slice(0, count)


def _count(batches: Batches) -> int:
    return sum(batch.count for batch in batches)


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _numbers(numbers: NDArray[Any], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _values(batches: Batches) -> pa.Array:
    return _joined([binary_array(column) for column in together(batch.values for batch in batches)])


def _keys(batches: Batches) -> pa.Array:
    if all(batch.columns.keys is None for batch in batches):
        return pa.nulls(_count(batches), pa.binary())
    return _joined(
        [
            null_arrays(batch.count)[1]
            if batch.columns.keys is None
            else binary_array(batch.columns.keys)
            for batch in batches
        ]
    )


def _offsets(batches: Batches) -> pa.Array:
    return _numbers(np.concatenate([batch.offsets for batch in batches]), pa.int64())


def _timestamp_types(batches: Batches) -> pa.Array:
    """Return Kafka's timestamp type of each record: 0 is CreateTime, 1 is LogAppendTime."""
    kinds = [int(bool(batch.header.attributes & LOG_APPEND_TIME)) for batch in batches]
    counts = [batch.count for batch in batches]
    return _numbers(np.repeat(np.array(kinds, np.int32), counts), pa.int32())


def _header_lists(batches: Batches) -> pa.Array:
    return _joined([header_array(batch) for batch in batches]).cast(HEADERS)


__all__ = ["ARROW_TYPES", "SPARK_TYPES", "ArrowColumns", "schema_text"]
