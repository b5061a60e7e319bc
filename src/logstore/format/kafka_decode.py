"""Turn the rows of a Kafka batch into columns.

    record   length | attributes u8 | timestamp delta | offset delta | key size | key |
             value size | value | count of headers | (name size | name | size | cell)...

All numbers but the attributes are zigzag varints; a size of -1 is null. Where rows begin can only
be found one after the other, but that is all that is done row by row: every other field is read
from all rows at once. A few rows, and headers, are read the plain way.
"""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore.format.batch import BatchHeader, Columns
from logstore.format.columns import BytesColumn, decode_column, encode_arrays, encode_cells
from logstore.format.kafka_header import LOG_APPEND_TIME, RECORD_BYTES_MIN

ROWS_PLAIN_MAX = 24
STRETCHES_MAX = 8
VARINT_BYTES_MAX = 10
INT32_MAX = 2**31 - 1

Numbers = NDArray[np.int64]


class Rows(NamedTuple):
    """Carry what stands in the rows of a batch; deltas as they are written."""

    values: BytesColumn
    keys: BytesColumn | None
    timestamps: Numbers
    offset_deltas: Numbers
    headers: list[list[tuple[bytes, bytes | None]]] | None


def decode_rows(data: bytes, header: BatchHeader) -> Columns:
    """Decode the records of a batch, uncompressed, into columns.

    Raises:
        ValueError: they contradict each other or the header.
    """
    count = header.record_count
    if count * RECORD_BYTES_MIN > len(data):
        raise ValueError(f"{count} records cannot be in {len(data)} bytes")
    rows = _plain(data, count) if count <= ROWS_PLAIN_MAX else _bulk(data, count)
    deltas = rows.offset_deltas
    last_delta = header.last_offset - header.base_offset
    if int(deltas[0]) < 0 or int(deltas[-1]) > last_delta or bool((np.diff(deltas) < 1).any()):
        raise ValueError("offset deltas do not increase up to the last one")
    is_dense = int(deltas[-1]) == count - 1 == last_delta
    timestamps: Numbers | None
    if header.attributes & LOG_APPEND_TIME:
        timestamps = np.full(count, header.max_timestamp, np.int64)
    else:
        timestamps = rows.timestamps + header.base_timestamp
        if not rows.timestamps.any():
            timestamps = None  # all have the header's
    starts = names = cells = None
    if rows.headers is not None:
        starts = np.zeros(count + 1, np.uint32)
        np.cumsum([len(pairs) for pairs in rows.headers], out=starts[1:])
        pairs = [pair for row in rows.headers for pair in row]
        names = column_of([name for name, _ in pairs])
        cells = column_of([cell for _, cell in pairs])
    return Columns(
        rows.values,
        rows.keys,
        timestamps,
        None if is_dense else deltas.astype(np.uint32),
        starts,
        names,
        cells,
    )


def column_of(cells: list[bytes | None] | list[bytes]) -> BytesColumn:
    """Make a column of cells."""
    data = b"".join(encode_cells(cells))
    return decode_column(data, 0, len(data), len(cells))[0]


# --- the plain way --------------------------------------------------------------------------------


def varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint; give it and where it ends."""
    shift = number = 0
    for end in range(position, min(position + VARINT_BYTES_MAX, len(data))):
        octet = data[end]
        number |= (octet & 0x7F) << shift
        if octet < 0x80:
            return (number >> 1) ^ -(number & 1), end + 1
        shift += 7
    raise ValueError("a number does not end")


def _cell(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = varint(data, position)
    if size == -1:
        return None, position
    if size < 0 or position + size > end:
        raise ValueError("a cell ends behind its record")
    return data[position : position + size], position + size


def read_headers(data: bytes, position: int, end: int) -> list[tuple[bytes, bytes | None]]:
    """Read the headers of one record, which must end where it does."""
    count, position = varint(data, position)
    if not 0 <= count <= (end - position) // 2:
        raise ValueError(f"{count} headers cannot be in {end - position} bytes")
    found = []
    for _ in range(count):
        name, position = _cell(data, position, end)
        cell, position = _cell(data, position, end)
        if name is None:
            raise ValueError("a header has no name")
        found.append((name, cell))
    if position != end:
        raise ValueError("a record is longer than what it holds")
    return found


def _plain(data: bytes, count: int) -> Rows:
    values: list[bytes | None] = []
    keys: list[bytes | None] = []
    headers, times, deltas = [], [], []
    end = 0
    for _ in range(count):
        size, position = varint(data, end)
        end = position + size
        if size < RECORD_BYTES_MIN - 1 or end > len(data):
            raise ValueError("a record ends behind its batch")
        time, position = varint(data, position + 1)
        delta, position = varint(data, position)
        key, position = _cell(data, position, end)
        value, position = _cell(data, position, end)
        if not -(2**62) < time < 2**62 or not 0 <= delta <= INT32_MAX:
            raise ValueError("a delta is out of range")
        times.append(time)
        deltas.append(delta)
        keys.append(key)
        values.append(value)
        headers.append(read_headers(data, position, end))
    if end != len(data):
        raise ValueError("bytes are left behind the last record")
    return Rows(
        column_of(values),
        column_of(keys) if any(key is not None for key in keys) else None,
        np.array(times, np.int64),
        np.array(deltas, np.int64),
        headers if any(headers) else None,
    )


# --- all at once ----------------------------------------------------------------------------------


def _bulk(data: bytes, count: int) -> Rows:
    octets = np.frombuffer(data, np.uint8)
    starts, ends = row_bounds(data, octets, count)
    # A field that ends behind its batch is seen when all are read; until then stay in view.
    padded = np.concatenate((octets, np.zeros(VARINT_BYTES_MAX, np.uint8)))
    times, position = varints(padded, starts + 1, ends)
    deltas, position = varints(padded, position, ends)
    key_sizes, position = varints(padded, position, ends)
    key_starts = position
    position = position + np.maximum(key_sizes, 0)
    _check_cells(key_sizes, position, ends)
    value_sizes, position = varints(padded, position, ends)
    value_starts = position
    position = position + np.maximum(value_sizes, 0)
    _check_cells(value_sizes, position, ends)
    if bool((position >= ends).any()):
        raise ValueError("a record ends before its headers")
    headers = None
    is_bare = (padded[position] == 0) & (position + 1 == ends)
    if not is_bare.all():
        headers = [
            read_headers(data, at, end) if at + 1 != end or data[at] else []
            for at, end in zip(position.tolist(), ends.tolist(), strict=True)
        ]
        if not any(headers):
            headers = None
    keys = None
    if bool((key_sizes >= 0).any()):
        keys = gather(data, octets, key_starts, key_sizes)
    return Rows(gather(data, octets, value_starts, value_sizes), keys, times, deltas, headers)


def _check_cells(sizes: Numbers, position: Numbers, ends: Numbers) -> None:
    if bool((sizes < -1).any()) or bool((position > ends).any()):
        raise ValueError("a cell ends behind its record")


def row_bounds(data: bytes, octets: NDArray[np.uint8], count: int) -> tuple[Numbers, Numbers]:
    """Find where each record begins, behind its length, and ends.

    Records of one size stand in stretches, and a stretch is found at one look.
    """
    starts, ends = array("q"), array("q")
    total = len(data)
    done = position = fruitless = 0
    while done < count:
        if position >= total:
            raise ValueError("there are fewer records than the header says")
        octet = data[position]
        if octet < 0x80:
            size, start = octet >> 1, position + 1
        elif position + 1 < total and (high := data[position + 1]) < 0x80:
            size, start = (octet & 0x7F | high << 7) >> 1, position + 2
        else:
            size, start = varint(data, position)
        end = start + size
        if octet & 1 or size < RECORD_BYTES_MIN - 1 or end > total:
            raise ValueError("a record ends behind its batch")
        starts.append(start)
        ends.append(end)
        done += 1
        if fruitless < STRETCHES_MAX and end < total and data[end] == octet:
            stride = end - position
            more = _stretch(octets, position, start - position, stride, count - done)
            fruitless += more < 4
            steps = np.arange(1, more + 1, dtype=np.int64) * stride
            starts.frombytes((steps + start).tobytes())
            ends.frombytes((steps + end).tobytes())
            done += more
            end += more * stride
        position = end
    if position != total:
        raise ValueError("bytes are left behind the last record")
    return np.frombuffer(starts, np.int64), np.frombuffer(ends, np.int64)


def _stretch(
    octets: NDArray[np.uint8], position: int, length_bytes: int, stride: int, most: int
) -> int:
    """Count the records behind the one at `position` that have the same length."""
    rows = min((len(octets) - position) // stride, most + 1)
    table = np.ndarray((rows, length_bytes), np.uint8, octets, position, (stride, 1))
    is_same = (table == table[0]).all(axis=1)
    return (rows if is_same.all() else int(is_same.argmin())) - 1


def varints(octets: NDArray[np.uint8], position: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    """Read a zigzag varint at each position; give them and where each ends.

    Raises:
        ValueError: one does not end, or ends behind its record.
    """
    octet = octets[position]
    position = position + 1
    number = (octet & 0x7F).astype(np.int64)
    if bool((octet >= 0x80).any()):
        going = np.flatnonzero(octet >= 0x80)
        for shift in range(7, 7 * VARINT_BYTES_MAX, 7):
            octet = octets[position[going]]
            number[going] |= (octet & 0x7F).astype(np.int64) << shift
            position[going] += 1
            going = going[octet >= 0x80]
            if not len(going):
                break
            if int(position.max()) >= len(octets):
                raise ValueError("a number does not end")
        else:
            raise ValueError("a number does not end")
    if bool((position > ends).any()):
        raise ValueError("a number ends behind its record")
    # Shifted as an unsigned number: the highest bit of the tenth octet is no sign.
    return (number.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(number & 1), position


def gather(data: bytes, octets: NDArray[np.uint8], starts: Numbers, sizes: Numbers) -> BytesColumn:
    """Put cells that stand between others back to back; a size of -1 is null."""
    count = len(starts)
    is_valid = sizes >= 0
    lengths = np.maximum(sizes, 0)
    cell_starts = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=cell_starts[1:])
    size = int(lengths[0])
    cells = None
    if size and bool((lengths == size).all()):
        cells = _equal_cells(octets, starts, size)
    if cells is None:
        stops = (starts + lengths).tolist()
        cells = b"".join([data[a:b] for a, b in zip(starts.tolist(), stops, strict=True)])
    parts = encode_arrays(cells, cell_starts, None if is_valid.all() else is_valid)
    laid = b"".join(parts)
    return decode_column(laid, 0, len(laid), count)[0]


def _equal_cells(octets: NDArray[np.uint8], starts: Numbers, size: int) -> bytes | None:
    """Copy cells of one size stretch by stretch of evenly spaced ones; None if there are many."""
    strides = np.diff(starts)
    turns = np.flatnonzero(np.diff(strides)) + 1
    if len(turns) > STRETCHES_MAX:
        return None
    bounds = [0, *(turns + 1).tolist(), len(starts)]
    parts = []
    for first, last in pairwise(bounds):
        stride = int(strides[first]) if last - first > 1 else 1
        table = np.ndarray((last - first, size), np.uint8, octets, int(starts[first]), (stride, 1))
        parts.append(table.tobytes())
    return b"".join(parts)
