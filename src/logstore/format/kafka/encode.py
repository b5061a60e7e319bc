"""Encode records as the rows of a Kafka batch (see `decode` for a record's layout).

The numbers of all records are encoded at once, as one array of bytes. The next step interleaves the
encoded numbers and the cells. All bytes that do not depend on the batch's place in the log are
built before the log's lock is taken. All bytes that the checksum covers are built before the lock
is taken.
"""

from __future__ import annotations

import io
import struct
from array import array
from collections.abc import Sequence
from functools import lru_cache
from operator import countOf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore.format.batch import Headers
from logstore.format.batch_parts import BatchHeader
from logstore.format.expansion import expansion_bytes
from logstore.format.kafka.crc import crc32c
from logstore.format.kafka.header import (
    CODEC_MASK,
    CRC_END,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
)
from logstore.format.prefix import BATCH_BYTES_MAX

NO_TIMESTAMP = -1
CRC_AT = 17
LAST_DELTA_AT = 23
PLACE_BYTES = 16
ROWS_PLAIN_MAX = 24
ROWS_ALIKE_MAX = 4096  # for at most this many rows, the bytes around the values are cached
NULL = b"\x01"  # the size -1 as a varint
PLAIN_CELLS = {bytes, type(None)}
ONE_OCTET = [bytes((number,)) for number in range(0x80)]

Numbers = NDArray[np.int64]


class KafkaPayload(NamedTuple):
    """Hold a batch except its first 16 bytes, which depend on its place in the log."""

    body: bytes
    record_count: int
    last_offset_delta: int
    max_timestamp: int
    rows_bytes: int = 0
    header_count: int = 0

    @property
    def expansion_bytes(self) -> int:
        """Estimated memory of the batch when it is decoded."""
        return expansion_bytes(self.rows_bytes, self.record_count, self.header_count)

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch."""
        return PLACE_BYTES + len(self.body)

    def spanning(self, last_offset_delta: int) -> KafkaPayload:
        """Return a payload with the same records and another last offset delta."""
        rest = bytearray(self.body[CRC_END - PLACE_BYTES :])
        struct.pack_into(">i", rest, LAST_DELTA_AT - CRC_END, last_offset_delta)
        body = struct.pack(">BI", MAGIC, crc32c(rest)) + rest
        return self._replace(body=body, last_offset_delta=last_offset_delta)


def build_payload(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    timestamps: Numbers | int,
    headers: Sequence[Headers] | None,
    *,
    offset_deltas: Numbers | None = None,
    codec_id: int = 0,
    is_log_append_time: bool = False,
    header: BatchHeader | None = None,
) -> KafkaPayload:
    """Encode the records of one batch.

    Args:
        offset_deltas: the offset delta of each record. None if no offset is missing.
        header: the header of the batch from which these records come; the new batch gets the
            producer and the attribute bits of that header.

    Raises:
        TypeError: a value or key has a wrong type. Bytes, None and some bytes-like objects are
            accepted.
    """
    count = len(values)
    attributes = LOG_APPEND_TIME if is_log_append_time else 0
    producer = (-1, -1, -1)
    if header is not None:
        attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
        producer = (header.producer_id, header.producer_epoch, header.base_sequence)
    base_timestamp = max_timestamp = NO_TIMESTAMP
    if count and isinstance(timestamps, int):
        base_timestamp = max_timestamp = timestamps
    elif count:
        assert not isinstance(timestamps, int)
        base_timestamp, max_timestamp = int(timestamps[0]), int(timestamps.max())
    rows = _lay_out(values, keys, timestamps, base_timestamp, offset_deltas, headers)
    rows_bytes = len(rows)
    if codec_id and count:
        from logstore.format.kafka import codecs as kafka_codecs

        rows = kafka_codecs.compress(codec_id, rows)
        attributes |= codec_id
    if len(rows) + HEADER_BYTES > BATCH_BYTES_MAX:
        raise ValueError(f"{len(rows)} bytes of records are more than one batch can hold (2 GiB)")
    last_delta = max(count - 1, 0)
    if offset_deltas is not None and count:
        last_delta = int(offset_deltas[-1])
    rest = HEADER.pack(
        0, 0, 0, MAGIC, 0, attributes, last_delta, base_timestamp, max_timestamp, *producer, count
    )[CRC_END:]
    crc = crc32c(rows, crc32c(rest))
    body = b"".join((struct.pack(">BI", MAGIC, crc), rest, rows))
    header_count = 0 if headers is None else sum(map(len, headers))
    return KafkaPayload(body, count, last_delta, max_timestamp, rows_bytes, header_count)


def _lay_out(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    timestamps: Numbers | int,
    base_timestamp: int,
    offset_deltas: Numbers | None,
    headers: Sequence[Headers] | None,
) -> bytes:
    """Encode records one after the other, by the method that is fastest for these records."""
    count = len(values)
    is_bare = keys is None and headers is None and offset_deltas is None
    if is_bare and isinstance(timestamps, int) and count <= ROWS_ALIKE_MAX:
        size = equal_size(values)
        if size >= 0:
            return encode_alike(values, size)
    if not set(map(type, values)).union(map(type, keys or ())) <= PLAIN_CELLS:
        raise TypeError("a value or key is neither bytes nor None")
    if count <= ROWS_PLAIN_MAX:
        return _plain(values, keys, timestamps, base_timestamp, offset_deltas, headers)
    deltas = np.arange(count) if offset_deltas is None else offset_deltas
    times = np.zeros(count, np.int64) + timestamps - base_timestamp
    return encode_rows(values, keys, times, deltas, headers)


def _plain(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    timestamps: Numbers | int,
    base_timestamp: int,
    offset_deltas: Numbers | None,
    headers: Sequence[Headers] | None,
) -> bytes:
    """Encode a few records one by one."""
    rows: list[bytes] = []
    for at, value in enumerate(values):
        time = timestamps if isinstance(timestamps, int) else int(timestamps[at])
        key = None if keys is None else keys[at]
        parts = [
            b"\0",
            varint(time - base_timestamp),
            varint(at if offset_deltas is None else int(offset_deltas[at])),
            NULL if key is None else varint(len(key)) + key,
            NULL if value is None else varint(len(value)) + value,
            encode_headers(headers[at]) if headers is not None and headers[at] else b"\0",
        ]
        row = b"".join(parts)
        rows += (varint(len(row)), row)
    return b"".join(rows)


def equal_size(values: Sequence[bytes | None]) -> int:
    """Return the size that all values have, or -1 if the sizes differ or a value is null."""
    try:
        size = len(values[0])  # type: ignore[arg-type]
        alike = countOf(map(len, values), size)  # type: ignore[arg-type]
    except (IndexError, TypeError):
        return -1
    return size if alike == len(values) else -1


def encode_alike(values: Sequence[bytes | None], size: int) -> bytes:
    """Encode values of the same size and timestamp; the bytes around such values are cached."""
    around, around_bytes = _around(len(values), size)
    parts: list[bytes] = [b""] * (2 * len(values) + 1)
    parts[0::2] = around
    parts[1::2] = values  # type: ignore[assignment]
    rows = b"".join(parts)
    if len(rows) != around_bytes + len(values) * size:
        raise TypeError("a value is an array whose items are wider than one byte: give bytes")
    return rows


@lru_cache(maxsize=8)
def _around(count: int, size: int) -> tuple[tuple[bytes, ...], int]:
    """Return the bytes around each of `count` values of one size, and the size of these bytes."""
    pieces = []
    for at in range(count):
        # Attributes, time delta, offset delta, key size, value size.
        head = b"\0\0" + varint(at) + NULL + varint(size)
        pieces.append((b"\0" if at else b"") + varint(len(head) + size + 1) + head)
    pieces.append(b"\0")  # each record ends with its count of headers
    return tuple(pieces), sum(map(len, pieces))


def encode_rows(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    time_deltas: Numbers,
    offset_deltas: Numbers,
    headers: Sequence[Headers] | None,
) -> bytes:
    """Encode the fields of all records at once; the result has one record after the other."""
    count = len(values)
    if not count:
        return b""
    has_keys = keys is not None and any(key is not None for key in keys)
    value_sizes = _sizes(values)
    key_sizes = _sizes(keys) if has_keys and keys is not None else np.full(count, -1, np.int64)
    has_headers = headers is not None and any(headers)
    tails = (
        [encode_headers(pairs) for pairs in headers]
        if has_headers and headers is not None
        else None
    )
    numbers = [time_deltas, offset_deltas, key_sizes, value_sizes]
    encoded = [Varints(each) for each in numbers]
    sizes = sum((each.sizes for each in encoded), np.ones(count, np.int64))
    sizes += np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0)
    sizes += 1 if tails is None else np.fromiter(map(len, tails), np.int64, count)
    length = Varints(sizes)
    one = np.ones(count, np.int64)
    times, deltas, key_size, value_size = encoded
    # The fields of a record in three groups: before the key, before the value, after the value.
    first: list[Varints | Numbers] = [length, one, times, deltas, key_size]
    middle: list[Varints | Numbers] = [value_size]
    # If no record has headers, each record ends with the header count 0.
    last: list[Varints | Numbers] = [] if tails is not None else [one]
    meta, bounds = weave(count, [*first, *middle, *last], [len(first), len(middle), len(last)])
    read = io.BytesIO(meta).read
    before, between, behind = bounds
    if not has_keys and tails is None:
        # Join the bytes after each value to the bytes before the next value.
        joined = before + between
        joined[1:] += behind[:-1]
        parts: list[bytes] = [b""] * (2 * count + 1)
        parts[0:-1:2] = map(read, joined.tolist())
        parts[1::2] = _filled(values)
        parts[-1] = read()
        return b"".join(parts)
    pieces = np.stack((before, between, behind), axis=1).ravel()
    cut = list(map(read, pieces.tolist()))
    parts = [b""] * (6 * count)
    parts[0::6], parts[2::6], parts[4::6] = cut[0::3], cut[1::3], cut[2::3]
    if keys is not None:
        parts[1::6] = _filled(keys)
    parts[3::6] = _filled(values)
    if tails is not None:
        parts[5::6] = tails
    return b"".join(parts)


def _filled(cells: Sequence[bytes | None]) -> Sequence[bytes]:
    try:
        b"".join(cells)  # type: ignore[arg-type]
    except TypeError:
        return [cell or b"" for cell in cells]
    return cells  # type: ignore[return-value]


def _sizes(cells: Sequence[bytes | None]) -> Numbers:
    try:
        lengths = array("q", map(len, cells))  # type: ignore[arg-type]
    except TypeError:
        lengths = array("q", [-1 if cell is None else len(cell) for cell in cells])
    return np.frombuffer(lengths, np.int64)


class Varints:
    """Hold numbers that will be zigzag varints, and the encoded size of each number."""

    __slots__ = ("numbers", "sizes")

    def __init__(self, numbers: Numbers) -> None:
        zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
        self.numbers = zigzag
        self.sizes = np.ones(len(numbers), np.int64)
        highest, shift = int(zigzag.max()), 7
        while highest >> shift:
            self.sizes += zigzag >= np.uint64(1 << shift)
            shift += 7


def weave(
    count: int, fields: list[Varints | Numbers], groups: list[int]
) -> tuple[bytes, list[Numbers]]:
    """Encode the fields of all records in one buffer; return the buffer and each group's sizes.

    A field that is not a `Varints` becomes one zero byte.
    """
    sizes = [field.sizes if isinstance(field, Varints) else field for field in fields]
    totals: list[Numbers] = []
    at = 0
    for width in groups:
        totals.append(sum(sizes[at : at + width], np.zeros(count, np.int64)))
        at += width
    ends = np.cumsum(sum(totals, np.zeros(count, np.int64)))
    out = np.zeros(int(ends[-1]), np.uint8)
    position = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    for field, size in zip(fields, sizes, strict=True):
        if isinstance(field, Varints):
            _put(out, position, field)
        position = position + size
    return out.tobytes(), totals


def _put(out: NDArray[np.uint8], position: Numbers, field: Varints) -> None:
    """Write one varint for each record into `out`; `position` has the place of each varint."""
    numbers, rest = field.numbers, field.sizes
    most = int(rest.max())
    if most == 1:
        out[position] = numbers
        return
    out[position] = (numbers & np.uint64(0x7F)) | ((rest > 1).astype(np.uint64) << np.uint64(7))
    for octet in range(1, most):
        more = np.flatnonzero(rest > octet)
        part = (numbers[more] >> np.uint64(7 * octet)) & np.uint64(0x7F)
        part |= (rest[more] > octet + 1).astype(np.uint64) << np.uint64(7)
        out[position[more] + octet] = part


def encode_headers(pairs: Headers) -> bytes:
    """Encode the headers of one record; the count of headers comes first."""
    parts = [varint(len(pairs))]
    for name, cell in pairs:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded)
        parts += (varint(-1),) if cell is None else (varint(len(cell)), cell)
    return b"".join(parts)


def varint(number: int) -> bytes:
    """Encode a number as a zigzag varint."""
    zigzag = (number << 1) ^ (number >> 63)
    if zigzag < 0x80:
        return ONE_OCTET[zigzag]
    octets = bytearray()
    while zigzag > 0x7F:
        octets.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    octets.append(zigzag)
    return bytes(octets)
