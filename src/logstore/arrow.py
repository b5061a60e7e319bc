"""Read batches into Arrow's tables and streams, and build batches from Arrow (extra `arrow`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logstore.arguments import wrong
from logstore.errors import MissingKeyError
from logstore.format import layouts
from logstore.format.arrow_columns import SCHEMA, LastArrays, starts_of, to_record_batch
from logstore.format.batch import Headers, RecordBatch
from logstore.format.columnar import payload as payloads
from logstore.format.columnar import record_batch as columnar
from logstore.format.columnar.columns import (
    HEAD,
    PADDING,
    VARIABLE_WITH_NULLS,
    Buffer,
    encode_arrays,
)

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError(
        "the exchange with Arrow needs pyarrow: pip install 'logstore[arrow]'", name="pyarrow"
    ) from error

# The Arrow types that have the same layout as our columns, each with the type of its starts.
STARTS = {
    pa.binary().id: np.int32,
    pa.string().id: np.int32,
    pa.large_binary().id: np.int64,
    pa.large_string().id: np.int64,
}
KNOWN_COLUMNS = frozenset(("value", "key", "timestamp", "headers", "offset"))


def to_table(batches: Iterable[RecordBatch]) -> pa.Table:
    """Read record batches into one Arrow Table."""
    return pa.Table.from_batches([to_record_batch(batch) for batch in batches], SCHEMA)


def to_reader(batches: Iterable[RecordBatch]) -> pa.RecordBatchReader:
    """Return record batches as an Arrow stream; each batch is read when the stream reaches it."""
    return pa.RecordBatchReader.from_batches(SCHEMA, map(to_record_batch, batches))


# --- from Arrow -----------------------------------------------------------------------------------


def _as_batch(data: Any) -> pa.RecordBatch:
    """Convert any object with Arrow's interface to one Arrow RecordBatch."""
    if isinstance(data, pa.RecordBatch):
        return data
    if not isinstance(data, pa.Table):
        if hasattr(data, "__arrow_c_stream__"):
            data = pa.table(data)
        elif hasattr(data, "__arrow_c_array__"):
            return pa.record_batch(data)
        else:
            wanted = "a pyarrow RecordBatch or Table, or have Arrow's PyCapsule interface"
            raise wrong("batch", wanted, data)
    batches = data.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_arrays(
            [pa.array([], field.type) for field in data.schema], schema=data.schema
        )
    raise ValueError("the table is too large for one batch: append its batches one by one")


def _as_binary(array: pa.Array, name: str) -> pa.Array:
    """Convert an array of bytes or text to one of the types in STARTS.

    Raise TypeError for any other array.
    """
    kind, types = array.type, pa.types
    if types.is_fixed_size_binary(kind) or types.is_null(kind):
        return array.cast(pa.binary())
    if types.is_dictionary(kind) or types.is_binary_view(kind) or types.is_string_view(kind):
        return array.cast(pa.large_binary())
    raise TypeError(f"column {name!r} is {kind}, not binary or string")


def _cells(array: pa.Array, name: str) -> tuple[list[Buffer], int]:
    """Encode an Arrow column of bytes or text as one of our columns, without copying its data."""
    kind_of_starts = STARTS.get(array.type.id)
    if kind_of_starts is None:
        array = _as_binary(array, name)
        kind_of_starts = STARTS[array.type.id]
    count, begin = len(array), array.offset
    _, starts_buffer, cells_buffer = array.buffers()
    known, cell_bytes, known_starts = LastArrays.starts
    if known == count > 0 and not begin and kind_of_starts is np.int32 and not array.null_count:
        # This batch has as many cells as the previous batch, in which all cells had one size. If
        # the starts of the cells are also the same, the cells of this batch have that size.
        size = count * cell_bytes
        if starts_buffer.slice(0, 4 * (count + 1)).equals(known_starts) and cells_buffer:
            data = memoryview(cells_buffer)[:size]
            if len(data) == size:
                return [HEAD.pack(size, cell_bytes), data, PADDING[size & 7]], count
    if starts_buffer is not None and starts_buffer.size:
        starts = np.frombuffer(starts_buffer, kind_of_starts)[begin : begin + count + 1]
    else:
        starts = np.zeros(count + 1, kind_of_starts)
    first, last = int(starts[0]), int(starts[-1])
    data = memoryview(b"") if cells_buffer is None else memoryview(cells_buffer)[first:last]
    is_valid = None
    if array.null_count:
        is_valid = array.is_valid().to_numpy(zero_copy_only=False)
        lengths = np.diff(starts)
        if bool(lengths[~is_valid].any()):  # remove bytes that a null cell may have
            return _without_hidden_bytes(array), count
    parts = encode_arrays(data, starts - first if first else starts, is_valid)
    cell_bytes = HEAD.unpack_from(parts[0])[1]
    if cell_bytes < VARIABLE_WITH_NULLS and not begin and kind_of_starts is np.int32:
        LastArrays.starts = (count, cell_bytes, starts_of(count, cell_bytes))
    return parts, count


def _without_hidden_bytes(array: pa.Array) -> list[Buffer]:
    from logstore.format.columnar.columns import encode_cells

    return encode_cells(array.cast(pa.large_binary()).to_pylist())


def _timestamps(array: pa.Array) -> NDArray[np.int64]:
    if pa.types.is_timestamp(array.type):
        # Cut off fractions of a ms; refuse times in seconds that overflow.
        is_finer = array.type.unit in ("us", "ns")
        array = array.cast(pa.timestamp("ms", array.type.tz), safe=not is_finer).cast(pa.int64())
    elif pa.types.is_integer(array.type):
        array = array.cast(pa.int64())
    else:
        raise TypeError(f"column 'timestamp' is {array.type}, not a timestamp or whole numbers")
    if array.null_count:
        raise ValueError("column 'timestamp' has nulls: leave it out, or fill it")
    times: NDArray[np.int64] = array.to_numpy()
    if len(times) and int(times.min()) < 0:
        raise ValueError("column 'timestamp' has times before 1970")
    return times


def _header_rows(array: pa.Array) -> list[Headers]:
    from logstore.log.write.encode import check_headers

    kind = array.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    is_null = pa.types.is_null(kind)
    if not is_null and not (
        is_list
        and pa.types.is_struct(kind.value_type)
        and {field.name for field in kind.value_type} == {"key", "value"}
    ):
        raise TypeError(f"column 'headers' is {kind}, not a list of structs of key and value")
    rows = array.to_pylist()
    return [
        check_headers([pair and (pair["key"], pair["value"]) for pair in row or ()]) for row in rows
    ]


def _list_of(array: pa.Array, name: str) -> list[bytes | None]:
    """Convert an Arrow column of bytes or text to a list of bytes."""
    if array.type.id not in STARTS:
        array = _as_binary(array, name)
    cells: list[bytes | None] = array.cast(pa.large_binary()).to_pylist()
    return cells


def build_payload(
    data: Any,
    *,
    now_ms: int,
    codec_id: int,
    is_log_append_time: bool,
    magic: int = columnar.MAGIC,
    requires_keys: bool = False,
) -> layouts.AnyPayload:
    """Encode Arrow rows as one batch; a TypeError or ValueError explains what is wrong."""
    from logstore.log.write.encode import encode_headers

    batch = _as_batch(data)
    names = batch.schema.names
    if "value" not in names or len(KNOWN_COLUMNS.intersection(names)) < len(names):
        raise ValueError(
            "the columns must be value, and optionally key, timestamp and headers; the given "
            f"columns are {names}"
        )
    if requires_keys:
        _check_keys(batch)
    if magic != columnar.MAGIC:
        return _build_rows(batch, now_ms, codec_id, is_log_append_time, magic)
    values, count = _cells(batch.column(names.index("value")), "value")
    keys = headers = None
    timestamps: NDArray[np.int64] | int = now_ms
    if "key" in names:
        column = batch.column(names.index("key"))
        if column.null_count < count:
            keys, _ = _cells(column, "key")
    if "timestamp" in names and not is_log_append_time:
        timestamps = _timestamps(batch.column(names.index("timestamp")))
    if "headers" in names:
        headers = encode_headers(_header_rows(batch.column(names.index("headers"))))
    return payloads.build_payload(
        values,
        count,
        keys=keys,
        headers=headers,
        timestamps=timestamps,
        codec_id=codec_id,
        is_log_append_time=is_log_append_time,
    )


def _check_keys(batch: pa.RecordBatch) -> None:
    """Raise MissingKeyError if a row has no key."""
    if not batch.num_rows:
        return
    if "key" not in batch.schema.names:
        raise MissingKeyError(number=0)
    is_null = batch.column(batch.schema.names.index("key")).is_null()
    if is_null.true_count:
        raise MissingKeyError(number=is_null.index(True).as_py())


def _build_rows(
    batch: pa.RecordBatch, now_ms: int, codec_id: int, is_log_append_time: bool, magic: int
) -> layouts.AnyPayload:
    """Encode Arrow rows in a layout that stores rows one after the other."""
    from logstore.log.write import encode

    names = batch.schema.names
    times: encode.Timestamps = None
    if "timestamp" in names and not is_log_append_time:
        times = _timestamps(batch.column(names.index("timestamp")))
    return encode.build(
        _list_of(batch.column(names.index("value")), "value"),
        _list_of(batch.column(names.index("key")), "key") if "key" in names else None,
        times,
        _header_rows(batch.column(names.index("headers"))) if "headers" in names else None,
        now_ms=now_ms,
        codec_id=codec_id,
        is_log_append_time=is_log_append_time,
        magic=magic,
    )


__all__ = ["SCHEMA", "build_payload", "to_reader", "to_record_batch", "to_table"]
