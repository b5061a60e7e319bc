"""Decode the rows of Kafka's batches into columns.

    record   length | attributes u8 | timestamp delta | offset delta | key size | key |
             value size | value | count of headers | (name size | name | size | cell)...

All numbers except the attributes are zigzag varints. A size of -1 means null. First, `bounds` finds
the start of each row. Each field is read from all rows of many batches at once, so thousands of
records share the cost of a NumPy call. If there are only a few rows, they are read one by one.
Record headers are always read one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from logstore.format.batch import WrongMaxTimestampError, null_column
from logstore.format.batch_parts import BatchHeader, Columns
from logstore.format.columnar.columns import Buffer, BytesColumn
from logstore.format.expansion import (
    EXPANSION_BYTES_MAX,
    RECORD_HEADER_BYTES,
    expansion_bytes,
    too_much,
)
from logstore.format.kafka.bounds import Batches, record_bounds
from logstore.format.kafka.cells import column_of, columns_of
from logstore.format.kafka.header import (
    LOG_APPEND_TIME,
    RECORD_BYTES_MIN,
)
from logstore.format.kafka.varints import PADDING, Numbers, varint, varints

ROWS_PLAIN_MAX = 24

Pairs = list[tuple[bytes, "bytes | None"]]


class Rows(NamedTuple):
    """Hold the fields of all rows of some batches; timestamps and offsets are deltas, as stored.

    Attributes:
        values: the column of values of each batch; None if all values of the batch are null.
        keys: the column of keys of each batch; None if all keys of the batch are null.
        headers: the headers of each record; None if no record has headers.
    """

    values: list[BytesColumn | None]
    keys: list[BytesColumn | None]
    time_deltas: Numbers
    offset_deltas: Numbers
    headers: list[Pairs] | None


class Fields(NamedTuple):
    """Hold the fields of all records: numbers, and the places of keys and values.

    Attributes:
        begins: the position at which each record begins; a record begins with its length.
        ends: the end of each record.
        delta_starts: the position of each record's offset delta.
        headers: the headers of each record. None if no record has headers, or if the headers were
            not read.
    """

    begins: Numbers
    ends: Numbers
    delta_starts: Numbers
    time_deltas: Numbers
    offset_deltas: Numbers
    key_starts: Numbers
    key_sizes: Numbers
    value_starts: Numbers
    value_sizes: Numbers
    headers: list[Pairs] | None


def decode_rows(
    data: Buffer, header: BatchHeader, expansion_bytes_max: int = EXPANSION_BYTES_MAX
) -> Columns:
    """Decode the uncompressed records of one batch into columns; see `decode_many`."""
    return decode_many([data], [header], expansion_bytes_max)[0]


def decode_many(
    parts: Sequence[Buffer],
    headers: Sequence[BatchHeader],
    expansion_bytes_max: int = EXPANSION_BYTES_MAX,
) -> list[Columns]:
    """Decode the uncompressed records of batches into columns; each batch must have a record.

    Raises:
        RecordExpansionError: one batch, or all batches together, need more memory than allowed.
        ValueError: the records of one batch contradict each other or its header.
    """
    batches = batches_of(parts, headers, expansion_bytes_max)
    left = headers_max(parts, headers, expansion_bytes_max)
    is_few = int(batches.counts.sum()) <= ROWS_PLAIN_MAX
    rows = _plain(batches, left) if is_few else _bulk(batches, left)
    return _columns(batches, rows, headers)


def check_many(
    parts: Sequence[Buffer],
    headers: Sequence[BatchHeader],
    expansion_bytes_max: int,
    *,
    checks_claims: bool,
) -> None:
    """Make all checks of `decode_many` in half the time, because no cell is copied.

    Args:
        checks_claims: whether to also compare each header's largest timestamp with the records.

    Raises:
        The errors that `decode_many` raises. WrongMaxTimestampError: the records are valid, but the
        largest timestamp in a header is wrong.
    """
    batches = batches_of(parts, headers, expansion_bytes_max)
    left = headers_max(parts, headers, expansion_bytes_max)
    if int(batches.counts.sum()) <= ROWS_PLAIN_MAX:
        rows = _plain(batches, left)
        times, deltas = rows.time_deltas, rows.offset_deltas
    else:
        fields = read_fields(batches, left)
        times, deltas = fields.time_deltas, fields.offset_deltas
    _, latest = check_numbers(batches, times, deltas, headers)
    if not checks_claims:
        return
    for most, header in zip(latest.tolist(), headers, strict=True):
        if not header.attributes & LOG_APPEND_TIME and most != header.max_timestamp:
            raise WrongMaxTimestampError(header.max_timestamp, most)


def headers_max(
    parts: Sequence[Buffer], headers: Sequence[BatchHeader], expansion_bytes_max: int
) -> HeadersLeft:
    """Create one limit for the record headers of all batches: the highest limit of any batch."""
    least = min(
        expansion_bytes(len(part), header.record_count)
        for part, header in zip(parts, headers, strict=True)
    )
    room = (expansion_bytes_max - least) // RECORD_HEADER_BYTES
    return HeadersLeft(room, expansion_bytes_max)


class HeadersLeft:
    """Count the record headers that some batches may still have, up to a limit."""

    __slots__ = ("count", "expansion_bytes_max")

    def __init__(self, count: int, expansion_bytes_max: int) -> None:
        self.count, self.expansion_bytes_max = count, expansion_bytes_max

    def take(self, count: int) -> None:
        """Use up `count` headers of the limit; raise RecordExpansionError if too few are left."""
        self.count -= count
        if self.count < 0:
            raise too_much(self.expansion_bytes_max + 1, self.expansion_bytes_max)


def batches_of(
    parts: Sequence[Buffer], headers: Sequence[BatchHeader], expansion_bytes_max: int
) -> Batches:
    """Join the rows of batches, one batch after the other; raise if there are too many records."""
    for part, header in zip(parts, headers, strict=True):
        needed = expansion_bytes(len(part), header.record_count)
        if needed > expansion_bytes_max:
            raise too_much(needed, expansion_bytes_max)
        if header.record_count * RECORD_BYTES_MIN > len(part):
            raise ValueError(f"{header.record_count} records do not fit into {len(part)} bytes")
    counts = np.array([header.record_count for header in headers], np.int64)
    starts = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=starts[1:])
    data = b"".join([*parts, PADDING])
    return Batches(data, np.frombuffer(data, np.uint8), starts, counts)


def check_numbers(
    batches: Batches, times: Numbers, deltas: Numbers, headers: Sequence[BatchHeader]
) -> tuple[Numbers, Numbers]:
    """Compare the records' offsets and timestamps with the headers.

    Return two arrays: the last offset delta in each batch's header, and the latest timestamp of
    each batch's records.
    """
    firsts = batches.firsts
    last_deltas = np.array([each.last_offset - each.base_offset for each in headers], np.int64)
    lasts = deltas[firsts[1:] - 1]
    steps = np.diff(deltas)
    steps[firsts[1:-1] - 1] = 1  # ignore the step from one batch to the next
    # The difference of two deltas that are not negative always fits in 64 bits.
    if int(deltas.min()) < 0 or bool((steps < 1).any() or (lasts > last_deltas).any()):
        raise ValueError("the offset deltas do not increase, or exceed the last offset delta")
    bases = np.array([header.base_timestamp for header in headers], np.int64)
    for extreme in (np.minimum, np.maximum):
        most = extreme.reduceat(times, firsts[:-1])
        latest = bases + most
        if bool(((bases ^ latest) & (most ^ latest) < 0).any()):  # a sum has overflowed 64 bits
            raise ValueError("a timestamp is out of range")
    return last_deltas, latest


def _columns(batches: Batches, rows: Rows, headers: Sequence[BatchHeader]) -> list[Columns]:
    """Build columns from the fields, and compare the columns with the headers."""
    counts, firsts, deltas = batches.counts, batches.firsts, rows.offset_deltas
    times = rows.time_deltas
    last_deltas, _ = check_numbers(batches, times, deltas, headers)
    lasts = deltas[firsts[1:] - 1]
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
    """Encode the headers of a batch: where each record's headers start, the names, the values."""
    if headers is None or not any(headers):
        return None, None, None
    starts = np.zeros(len(headers) + 1, np.uint32)
    np.cumsum([len(pairs) for pairs in headers], out=starts[1:])
    pairs = [pair for row in headers for pair in row]
    # If a name is not UTF-8, each invalid part becomes a replacement character, as in Java.
    texts = {name: name.decode(errors="replace").encode() for name, _ in pairs}
    names = column_of([texts[name] for name, _ in pairs])
    return starts, names, column_of([cell for _, cell in pairs])


# --- one by one -----------------------------------------------------------------------------------


def _cell(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = varint(data, position)
    if size == -1:
        return None, position
    if size < 0 or position + size > end:
        raise ValueError("a cell ends after the end of its record")
    return data[position : position + size], position + size


def read_headers(data: bytes, position: int, end: int, left: HeadersLeft | None = None) -> Pairs:
    """Read the headers of one record; the headers must end where the record ends."""
    count, position = varint(data, position)
    if not 0 <= count <= (end - position) // 2:
        raise ValueError(f"{count} headers do not fit into {end - position} bytes")
    if left is not None:
        left.take(count)
    found = []
    for _ in range(count):
        name, position = _cell(data, position, end)
        cell, position = _cell(data, position, end)
        if name is None:
            raise ValueError("a header has no name")
        found.append((name, cell))
    if position != end:
        raise ValueError("a record is longer than its contents")
    return found


def _plain(batches: Batches, left: HeadersLeft) -> Rows:
    """Read batches record by record."""
    rows = Rows([], [], np.empty(0, np.int64), np.empty(0, np.int64), [])
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
                raise ValueError("a record ends after the end of its batch")
            time, position = varint(batches.data, position + 1)
            delta, position = varint(batches.data, position)
            key, position = _cell(batches.data, position, end)
            value, position = _cell(batches.data, position, end)
            times.append(time)
            deltas.append(delta)
            keys.append(key)
            values.append(value)
            rows.headers.append(read_headers(batches.data, position, end, left))
        if end != stop:
            raise ValueError("bytes are left after the last record")
        rows.values.append(column_of(values))
        rows.keys.append(None if all(key is None for key in keys) else column_of(keys))
    try:
        numbers = np.array(times, np.int64), np.array(deltas, np.int64)
    except OverflowError:
        raise ValueError("a delta is out of range") from None
    return rows._replace(time_deltas=numbers[0], offset_deltas=numbers[1])


# --- all at once ----------------------------------------------------------------------------------


def _bulk(batches: Batches, left: HeadersLeft) -> Rows:
    """Read every field of all records at once, and copy the cells."""
    fields = read_fields(batches, left)
    return Rows(
        columns_of(batches, fields.value_starts, fields.value_sizes),
        columns_of(batches, fields.key_starts, fields.key_sizes),
        fields.time_deltas,
        fields.offset_deltas,
        fields.headers,
    )


def read_fields(
    batches: Batches, left: HeadersLeft | None, bounds: tuple[Numbers, Numbers] | None = None
) -> Fields:
    """Read every field of all records at once.

    Args:
        left: the limit for record headers; None if the caller does not use the headers.
        bounds: the start and the end of each record, if they are known.
    """
    begins, ends = record_bounds(batches) if bounds is None else bounds
    data = batches.data
    lengths, position = varints(data, begins, ends)
    if int(lengths.min()) < RECORD_BYTES_MIN - 1:
        raise ValueError("a record is shorter than a record can be")
    times, position = varints(data, position + 1, ends)
    delta_starts = position
    deltas, position = varints(data, position, ends)
    key_sizes, key_starts = varints(data, position, ends)
    position = _behind_cells(key_sizes, key_starts, ends)
    value_sizes, value_starts = varints(data, position, ends)
    position = _behind_cells(value_sizes, value_starts, ends)
    if bool((position >= ends).any()):
        raise ValueError("a record ends before its headers")
    headers = None
    is_bare = (batches.octets[position] == 0) & (position + 1 == ends)
    if left is not None and not is_bare.all():
        headers = []
        for at, end, is_none in zip(
            position.tolist(), ends.tolist(), is_bare.tolist(), strict=True
        ):
            headers.append([] if is_none else read_headers(batches.data, at, end, left))
    return Fields(
        begins, ends, delta_starts, times, deltas, key_starts, key_sizes, value_starts,
        value_sizes, headers,
    )  # fmt: skip


def _behind_cells(sizes: Numbers, starts: Numbers, ends: Numbers) -> Numbers:
    """Return the ends of cells; raise ValueError if a cell ends after the end of its record."""
    if bool((sizes > ends - starts).any()) or int(sizes.min()) < -1:
        raise ValueError("a cell ends after the end of its record")
    return starts + np.maximum(sizes, 0)
