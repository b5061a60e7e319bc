"""Give the columns of a batch to Arrow without converting a byte (extra `arrow`)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from logstore.format.batch_parts import BatchHeader, Columns
from logstore.format.columnar.columns import VARIABLE_WITH_NULLS, BytesColumn

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError(
        "the exchange with Arrow needs pyarrow: pip install 'logstore[arrow]'", name="pyarrow"
    ) from error

HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(HEADER)),
    ]
)

INT64, BINARY, HEADERS = pa.int64(), pa.binary(), SCHEMA.field("headers").type
# One array of offsets is shared by this many batches of the same size.
STRETCH = 8

_from_buffers = pa.Array.from_buffers


class ColumnarBatch(Protocol):
    """Define the parts of a record batch that are converted to Arrow."""

    @property
    def header(self) -> BatchHeader:
        """The header of the stored batch."""

    @property
    def columns(self) -> Columns:
        """The columns of the batch."""

    @property
    def count(self) -> int:
        """The number of records in the batch."""

    @property
    def first_delta(self) -> int:
        """Offset of the first record minus the base offset in the header."""

    @property
    def offsets(self) -> NDArray[np.int64]:
        """The offset of each record."""

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """The timestamp of each record."""


class LastArrays:
    """Keep the arrays that many consecutive batches share; arrays of Arrow never change.

    Each attribute is a tuple that is replaced as a whole and never changed. So threads need no
    lock.

    Attributes:
        offsets: the first offset and the end offset of a range, and the array of these offsets.
            Batches get slices of this array.
        times: a timestamp, a count, and an array that has the timestamp `count` times.
        starts: a count, a size, and the array of starts for `count` cells of this size.
        nulls: a count, an array of `count` null keys, and an array of `count` null headers.
    """

    offsets: tuple[int, int, pa.Array] = (0, 0, pa.array([], INT64))
    times: tuple[int, int, pa.Array] = (0, 0, pa.array([], INT64))
    starts: tuple[int, int, pa.Buffer] = (-1, -1, pa.py_buffer(b""))
    nulls: tuple[int, pa.Array, pa.Array] = (0, pa.nulls(0, BINARY), pa.nulls(0, HEADERS))


def starts_of(count: int, cell_bytes: int) -> pa.Buffer:
    """Return, in Arrow's form, the starts of cells of one size."""
    return pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(cell_bytes))


def binary_array(column: BytesColumn) -> pa.Array:
    """View a column as an Arrow array over the column's own buffer."""
    buffer, validity = pa.py_buffer(column.buffer), None
    count, cell_bytes = column.cell_count, column.cell_bytes
    if cell_bytes < VARIABLE_WITH_NULLS:
        known = LastArrays.starts
        if known[0] != count or known[1] != cell_bytes:
            known = LastArrays.starts = (count, cell_bytes, starts_of(count, cell_bytes))
        starts = known[2]
    else:
        starts = buffer.slice(column.starts_at, 4 * (count + 1))
        if cell_bytes == VARIABLE_WITH_NULLS:
            validity = buffer.slice(column.validity_at, (count + 7) // 8)
    start = column.data_start
    data = buffer.slice(start, column.data_end - start)
    return _from_buffers(BINARY, count, [validity, starts, data], -1 if validity else 0)


def _int64(numbers: NDArray[np.int64]) -> pa.Array:
    """Build an Arrow array of numbers; `pa.array` is slower, because it inspects the numbers."""
    return _from_buffers(INT64, len(numbers), [None, pa.py_buffer(numbers)], 0)


def _offsets(batch: ColumnarBatch) -> pa.Array:
    """Return a batch's offsets; consecutive batches get slices of one shared array."""
    count = batch.count
    if batch.columns.offset_deltas is not None or not count:
        return _int64(batch.offsets)
    first, end, stretch = LastArrays.offsets
    base = batch.header.base_offset + batch.first_delta
    if not first <= base <= base + count <= end:
        is_next = base == end
        first, end = base, base + count * (STRETCH if is_next else 1)
        stretch = _int64(np.arange(first, end, dtype=np.int64))
        LastArrays.offsets = (first, end, stretch)
        if not is_next:
            return stretch
    return stretch.slice(base - first, count)


def _times(batch: ColumnarBatch) -> pa.Array:
    if batch.columns.timestamps is not None:
        return _int64(batch.timestamps)
    known = LastArrays.times
    if known[0] != batch.header.base_timestamp or known[1] != batch.count:
        known = (batch.header.base_timestamp, batch.count, _int64(batch.timestamps))
        LastArrays.times = known
    return known[2]


def null_arrays(count: int) -> tuple[int, pa.Array, pa.Array]:
    """Return arrays of `count` null keys and `count` null headers."""
    known = LastArrays.nulls
    if known[0] != count:
        known = LastArrays.nulls = (count, pa.nulls(count, BINARY), pa.nulls(count, HEADERS))
    return known


def header_array(batch: ColumnarBatch) -> pa.Array:
    """View the headers of a batch as lists of pairs."""
    columns = batch.columns
    if columns.header_starts is None or columns.header_names is None:
        return null_arrays(batch.count)[2]
    assert columns.header_values is not None
    pairs = pa.StructArray.from_arrays(
        [binary_array(columns.header_names).cast(pa.string()), binary_array(columns.header_values)],
        fields=list(HEADER),
    )
    return pa.ListArray.from_arrays(pa.array(columns.header_starts.astype(np.int32)), pairs)


def to_record_batch(batch: ColumnarBatch) -> pa.RecordBatch:
    """Convert a batch's records to Arrow: offset, timestamp (ms), key, value, headers."""
    keys = batch.columns.keys
    arrays = [
        _offsets(batch),
        _times(batch),
        null_arrays(batch.count)[1] if keys is None else binary_array(keys),
        binary_array(batch.columns.values),
        header_array(batch),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
