"""Encode and decode the columnar record batch, magic `L` (docs/FORMAT.md, section 4).

    prefix (17) | rest of the header | payload, padded to 8 | xxh3-64 of all bytes before it

The payload is built before the log's lock is taken, because it does not depend on the offset;
`frame` adds the header and the checksum under the lock.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64, xxh3_64_digest

from logstore.format import compression
from logstore.format.batch import BatchHeader, Columns, RecordBatch
from logstore.format.columns import (
    PADDING,
    Buffer,
    append_padded,
    check_column,
    decode_column,
    encode_column,
    padded,
    raw,
)
from logstore.format.prefix import BATCH_BYTES_MAX, LENGTH_OVERHEAD_BYTES

MAGIC = 0x4C
VERSION = 1
ALIGNMENT = 8

HEADER = struct.Struct(
    ">"
    "q"  # base_offset
    "i"  # batch_length
    "i"  # leader_epoch
    "B"  # magic
    "B"  # version
    "H"  # attributes
    "I"  # record_count
    "I"  # last_offset_delta
    "I"  # stored_bytes
    "q"  # base_timestamp
    "q"  # max_timestamp
    "q"  # producer_id
    "h"  # producer_epoch
    "H"  # reserved_58
    "i"  # base_sequence
    "I"  # payload_bytes
    "I"  # reserved_68
)
HEADER_BYTES = 72
CHECKSUM_BYTES = 8
OVERHEAD_BYTES = HEADER_BYTES + CHECKSUM_BYTES
assert HEADER.size == HEADER_BYTES

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
HAS_TIMESTAMPS = 0x10
HAS_KEYS = 0x20
HAS_HEADERS = 0x40
HAS_DELTAS = 0x80
KNOWN_ATTRIBUTES = 0xFF

NO_TIMESTAMP = -1
# Below this it is faster to copy the parts together than to hash and write them one by one.
JOIN_BYTES_MAX = 16 * 1024

_ONE_COLUMN = struct.Struct("<II")
_pack_header = HEADER.pack
_pack_column = _ONE_COLUMN.pack


class Payload(NamedTuple):
    """Carry what of a batch does not depend on where it will stand in the log."""

    parts: list[Buffer]
    record_count: int
    last_offset_delta: int
    stored_bytes: int
    payload_bytes: int
    attributes: int
    base_timestamp: int
    max_timestamp: int

    @property
    def size_bytes(self) -> int:
        """Size of the batch that this payload will make."""
        return padded(self.stored_bytes) + OVERHEAD_BYTES


def build_payload(
    values: list[Buffer],
    record_count: int,
    *,
    keys: list[Buffer] | None = None,
    headers: list[Buffer] | None = None,
    timestamps: NDArray[np.int64] | int = NO_TIMESTAMP,
    offset_deltas: NDArray[np.uint32] | None = None,
    codec_id: int = 0,
    is_log_append_time: bool = False,
) -> Payload:
    """Put encoded columns together and compress them.

    Args:
        values: parts of an encoded bytes column; `keys` and `headers` likewise.
        timestamps: shape (record_count,), or one number when all are the same.
        offset_deltas: shape (record_count,), strictly increasing; None when dense.
    """
    attributes = LOG_APPEND_TIME if is_log_append_time else 0
    parts: list[Buffer] = []
    last_delta = max(record_count - 1, 0)
    if offset_deltas is not None:
        attributes |= HAS_DELTAS
        last_delta = int(offset_deltas[-1]) if record_count else 0
        append_padded(parts, raw(np.ascontiguousarray(offset_deltas, np.uint32)))
    if isinstance(timestamps, int):
        base_timestamp = max_timestamp = timestamps
    elif len(timestamps) == 0:
        base_timestamp = max_timestamp = NO_TIMESTAMP
    else:
        base_timestamp, max_timestamp = int(timestamps[0]), int(timestamps.max())
        if max_timestamp != base_timestamp or int(timestamps.min()) != base_timestamp:
            attributes |= HAS_TIMESTAMPS
            append_padded(parts, raw(np.ascontiguousarray(timestamps, np.int64)))
    parts += values
    if keys is not None:
        attributes |= HAS_KEYS
        parts += keys
    if headers is not None:
        attributes |= HAS_HEADERS
        parts += headers
    size = stored = sum(map(len, parts))
    if size + OVERHEAD_BYTES > BATCH_BYTES_MAX:
        raise ValueError(f"{size} bytes of records are more than one batch can hold (2 GiB)")
    if codec_id:
        frame_bytes = compression.compress(codec_id, b"".join(parts))
        if len(frame_bytes) < size:
            attributes |= codec_id
            stored = len(frame_bytes)
            parts = [frame_bytes]
    return Payload(
        parts, record_count, last_delta, stored, size, attributes, base_timestamp, max_timestamp
    )


def payload_of(batch: RecordBatch, last_offset_delta: int) -> Payload:
    """Lay out the records of a batch again; the result spans `last_offset_delta` more offsets."""
    columns, header = batch._columns, batch.header
    headers: list[Buffer] | None = None
    if columns.header_starts is not None and columns.header_names is not None:
        headers = []
        append_padded(headers, raw(np.ascontiguousarray(columns.header_starts, np.uint32)))
        headers += encode_column(columns.header_names)
        if columns.header_values is not None:
            headers += encode_column(columns.header_values)
    payload = build_payload(
        encode_column(columns.values),
        batch.count,
        keys=None if columns.keys is None else encode_column(columns.keys),
        headers=headers,
        timestamps=header.base_timestamp if columns.timestamps is None else columns.timestamps,
        offset_deltas=columns.offset_deltas,
        codec_id=header.attributes & CODEC_MASK,
        is_log_append_time=bool(header.attributes & LOG_APPEND_TIME),
    )
    return payload._replace(last_offset_delta=last_offset_delta)


def frame(payload: Payload, base_offset: int, leader_epoch: int) -> list[Buffer]:
    """Give the buffers of a whole batch, checksum last, ready for one gathering write."""
    stored = payload.stored_bytes
    size = padded(stored) + OVERHEAD_BYTES
    header = _pack_header(
        base_offset,
        size - LENGTH_OVERHEAD_BYTES,
        leader_epoch,
        MAGIC,
        VERSION,
        payload.attributes,
        payload.record_count,
        payload.last_offset_delta,
        stored,
        payload.base_timestamp,
        payload.max_timestamp,
        -1,
        -1,
        0,
        -1,
        payload.payload_bytes,
        0,
    )
    buffers: list[Buffer] = [header, *payload.parts]
    if stored & 7:
        buffers.append(PADDING[stored & 7])
    if size <= JOIN_BYTES_MAX:
        joined = b"".join(buffers)
        return [joined + xxh3_64_digest(joined)]
    digest = xxh3_64(header)
    for buffer in buffers[1:]:
        digest.update(buffer)
    buffers.append(digest.digest())
    return buffers


def frame_one(
    base_offset: int, leader_epoch: int, timestamp: int, value: bytes, attributes: int = 0
) -> bytes:
    """Make the batch of a single record without key and headers, in as few steps as there are."""
    length = len(value)
    stored = 8 + ((length + 7) & ~7)
    body = (
        _pack_header(
            base_offset,
            stored + 68,
            leader_epoch,
            MAGIC,
            VERSION,
            attributes,
            1,
            0,
            stored,
            timestamp,
            timestamp,
            -1,
            -1,
            0,
            -1,
            stored,
            0,
        )
        + _pack_column(length, length)
        + value
        + PADDING[length & 7]
    )
    return body + xxh3_64_digest(body)


def hole(base_offset: int, end_offset: int, leader_epoch: int) -> bytes:
    """Make the batch without records that spans offsets whose records were lost."""
    span = Payload([], 0, end_offset - base_offset - 1, 0, 0, 0, NO_TIMESTAMP, NO_TIMESTAMP)
    return b"".join(frame(span, base_offset, leader_epoch))


# --- reading --------------------------------------------------------------------------------------


def read_header(data: Buffer, position: int) -> BatchHeader:
    """Read a header; `header_fault` judges what it says."""
    (
        base_offset,
        length,
        epoch,
        magic,
        _version,
        attributes,
        count,
        last_delta,
        stored,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        _reserved_58,
        sequence,
        payload_bytes,
        _reserved_68,
    ) = HEADER.unpack_from(data, position)
    return BatchHeader(
        base_offset,
        length + LENGTH_OVERHEAD_BYTES,
        epoch,
        magic,
        attributes,
        count,
        base_offset + last_delta,
        stored,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        sequence,
        payload_bytes,
    )


def header_fault(data: Buffer, position: int, size_bytes: int) -> str | None:
    """Say what in a header cannot be, or None; cheap, and done before any checksum."""
    if size_bytes < OVERHEAD_BYTES or size_bytes & 7:
        return f"a batch of {size_bytes} bytes cannot be"
    header = read_header(data, position)
    if data[position + 17] != VERSION:
        return f"batch version {data[position + 17]} is not {VERSION}"
    if padded(header.stored_bytes) + OVERHEAD_BYTES != size_bytes:
        return "the sizes in the header do not agree"
    if header.base_offset < 0 or header.record_count > header.last_offset - header.base_offset + 1:
        return "the offsets in the header do not agree"
    if header.attributes & ~KNOWN_ATTRIBUTES:
        return f"unknown attributes {header.attributes:#06x}"
    return None


def checksum_holds(data: Buffer, position: int, size_bytes: int) -> bool:
    """Tell whether a batch's bytes are those that were written."""
    end = position + size_bytes - CHECKSUM_BYTES
    return xxh3_64_digest(data[position:end]) == data[end : end + CHECKSUM_BYTES]


def checksum(data: Buffer, position: int, size_bytes: int) -> int:
    """Read the checksum that a batch carries."""
    end = position + size_bytes
    return int.from_bytes(data[end - CHECKSUM_BYTES : end], "big")


def decode(data: Buffer, position: int, size_bytes: int) -> RecordBatch:
    """Look at a batch as columns.

    Raises:
        ValueError: the batch's parts contradict each other; a batch whose checksum holds was
            written so.
        UnsupportedFormatError: its codec's library is not installed.
    """
    header = read_header(data, position)
    attributes, count = header.attributes, header.record_count
    start = position + HEADER_BYTES
    if attributes & CODEC_MASK:
        stored = data[start : start + header.stored_bytes]
        data = compression.decompress(attributes & CODEC_MASK, stored, header.payload_bytes)
        start, end = 0, len(data)
    else:
        end = start + header.stored_bytes
    deltas = timestamps = None
    if attributes & HAS_DELTAS:
        _require(start + 4 * count <= end)
        deltas = np.frombuffer(data, np.uint32, count, start)
        start += padded(4 * count)
    if attributes & HAS_TIMESTAMPS:
        _require(start + 8 * count <= end)
        timestamps = np.frombuffer(data, np.int64, count, start)
        start += 8 * count
    if not count and start == end:
        data, start, end = bytes(8), 0, 8
    values, start = decode_column(data, start, end, count)
    keys = names = cells = starts = None
    if attributes & HAS_KEYS:
        keys, start = decode_column(data, start, end, count)
    if attributes & HAS_HEADERS:
        _require(start + 4 * (count + 1) <= end)
        starts = np.frombuffer(data, np.uint32, count + 1, start)
        start += padded(4 * (count + 1))
        names, start = decode_column(data, start, end, int(starts[-1]))
        cells, start = decode_column(data, start, end, int(starts[-1]))
    columns = Columns(values, keys, timestamps, deltas, starts, names, cells)
    return RecordBatch(header, columns, count)


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("a column ends behind the end of its batch")


def check_structure(batch: RecordBatch) -> None:
    """Check the columns of a batch that a peer made: a checksum proves nothing about a peer.

    Raises:
        ValueError: cells, offsets or timestamps do not follow the rules of the format.
    """
    columns, header = batch._columns, batch.header
    for column in (columns.values, columns.keys, columns.header_names, columns.header_values):
        if column is not None:
            check_column(column)
    deltas, starts = columns.offset_deltas, columns.header_starts
    last_delta = header.last_offset - header.base_offset
    if batch.count and deltas is None and batch.count - 1 != last_delta:
        raise ValueError("dense offsets and the last offset delta disagree")
    if batch.count and deltas is not None and (int(deltas[-1]) > last_delta or _falls(deltas, 1)):
        raise ValueError("offset deltas do not increase up to the last one")
    if starts is not None and (starts[0] != 0 or _falls(starts, 0)):
        raise ValueError("record headers do not follow one another")
    if batch.count and int(batch.timestamps.max()) != header.max_timestamp:
        raise ValueError("the largest timestamp is not the one in the header")
    _ = batch.headers  # names that are not UTF-8 raise UnicodeDecodeError, a ValueError


def _falls(numbers: NDArray[np.uint32], step_min: int) -> bool:
    return bool((np.diff(numbers.astype(np.int64)) < step_min).any())


def reframe(data: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """Copy one batch to another place in a log: new offset and epoch, new checksum."""
    body = bytearray(data[:-CHECKSUM_BYTES])
    struct.pack_into(">q", body, 0, base_offset)
    struct.pack_into(">i", body, 12, leader_epoch)
    return bytes(body) + xxh3_64_digest(body)
