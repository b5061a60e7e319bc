"""Encode and decode Kafka's record batch v2, magic 2 (KIP-98; docs/FORMAT.md, section 8).

    prefix (17) | crc-32c u32 of all bytes after it | rest of the header, to byte 61 | records

The checksum does not cover the prefix. So a batch can get another base offset without a new
checksum. But a wrong base offset or epoch is found only by a comparison with the neighbouring
batches. Offsets may be missing within a batch and between batches, because compaction removes
records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from logstore.errors import UnsupportedFormatError
from logstore.format import expansion_lease as lease
from logstore.format.batch import RecordBatch
from logstore.format.batch_parts import BatchHeader, Columns
from logstore.format.columnar.columns import Buffer, column_of_own
from logstore.format.expansion import EXPANSION_BYTES_MAX, expansion_bytes, too_much
from logstore.format.kafka.crc import crc32c
from logstore.format.kafka.decode import check_many, decode_many, decode_rows
from logstore.format.kafka.encode import CRC_AT, KafkaPayload, build_payload
from logstore.format.kafka.header import (
    ATTRIBUTES_KNOWN,
    CODEC_MASK,
    CONTROL,
    CRC_END,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    RECORD_BYTES_MIN,
)
from logstore.format.kafka.regular import is_regular
from logstore.format.kafka.sound import sound_header, sound_headers, sound_run
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES

__all__ = [
    "ALIGNMENT",
    "HEADER_BYTES",
    "MAGIC",
    "OVERHEAD_BYTES",
    "KafkaPayload",
    "build_payload",
    "candidates",
    "check_run",
    "checksum",
    "checksum_holds",
    "decode",
    "decode_columns",
    "decode_run",
    "frame",
    "header_fault",
    "hole",
    "is_regular",
    "part_until",
    "read_header",
    "reframe",
    "require",
    "sound_header",
    "sound_headers",
    "sound_run",
    "stamp",
    "with_append_time",
    "with_max_timestamp",
]

OVERHEAD_BYTES = HEADER_BYTES
# Batches are decoded in groups.
# A group of batches has at most about GROUP_BYTES of uncompressed records.
GROUP_BYTES = 4 << 20
CONTROL_BYTES_MAX = 64 << 10  # a control batch has one small record
MARKER_KEY_BYTES = 4  # the key of a control record has a version and a type
ALIGNMENT = 1
NOT_PLAIN = CODEC_MASK | CONTROL | 0xFFFF & ~ATTRIBUTES_KNOWN
CODECS = frozenset(range(5))

_unpack_header = HEADER.unpack_from
_EMPTY = column_of_own(bytes(8), 0)
_NO_RECORDS = Columns(_EMPTY, None, None, None, None, None, None)
_PLACE = struct.Struct(">qii")
_MAX_TIMESTAMP_AT = 35
_PRODUCER_AT, _PRODUCER = 43, struct.Struct(">qhi")  # producer_id, producer_epoch, base_sequence


def read_header(data: Buffer, position: int) -> BatchHeader:
    """Read a header without checking it; `header_fault` checks it."""
    (
        base_offset, length, epoch, magic, _, attributes, last_delta, base_timestamp,
        max_timestamp, producer_id, producer_epoch, sequence, count,
    ) = _unpack_header(data, position)  # fmt: skip
    stored = length + LENGTH_OVERHEAD_BYTES - HEADER_BYTES
    return BatchHeader(
        base_offset, length + LENGTH_OVERHEAD_BYTES, epoch, magic, attributes, count,
        base_offset + last_delta, stored, base_timestamp, max_timestamp, producer_id,
        producer_epoch, sequence, 0 if attributes & CODEC_MASK else stored,
    )  # fmt: skip


def header_fault(data: Buffer, position: int, size_bytes: int) -> str | None:
    """Return the first fault of a header, or None; this check costs less than a checksum."""
    if size_bytes < HEADER_BYTES:
        return f"a batch cannot have {size_bytes} bytes"
    header = read_header(data, position)
    count, last_delta = header.record_count, header.last_offset - header.base_offset
    if header.base_offset < 0 or not 0 <= count <= last_delta + 1 or last_delta < 0:
        return "the offsets in the header do not agree"
    is_plain = not header.attributes & CODEC_MASK
    if is_plain and count * RECORD_BYTES_MIN > header.stored_bytes:
        return f"{count} records do not fit into {header.stored_bytes} bytes"
    return None


def checksum(data: Buffer, position: int, size_bytes: int) -> int:
    """Read the checksum stored in a batch."""
    return int.from_bytes(data[position + CRC_AT : position + CRC_END], "big")


def checksum_holds(data: Buffer, position: int, size_bytes: int) -> bool:
    """Report whether a batch's checksum matches its bytes after the prefix."""
    view = memoryview(data)[position + CRC_END : position + size_bytes]
    return bool(crc32c(view) == checksum(data, position, size_bytes))


def candidates(data: Buffer, position: int) -> list[int]:
    """List the positions, at or after `position`, where a header could begin.

    Batches of Kafka's layout are not aligned.
    """
    octets = np.frombuffer(data, np.uint8, len(data) - position, position)
    if len(octets) < HEADER_BYTES:
        return []
    last = len(octets) - HEADER_BYTES
    hits = np.flatnonzero(octets[16 : 16 + last + 1] == MAGIC)
    # Base offset, length, last offset delta and count must not be negative.
    # Only known bits of the attributes may be set.
    for at in (0, 8, 23, 57):
        hits = hits[octets[hits + at] < 0x80]
    hits = hits[(octets[hits + 21] == 0) & (octets[hits + 22] <= ATTRIBUTES_KNOWN)]
    return [at + position for at in hits.tolist() if _may_begin(data, at + position)]


def _may_begin(data: Buffer, position: int) -> bool:
    header = read_header(data, position)
    return header.record_count <= header.last_offset - header.base_offset + 1


# --- records --------------------------------------------------------------------------------------


def decode(
    data: Buffer, position: int, expansion_bytes_max: int = EXPANSION_BYTES_MAX
) -> RecordBatch:
    """View a batch as columns; see `decode_columns`."""
    return decode_columns(data, position, read_header(data, position), expansion_bytes_max)


def decode_columns(
    data: Buffer,
    position: int,
    header: BatchHeader,
    expansion_bytes_max: int = EXPANSION_BYTES_MAX,
) -> RecordBatch:
    """Decode the batch with this header; for a control batch, the result has no records.

    Raises:
        RecordExpansionError: the batch needs more memory than allowed; no memory was allocated.
        ValueError: the records contradict each other or the header.
        UnsupportedFormatError: the codec's library is not installed.
    """
    return next(decode_run(data, [(position, header)], expansion_bytes_max))


def decode_run(
    data: Buffer,
    run: list[tuple[int, BatchHeader]],
    expansion_bytes_max: int = EXPANSION_BYTES_MAX,
) -> Iterator[RecordBatch]:
    """Decode batches of one buffer, many at a time; see `decode_columns`.

    If a batch is damaged, the error is raised when the iterator reaches that batch.
    """
    look = memoryview(data)
    headers: list[BatchHeader] = []
    parts: list[Buffer] = []
    size_bytes = 0
    for position, header in run:
        part: Buffer = b""
        if header.record_count and not header.attributes & CONTROL:
            try:
                part = records_of(look, position, header, expansion_bytes_max)
            except (ValueError, UnsupportedFormatError):
                yield from _decoded(headers, parts, expansion_bytes_max)
                raise
        headers.append(header)
        parts.append(part)
        size_bytes += len(part)
        if size_bytes >= GROUP_BYTES:
            yield from _decoded(headers, parts, expansion_bytes_max)
            headers, parts, size_bytes = [], [], 0
    yield from _decoded(headers, parts, expansion_bytes_max)


def _decoded(
    headers: list[BatchHeader], parts: list[Buffer], expansion_bytes_max: int
) -> Iterator[RecordBatch]:
    """Decode batches from their uncompressed records; a batch without records has an empty part."""
    full = [number for number, part in enumerate(parts) if len(part)]
    rows = [(parts[number], headers[number]) for number in full]
    columns: Iterator[Columns]
    try:
        columns = iter(_columns_of(rows, expansion_bytes_max))
    except ValueError:
        columns = (decode_rows(part, header, expansion_bytes_max) for part, header in rows)
    for header, part in zip(headers, parts, strict=True):
        if len(part):
            yield RecordBatch(header, next(columns), header.record_count)
        else:
            yield RecordBatch(header, _NO_RECORDS, 0)


def _columns_of(rows: list[tuple[Buffer, BatchHeader]], expansion_bytes_max: int) -> list[Columns]:
    if not rows:
        return []
    parts, headers = [part for part, _ in rows], [header for _, header in rows]
    return decode_many(parts, headers, expansion_bytes_max)


def records_of(
    look: memoryview, position: int, header: BatchHeader, expansion_bytes_max: int
) -> Buffer:
    """Return the uncompressed records of a batch that is not empty."""
    records: Buffer = look[position + HEADER_BYTES : position + header.size_bytes]
    codec_id = header.attributes & CODEC_MASK
    if codec_id:
        records = lease.expand(codec_id, bytes(records), header.record_count, expansion_bytes_max)
    if header.record_count * RECORD_BYTES_MIN > len(records):
        raise ValueError(f"{header.record_count} records do not fit into {len(records)} bytes")
    needed = expansion_bytes(len(records), header.record_count)
    if needed > expansion_bytes_max:
        raise too_much(needed, expansion_bytes_max)
    if not codec_id:
        lease.count_decoded(header.record_count)
    return records


def decode_all(
    data: Buffer,
    position: int,
    header: BatchHeader,
    expansion_bytes_max: int = EXPANSION_BYTES_MAX,
) -> RecordBatch:
    """Decode a batch, including a control batch with its record."""
    if not header.attributes & CONTROL:
        return decode_columns(data, position, header, expansion_bytes_max)
    expansion_bytes_max = min(expansion_bytes_max, CONTROL_BYTES_MAX)
    plain = header._replace(attributes=header.attributes & ~CONTROL)
    with lease.suspended():  # an append may read markers while it rebuilds the producers of a log
        batch = decode_columns(data, position, plain, expansion_bytes_max)
    return RecordBatch(header, batch.columns, batch.count)


def check_run(
    data: Buffer,
    run: list[tuple[int, BatchHeader]],
    expansion_bytes_max: int,
    *,
    is_strict: bool,
    checks_claims: bool,
) -> None:
    """Check the records of batches, many at a time, without making columns of them.

    Args:
        is_strict: whether to also check the fields and bytes that no reader needs; appends set
            this.
        checks_claims: whether to compare the header's largest timestamp with the records. `verify`
            sets this.

    Raises:
        WrongMaxTimestampError: only the largest timestamp is wrong.
        ValueError: an error of `decode_run`, or a control batch has no type.
        UnsupportedFormatError: a codec's library is not installed.
    """
    look = memoryview(data)
    headers: list[BatchHeader] = []
    parts: list[Buffer] = []
    size_bytes = 0
    for position, header in run:
        if not header.record_count:
            if header.stored_bytes and is_strict:
                raise ValueError("bytes are left after the last record")
            continue
        if is_strict and header.attributes & ~ATTRIBUTES_KNOWN:
            raise ValueError(f"unknown attributes {header.attributes:#06x}")
        if header.attributes & CONTROL:
            key = decode_all(look, position, header, expansion_bytes_max).keys[0]
            if len(key or b"") < MARKER_KEY_BYTES:
                raise ValueError("a control batch does not say how its transaction ends")
        part = records_of(look, position, header, expansion_bytes_max)
        if header.attributes & CODEC_MASK and is_regular(
            memoryview(part), 0, len(part), header, expansion_bytes_max
        ):
            continue
        parts.append(part)
        headers.append(header)
        size_bytes += len(part)
        if size_bytes >= GROUP_BYTES:
            check_many(parts, headers, expansion_bytes_max, checks_claims=checks_claims)
            headers, parts, size_bytes = [], [], 0
    if parts:
        check_many(parts, headers, expansion_bytes_max, checks_claims=checks_claims)


def require(codec_id: int) -> None:
    """Raise UnsupportedFormatError if a codec cannot be used in this process."""
    if codec_id:
        from logstore.format.kafka import codecs as kafka_codecs

        kafka_codecs.require(codec_id)


# --- writing --------------------------------------------------------------------------------------


def frame(payload: KafkaPayload, base_offset: int, leader_epoch: int) -> list[Buffer]:
    """Return the buffers of a whole batch; one system call can write them all."""
    place = _PLACE.pack(base_offset, payload.size_bytes - LENGTH_OVERHEAD_BYTES, leader_epoch)
    return [place, payload.body]


def reframe(data: Buffer, base_offset: int, leader_epoch: int) -> list[Buffer]:
    """Return the buffers of a batch with another base offset; nothing is copied or hashed."""
    place = _PLACE.pack(base_offset, len(data) - LENGTH_OVERHEAD_BYTES, leader_epoch)
    return [place, memoryview(data)[_PLACE.size :]]


def stamp(data: bytes, producer_id: int, epoch: int, base_sequence: int) -> bytes:
    """Copy one batch, and give the copy another producer and a new checksum."""
    rest = bytearray(data[CRC_END:])
    _PRODUCER.pack_into(rest, _PRODUCER_AT - CRC_END, producer_id, epoch, base_sequence)
    return b"".join((data[:CRC_AT], crc32c(rest).to_bytes(4, "big"), rest))


def with_append_time(data: Buffer, header: BatchHeader, now_ms: int) -> bytes:
    """Copy one batch, and set its append time in the copy's header; the records do not change."""
    rest = bytearray(data[CRC_END:])
    struct.pack_into(">H", rest, 0, header.attributes | LOG_APPEND_TIME)
    struct.pack_into(">q", rest, _MAX_TIMESTAMP_AT - CRC_END, now_ms)
    return b"".join((data[:CRC_AT], crc32c(rest).to_bytes(4, "big"), rest))


def with_max_timestamp(data: Buffer, max_timestamp: int) -> bytes:
    """Copy one batch, and replace the header's largest timestamp; the records do not change."""
    rest = bytearray(data[CRC_END:])
    struct.pack_into(">q", rest, _MAX_TIMESTAMP_AT - CRC_END, max_timestamp)
    return b"".join((data[:CRC_AT], crc32c(rest).to_bytes(4, "big"), rest))


def hole(base_offset: int, end_offset: int, leader_epoch: int) -> bytes:
    """Create a batch without records for a range of offsets whose records are lost."""
    payload = build_payload([], None, -1, None)
    payload = payload.spanning(end_offset - base_offset - 1)
    return b"".join(frame(payload, base_offset, leader_epoch))


def part_until(batch: RecordBatch, offset: int) -> list[Buffer]:
    """Encode the records before `offset` as a new batch, which ends at `offset`."""
    header = batch.header
    part = batch.slice(0, batch.index_of(offset))
    payload = build_payload(
        part.values.to_list(),
        part.keys.to_list(),
        part.timestamps,
        part.headers,
        offset_deltas=part.offsets - header.base_offset,
        codec_id=header.attributes & CODEC_MASK,
        header=header,
    )
    payload = payload.spanning(offset - header.base_offset - 1)
    return frame(payload, header.base_offset, header.leader_epoch)
