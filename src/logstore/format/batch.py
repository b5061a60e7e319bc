"""Represent a record batch of either layout as columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore.format.batch_parts import BatchHeader, Columns
from logstore.format.columnar.columns import BytesColumn, column_of_own, encode_arrays
from logstore.format.expansion import expansion_bytes

if TYPE_CHECKING:
    import pyarrow

CODEC_MASK = 0x07  # in every layout, these bits of the attributes give the codec

Headers = tuple[tuple[str, "bytes | None"], ...]


class Record(NamedTuple):
    """Hold one record: its contents, and its topic, partition and offset."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    topic: str = ""
    partition: int = 0


new_tuple = tuple.__new__

# The tuple has the base offset, the buffer, and the position of the first value.
# Then it has the size and the start of each value, and the timestamp.
# The starts are None if all values have the same size.
PlainCells = tuple[int, bytes, int, int, "memoryview | None", int]


def null_column(count: int) -> BytesColumn:
    """Create a column in which every cell is null."""
    parts = encode_arrays(b"", np.zeros(count + 1, np.int64), np.zeros(count, np.bool_))
    return column_of_own(b"".join(parts), count)


def cut_column(column: BytesColumn, start: int, stop: int) -> BytesColumn:
    """Copy the cells with index `start` to `stop - 1` into a new column."""
    starts = column.starts[start : stop + 1].astype(np.int64)
    cells = column.data[starts[0] : starts[-1]]
    is_valid = None if column.validity is None else column.is_valid[start:stop]
    data = b"".join(encode_arrays(cells, starts - starts[0], is_valid))
    return column_of_own(data, stop - start)


class WrongMaxTimestampError(ValueError):
    """Report a header with a wrong largest timestamp; the records themselves can be read.

    Attributes:
        max_timestamp: the largest timestamp of the records.
    """

    def __init__(self, claimed: int, max_timestamp: int) -> None:
        super().__init__(f"the largest timestamp is {max_timestamp}, but the header says {claimed}")
        self.max_timestamp = max_timestamp


class RecordBatch:
    """Hold records as columns: NumPy arrays, sequences of bytes, or Arrow.

    A `Record` object is created only when a caller asks for a record.

    Attributes:
        header: the header of the stored batch, even if this object is only a part of that batch.
        count: the number of records.
    """

    __slots__ = ("_keys", "columns", "count", "first_delta", "header")

    def __init__(self, header: BatchHeader, columns: Columns, count: int, first_delta: int = 0):
        self.header = header
        self.count = count
        self.columns = columns
        self.first_delta = first_delta
        self._keys: BytesColumn | None = columns.keys

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        if not self.count:
            return f"RecordBatch(no records, base_offset={self.base_offset})"
        return (
            f"RecordBatch({self.count} records, offsets {self.base_offset}..{self.last_offset}, "
            f"{len(self.columns.values.data)} bytes of values)"
        )

    @property
    def base_offset(self) -> int:
        """Offset of the first record."""
        if not self.count:
            return self.header.base_offset
        return self.offset_at(0)

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.offset_at(self.count - 1) if self.count else self.header.last_offset

    @property
    def leader_epoch(self) -> int:
        """Leader epoch under which the batch was appended, or -1 if there was no leader epoch."""
        return self.header.leader_epoch

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Offsets of the records: shape (count,), int64."""
        base, deltas = self.header.base_offset, self.columns.offset_deltas
        if deltas is not None:
            return deltas.astype(np.int64) + base
        first = base + self.first_delta
        return np.arange(first, first + self.count, dtype=np.int64)

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Timestamps of the records, in ms since the epoch: shape (count,), int64."""
        if self.columns.timestamps is not None:
            return self.columns.timestamps
        return np.full(self.count, self.header.base_timestamp, np.int64)

    @property
    def values(self) -> BytesColumn:
        """Values: a sequence of bytes, None for a null value (a tombstone)."""
        return self.columns.values

    @property
    def keys(self) -> BytesColumn:
        """Keys: a sequence of bytes, None for a null key."""
        if self._keys is None:
            self._keys = null_column(self.count)
        return self._keys

    @property
    def headers(self) -> list[Headers]:
        """Record headers: a tuple of (name, value) for each record."""
        columns = self.columns
        if columns.header_starts is None:
            return [()] * self.count
        names, cells = columns.header_names, columns.header_values
        assert names is not None and cells is not None
        texts = [str(name or b"", "utf-8") for name in names.to_list()]
        pairs = list(zip(texts, cells.to_list(), strict=True))
        starts = columns.header_starts.tolist()
        return [tuple(pairs[a:b]) for a, b in pairwise(starts)]

    @property
    def expansion_bytes(self) -> int:
        """Memory of the decoded records, by the rules of `record_expansion_bytes_max`."""
        starts = self.columns.header_starts
        header_count = 0 if starts is None else int(starts[-1] - starts[0])
        return expansion_bytes(self.held_bytes, self.count, header_count)

    @property
    def held_bytes(self) -> int:
        """Size of the stored batch or of the decompressed cells, whichever is larger."""
        size_bytes = self.header.size_bytes
        if not self.header.attributes & CODEC_MASK:
            return size_bytes
        columns = self.columns
        cells = (columns.values, columns.keys, columns.header_values)
        return max(size_bytes, sum(len(column.data) for column in cells if column is not None))

    def offset_at(self, index: int) -> int:
        """Return the offset of the record at `index`, counted from 0."""
        deltas = self.columns.offset_deltas
        if deltas is None:
            return self.header.base_offset + self.first_delta + index
        return self.header.base_offset + int(deltas[index])

    def index_of(self, offset: int) -> int:
        """Return the index of the first record at or after `offset`."""
        deltas = self.columns.offset_deltas
        relative = offset - self.header.base_offset
        if deltas is None:
            return min(max(relative - self.first_delta, 0), self.count)
        return int(np.searchsorted(deltas, max(relative, 0)))

    def record(self, index: int, topic: str = "", partition: int = 0) -> Record:
        """Create the record at `index`, with `0 <= index < count`."""
        columns, header = self.columns, self.header
        values, keys, times, deltas, starts, _, _ = columns
        if deltas is None:
            offset = header[0] + self.first_delta + index
        else:
            offset = self.offset_at(index)
        # `new_tuple` makes the same object as NamedTuple's own constructor, in half the time.
        return new_tuple(
            Record,
            (
                offset,
                header[8] if times is None else int(times[index]),
                None if keys is None else keys.cell(index),
                values.cell(index),
                () if starts is None else self.headers[index],
                topic,
                partition,
            ),
        )

    def plain_cells(self) -> PlainCells | None:
        """Return where the values are, or None if the batch has other columns or offset gaps."""
        columns = self.columns
        place = columns.values.place()
        if self.count != self.header.last_offset - self.header.base_offset + 1:
            return None  # some offsets have no record, or this object is a part of a batch
        if place is None or any(column is not None for column in columns[1:]):
            return None
        return self.header.base_offset, *place, self.header.base_timestamp

    def records(self, topic: str = "", partition: int = 0) -> list[Record]:
        """Create a `Record` object for each record of the batch."""
        count, columns = self.count, self.columns
        if count == 1:
            return [self.record(0, topic, partition)]
        first = self.header.base_offset + self.first_delta
        # Fields that all records share are repeated without end; `zip` ends when the values end.
        rows = zip(
            range(first, first + count) if columns.offset_deltas is None else self.offsets.tolist(),
            repeat(self.header.base_timestamp)
            if columns.timestamps is None
            else columns.timestamps.tolist(),
            repeat(None) if columns.keys is None else columns.keys.to_list(),
            columns.values.to_list(),
            repeat(()) if columns.header_starts is None else self.headers,
            repeat(topic),
            repeat(partition),
            strict=False,
        )
        # This makes the same objects as `Record._make` in half the time: no Python call per record.
        return list(map(new_tuple, repeat(Record), rows))

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records())

    def slice(self, start: int, stop: int) -> RecordBatch:
        """Copy the records with index `start` to `stop - 1` into a new batch."""
        start, stop = max(start, 0), min(stop, self.count)
        if start == 0 and stop == self.count:
            return self
        stop = max(start, stop)
        old = self.columns
        header_starts, names, cells = old.header_starts, old.header_names, old.header_values
        if header_starts is not None and names is not None and cells is not None:
            header_starts = header_starts[start : stop + 1]
            first, last = int(header_starts[0]), int(header_starts[-1])
            names, cells = cut_column(names, first, last), cut_column(cells, first, last)
            header_starts = header_starts - header_starts[0]
        columns = Columns(
            cut_column(old.values, start, stop),
            None if old.keys is None else cut_column(old.keys, start, stop),
            None if old.timestamps is None else old.timestamps[start:stop],
            None if old.offset_deltas is None else old.offset_deltas[start:stop],
            header_starts,
            names,
            cells,
        )
        first_delta = self.first_delta + start if old.offset_deltas is None else 0
        return RecordBatch(self.header, columns, stop - start, first_delta)

    def to_arrow(self) -> pyarrow.RecordBatch:
        """Return the records as a pyarrow RecordBatch; no byte is converted (extra `arrow`)."""
        from logstore.format.arrow_columns import to_record_batch

        return to_record_batch(self)

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_array__(requested_schema)
