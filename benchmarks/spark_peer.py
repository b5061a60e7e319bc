"""Provide a plain data source to compare with: it maps files of rows, and yields Arrow or tuples.

The source checks nothing, follows no changes and has no options to select records. So
hardly any data source that reads its own files can be faster. A file has records back to back. A
record is `crc, offset, timestamp, size` and the value. A second file has the position of each
record.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

HEADER = np.dtype(
    [("crc", "<u8"), ("offset", "<i8"), ("time", "<i8"), ("size", "<u4"), ("x", "<u4")]
)
VIEW = np.dtype([("size", "<i4"), ("prefix", "<u4"), ("buffer", "<i4"), ("position", "<i4")])
DDL = "partition INT, offset BIGINT, timestamp TIMESTAMP, value BINARY"
SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("value", pa.binary()),
    ]
)
ROWS = 65_536


def write_rows(path: Path, base: int, values: np.ndarray[Any, Any], time_ms: int) -> None:
    """Write one file; `values` is a matrix of bytes with one row per record."""
    count, size = values.shape
    rows = np.zeros((count, HEADER.itemsize + size), np.uint8)
    header = np.zeros(count, HEADER)
    header["offset"] = base + np.arange(count)
    header["time"], header["size"] = time_ms * 1000, size
    rows[:, : HEADER.itemsize] = header.view(np.uint8).reshape(count, -1)
    rows[:, HEADER.itemsize :] = values
    rows.tofile(path.with_suffix(".rows"))
    (np.arange(count, dtype=np.int64) * rows.shape[1]).tofile(path.with_suffix(".starts"))


@dataclass
class RowFile(InputPartition):
    """Name the file that one task reads."""

    path: str
    partition: int

    def __init__(self, path: str, partition: int) -> None:
        super().__init__(path)
        self.path, self.partition = path, partition


def as_arrow(file: RowFile) -> Iterator[pa.RecordBatch]:
    """Read a file as Arrow; Arrow itself copies the values out of the rows."""
    rows = np.memmap(Path(file.path).with_suffix(".rows"), np.uint8, "r")
    starts = np.memmap(Path(file.path).with_suffix(".starts"), np.int64, "r")
    whole = pa.py_buffer(rows)
    for first in range(0, len(starts), ROWS):
        at = np.asarray(starts[first : first + ROWS])
        last = first + len(at)
        end = int(starts[last]) if last < len(starts) else len(rows)
        block = np.frombuffer(whole, np.uint8, end - int(at[0]), int(at[0]))
        at = at - at[0]
        header = block[at[:, None] + np.arange(HEADER.itemsize)].view(HEADER).reshape(len(at))
        views = np.zeros(len(at), VIEW)
        views["size"], views["position"] = header["size"], at + HEADER.itemsize
        views["prefix"] = block[views["position"][:, None] + np.arange(4)].view("<u4").reshape(-1)
        buffers = [None, pa.py_buffer(views), pa.py_buffer(block)]
        columns = [
            pa.array(np.full(len(at), file.partition, np.int32)),
            pa.array(header["offset"]),
            pa.array(header["time"]).cast(SCHEMA.field(2).type),
            pa.Array.from_buffers(pa.binary_view(), len(at), buffers).cast(pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def as_tuples(file: RowFile) -> Iterator[tuple[Any, ...]]:
    """Read a file record by record."""
    rows = np.memmap(Path(file.path).with_suffix(".rows"), np.uint8, "r").data
    starts = np.memmap(Path(file.path).with_suffix(".starts"), np.int64, "r")
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    unpack = struct.Struct("<QqqII").unpack_from
    size_before = HEADER.itemsize
    for at in starts.tolist():
        _, offset, time, size, _ = unpack(rows, at)
        value = bytes(rows[at + size_before : at + size_before + size])
        yield file.partition, offset, epoch + datetime.timedelta(microseconds=time), value


class PlainSource(DataSource):
    """Provide the data source; its options are a path, and the mode "arrow" or "tuples"."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "plain"

    def schema(self) -> str:
        """Return the four columns."""
        return DDL

    def reader(self, schema: Any) -> DataSourceReader:
        """Create the reader."""
        return PlainReader(self.options["path"], self.options.get("mode", "arrow"))


class PlainReader(DataSourceReader):
    """Read all files of a directory."""

    def __init__(self, path: str, mode: str) -> None:
        self.path, self.mode = path, mode

    def partitions(self) -> list[InputPartition]:
        """Create a task for each file; the files are named `<partition>-<number>`."""
        files = sorted(Path(self.path).glob("*.rows"))
        return [RowFile(str(file), int(file.stem.split("-")[0])) for file in files]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one file."""
        assert isinstance(partition, RowFile)
        return as_arrow(partition) if self.mode == "arrow" else as_tuples(partition)
