"""Turn the rows of Kafka's batches into columns.

    record   length | attributes u8 | timestamp delta | offset delta | key size | key |
             value size | value | count of headers | (name size | name | size | cell)...

All numbers but the attributes are zigzag varints; a size of -1 is null. Where rows begin is found
first (see `kafka_bounds`); then every field is read from all rows of many batches at once, so what
a call of NumPy costs is shared by thousands of records. A few rows are read the plain way, and so
are headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from logstore.format.batch import BatchHeader, Columns, null_column
from logstore.format.columns import Buffer, BytesColumn
from logstore.format.kafka_bounds import Batches, record_bounds
from logstore.format.kafka_cells import column_of, columns_of
from logstore.format.kafka_header import (
    CODEC_MASK,
    COMPRESSED_RECORDS_MAX,
    HEADERS_MAX,
    LOG_APPEND_TIME,
    RECORD_BYTES_MIN,
)
from logstore.format.kafka_varints import PADDING, Numbers, varint, varints

ROWS_PLAIN_MAX = 24
TIME_DELTA_MAX = 2**62

Pairs = list[tuple[bytes, "bytes | None"]]


class Rows(NamedTuple):
    """Carry what stands in the rows of batches; deltas as they are written.

    Attributes:
        values, keys: of each batch; None where all are null.
        headers: of each record; None when no record has any.
    """

    values: list[BytesColumn | None]
    keys: list[BytesColumn | None]
    time_deltas: Numbers
    offset_deltas: Numbers
    headers: list[Pairs] | None


def decode_rows(data: Buffer, header: BatchHeader) -> Columns:
    """Decode the records of one batch, uncompressed, into columns; see `decode_many`."""
    return decode_many([data], [header])[0]


def decode_many(parts: Sequence[Buffer], headers: Sequence[BatchHeader]) -> list[Columns]:
    """Decode the records of batches, uncompressed, into columns; each has records.

    Raises:
        ValueError: the records of one contradict each other or its header.
    """
    for part, header in zip(parts, headers, strict=True):
        if header.record_count * RECORD_BYTES_MIN > len(part):
            raise ValueError(f"{header.record_count} records cannot be in {len(part)} bytes")
        if header.attributes & CODEC_MASK and header.record_count > COMPRESSED_RECORDS_MAX:
            raise ValueError(f"{header.record_count} records are more than are taken compressed")
    counts = np.array([header.record_count for header in headers], np.int64)
    starts = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=starts[1:])
    data = b"".join([*parts, PADDING])
    batches = Batches(data, np.frombuffer(data, np.uint8), starts, counts)
    rows = _plain(batches) if int(counts.sum()) <= ROWS_PLAIN_MAX else _bulk(batches)
    return _columns(batches, rows, headers)


def _columns(batches: Batches, rows: Rows, headers: Sequence[BatchHeader]) -> list[Columns]:
    """Bring what was read into the form of columns, and hold it against the headers."""
    counts, firsts, deltas = batches.counts, batches.firsts, rows.offset_deltas
    last_deltas = np.array([each.last_offset - each.base_offset for each in headers], np.int64)
    lasts = deltas[firsts[1:] - 1]
    steps = np.diff(deltas)
    steps[firsts[1:-1] - 1] = 1  # from one batch to the next
    # Of deltas that are all 0 or more no difference leaves 64 bits.
    if int(deltas.min()) < 0 or bool((steps < 1).any() or (lasts > last_deltas).any()):
        raise ValueError("offset deltas do not increase up to the last one")
    times = rows.time_deltas
    if int(times.min()) <= -TIME_DELTA_MAX or int(times.max()) >= TIME_DELTA_MAX:
        raise ValueError("a delta is out of range")
    is_dense = (lasts == counts - 1) & (lasts == last_deltas)
    is_one_time = np.bitwise_or.reduceat(times, firsts[:-1]) == 0
    times = times + np.repeat([header.base_timestamp for header in headers], counts)
    found = []
    for number, (first, end) in enumerate(pairwise(firsts.tolist())):
        header, values = headers[number], rows.values[number]
        timestamps: Numbers | None = None if is_one_time[number] else times[first:end]
        if header.attributes & LOG_APPEND_TIME:
            timestamps = np.full(end - first, header.max_timestamp, np.int64)
        found.append(
            Columns(
                null_column(end - first) if values is None else values,
                rows.keys[number],
                timestamps,
                None if is_dense[number] else deltas[first:end].astype(np.uint32),
                *_header_columns(None if rows.headers is None else rows.headers[first:end]),
            )
        )
    return found


def _header_columns(
    headers: list[Pairs] | None,
) -> (
    tuple[np.ndarray[tuple[int], np.dtype[np.uint32]], BytesColumn, BytesColumn]
    | tuple[None, None, None]
):
    """Lay out the headers of one batch's records: where each one's begin, names and cells."""
    if headers is None or not any(headers):
        return None, None, None
    starts = np.zeros(len(headers) + 1, np.uint32)
    np.cumsum([len(pairs) for pairs in headers], out=starts[1:])
    pairs = [pair for row in headers for pair in row]
    # A name that is no UTF-8 is read as Java reads it, with a mark for what cannot be.
    texts = {name: name.decode(errors="replace").encode() for name, _ in pairs}
    names = column_of([texts[name] for name, _ in pairs])
    return starts, names, column_of([cell for _, cell in pairs])


# --- the plain way --------------------------------------------------------------------------------


def _cell(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = varint(data, position)
    if size == -1:
        return None, position
    if size < 0 or position + size > end:
        raise ValueError("a cell ends behind its record")
    return data[position : position + size], position + size


def read_headers(data: bytes, position: int, end: int, count_max: int = HEADERS_MAX) -> Pairs:
    """Read the headers of one record, which must end where it does."""
    count, position = varint(data, position)
    if not 0 <= count <= (end - position) // 2:
        raise ValueError(f"{count} headers cannot be in {end - position} bytes")
    if count > count_max:
        raise ValueError(f"the records of a batch have more than {HEADERS_MAX} headers")
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


def _plain(batches: Batches) -> Rows:
    """Read batches record by record."""
    rows = Rows([], [], np.empty(0, np.int64), np.empty(0, np.int64), [])
    left = HEADERS_MAX
    times: list[int] = []
    deltas: list[int] = []
    assert rows.headers is not None
    places = pairwise(batches.starts.tolist())
    for (start, stop), count in zip(places, batches.counts.tolist(), strict=True):
        keys, values = [], []
        end = start
        for _ in range(count):
            size, position = varint(batches.data, end)
            end = position + size
            if size < RECORD_BYTES_MIN - 1 or end > stop:
                raise ValueError("a record ends behind its batch")
            time, position = varint(batches.data, position + 1)
            delta, position = varint(batches.data, position)
            key, position = _cell(batches.data, position, end)
            value, position = _cell(batches.data, position, end)
            times.append(time)
            deltas.append(delta)
            keys.append(key)
            values.append(value)
            rows.headers.append(read_headers(batches.data, position, end, left))
            left -= len(rows.headers[-1])
        if end != stop:
            raise ValueError("bytes are left behind the last record")
        rows.values.append(column_of(values))
        rows.keys.append(None if all(key is None for key in keys) else column_of(keys))
    try:
        numbers = np.array(times, np.int64), np.array(deltas, np.int64)
    except OverflowError:
        raise ValueError("a delta is out of range") from None
    return rows._replace(time_deltas=numbers[0], offset_deltas=numbers[1])


# --- all at once ----------------------------------------------------------------------------------


def _bulk(batches: Batches) -> Rows:
    """Read every field of all records at once."""
    begins, ends = record_bounds(batches)
    data = batches.data
    _, position = varints(data, begins, ends)
    times, position = varints(data, position + 1, ends)
    deltas, position = varints(data, position, ends)
    key_sizes, key_starts = varints(data, position, ends)
    position = _behind_cells(key_sizes, key_starts, ends)
    value_sizes, value_starts = varints(data, position, ends)
    position = _behind_cells(value_sizes, value_starts, ends)
    if bool((position >= ends).any()):
        raise ValueError("a record ends before its headers")
    headers = None
    is_bare = (batches.octets[position] == 0) & (position + 1 == ends)
    if not is_bare.all():
        headers, left = [], HEADERS_MAX
        for at, end, is_none in zip(
            position.tolist(), ends.tolist(), is_bare.tolist(), strict=True
        ):
            headers.append([] if is_none else read_headers(batches.data, at, end, left))
            left -= len(headers[-1])
    values = columns_of(batches, value_starts, value_sizes)
    return Rows(values, columns_of(batches, key_starts, key_sizes), times, deltas, headers)


def _behind_cells(sizes: Numbers, starts: Numbers, ends: Numbers) -> Numbers:
    """Give where cells end; raises ValueError for one that ends behind its record."""
    if bool((sizes > ends - starts).any()) or int(sizes.min()) < -1:
        raise ValueError("a cell ends behind its record")
    return starts + np.maximum(sizes, 0)
