"""Encode and decode the columnar record batch, magic `L` (docs/FORMAT.md, section 4).

    prefix (17) | rest of the header | payload, padded to 8 | xxh3-64 of all bytes before it

The payload does not depend on the offset of the batch, so the payload is built before the log's
lock is taken. `frame` adds the header and the checksum under the lock.
"""

from __future__ import annotations

import struct

from xxhash import xxh3_64, xxh3_64_digest

from logstore.format import compression
from logstore.format.batch import RecordBatch
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar.columns import PADDING, Buffer, padded
from logstore.format.columnar.decode import decode_columns
from logstore.format.columnar.payload import (
    CHECKSUM_BYTES,
    CODEC_MASK,
    HAS_DELTAS,
    HAS_TIMESTAMPS,
    HEADER_BYTES,
    KNOWN_ATTRIBUTES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    OVERHEAD_BYTES,
    Payload,
    payload_of,
)
from logstore.format.expansion import EXPANSION_BYTES_MAX
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES

__all__ = [
    "ALIGNMENT",
    "CHECKSUM_BYTES",
    "HEADER",
    "HEADER_BYTES",
    "MAGIC",
    "OVERHEAD_BYTES",
    "VERSION",
    "check_claims",
    "checksum",
    "checksum_holds",
    "decode",
    "decode_columns",
    "frame",
    "frame_one",
    "header_fault",
    "hole",
    "part_until",
    "read_header",
    "reframe",
    "require",
    "stamp",
    "with_append_time",
]

MAGIC = 0x4C
VERSION = 1
PRODUCER_POSITION = 48
_PRODUCER = struct.Struct(">qhHi")  # producer_id, producer_epoch, reserved_58, base_sequence
ALIGNMENT = 8
CODECS = frozenset((0, 3, 4))  # none, lz4, zstd
LAST_DELTA_MAX = 2**31 - 1  # as in Kafka; an index entry has 32 bits for an offset delta

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
    "I"  # delete_horizon
)
assert HEADER.size == HEADER_BYTES

# Up to this size, joining the parts is faster than hashing and writing each part alone.
JOIN_BYTES_MAX = 16 * 1024

_ONE_COLUMN = struct.Struct("<II")
_pack_header = HEADER.pack
_pack_column = _ONE_COLUMN.pack


def claimed_sizes(data: Buffer, position: int) -> tuple[int, int]:
    """Return two sizes of a batch: one from its batch length, and one from its payload's size."""
    fields = HEADER.unpack_from(data, position)
    return fields[1] + LENGTH_OVERHEAD_BYTES, padded(fields[8]) + OVERHEAD_BYTES


def next_offset(data: Buffer, position: int) -> int:
    """Return the offset after a batch, which is computed from the unchecked header."""
    fields = HEADER.unpack_from(data, position)
    return int(fields[0] + fields[7] + 1)


def frame(payload: Payload, base_offset: int, leader_epoch: int) -> list[Buffer]:
    """Return the buffers of a whole batch, the checksum last; one call can write all of them."""
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
    """Create the batch of one record without key and headers, as fast as possible."""
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
    """Create a batch without records for a range of offsets whose records are lost."""
    span = Payload([], 0, end_offset - base_offset - 1, 0, 0, 0, NO_TIMESTAMP, NO_TIMESTAMP)
    return b"".join(frame(span, base_offset, leader_epoch))


def require(codec_id: int) -> None:
    """Raise UnsupportedFormatError if a codec cannot be used in this process."""
    compression.require(codec_id)


# --- reading --------------------------------------------------------------------------------------


def read_header(data: Buffer, position: int) -> BatchHeader:
    """Read a header without checking it; `header_fault` checks it."""
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
        _delete_horizon,
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
    """Return the first fault of a header, or None; this check costs less than a checksum."""
    if size_bytes < OVERHEAD_BYTES or size_bytes & 7:
        return f"a batch cannot have {size_bytes} bytes"
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
    """Report whether a batch's checksum matches its bytes."""
    end = position + size_bytes - CHECKSUM_BYTES
    return xxh3_64_digest(data[position:end]) == data[end : end + CHECKSUM_BYTES]


def checksum(data: Buffer, position: int, size_bytes: int) -> int:
    """Read the checksum stored in a batch."""
    end = position + size_bytes
    return int.from_bytes(data[end - CHECKSUM_BYTES : end], "big")


def decode(
    data: Buffer, position: int, expansion_bytes_max: int = EXPANSION_BYTES_MAX
) -> RecordBatch:
    """View a batch as columns; see `decode_columns`."""
    return decode_columns(data, position, read_header(data, position), expansion_bytes_max)


def with_append_time(data: Buffer, header: BatchHeader, now_ms: int) -> bytes:
    """Copy one batch, and set the timestamp of all its records to the time of the append."""
    payload = bytes(data[HEADER_BYTES : HEADER_BYTES + header.stored_bytes])
    attributes, codec_id = header.attributes, header.attributes & CODEC_MASK
    size_bytes = header.payload_bytes
    if attributes & HAS_TIMESTAMPS:
        if codec_id:
            payload = compression.decompress(codec_id, payload, size_bytes)
        start = padded(4 * header.record_count) if attributes & HAS_DELTAS else 0
        payload = payload[:start] + payload[start + 8 * header.record_count :]
        size_bytes = len(payload)
        if codec_id:
            payload = compression.compress(codec_id, payload)
    fields = list(HEADER.unpack_from(data))
    fields[1] = padded(len(payload)) + OVERHEAD_BYTES - LENGTH_OVERHEAD_BYTES
    fields[5] = attributes & ~HAS_TIMESTAMPS | LOG_APPEND_TIME
    fields[8:11], fields[15] = [len(payload), now_ms, now_ms], size_bytes
    body = HEADER.pack(*fields) + payload + PADDING[len(payload) & 7]
    return body + xxh3_64_digest(body)


def part_until(batch: RecordBatch, offset: int) -> list[Buffer]:
    """Encode a batch's records that are before `offset` as a new batch that ends at `offset`."""
    header = batch.header
    part = batch.slice(0, batch.index_of(offset))
    payload = payload_of(part, offset - header.base_offset - 1)
    buffers = frame(payload, header.base_offset, header.leader_epoch)
    if header.producer_id < 0:
        return buffers
    data, epoch = b"".join(buffers), header.producer_epoch
    return [stamp(data, header.producer_id, epoch, header.base_sequence)]


def stamp(data: bytes, producer_id: int, epoch: int, base_sequence: int) -> bytes:
    """Copy one batch, and give the copy another producer and a new checksum."""
    body = bytearray(data[:-CHECKSUM_BYTES])
    _PRODUCER.pack_into(body, PRODUCER_POSITION, producer_id, epoch, 0, base_sequence)
    return bytes(body) + xxh3_64_digest(body)


def check_claims(header: BatchHeader) -> None:
    """Refuse a peer's batch if its header is readable, but harmful.

    Raises:
        ValueError: the header is refused. With a refused batch in the log, retention might never
            drop the segment, or too many offsets would be used up.
    """
    if not header.record_count and header.max_timestamp != NO_TIMESTAMP:
        raise ValueError("a batch without records has a timestamp")
    if header.last_offset - header.base_offset > LAST_DELTA_MAX:
        raise ValueError("the batch spans more offsets than one batch is allowed to span")


def reframe(data: Buffer, base_offset: int, leader_epoch: int) -> bytes:
    """Copy one batch, and give the copy a new base offset, leader epoch and checksum."""
    body = bytearray(data[:-CHECKSUM_BYTES])
    struct.pack_into(">q", body, 0, base_offset)
    struct.pack_into(">i", body, 12, leader_epoch)
    return bytes(body) + xxh3_64_digest(body)
