"""Build the payload of a columnar record batch: the part that does not depend on its offset.

The payload is built before the log's lock is taken (docs/FORMAT.md, section 4, "The payload").
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore.format import compression
from logstore.format.batch import RecordBatch
from logstore.format.columnar.columns import Buffer, append_padded, encode_column, padded, raw
from logstore.format.expansion import expansion_bytes
from logstore.format.prefix import BATCH_BYTES_MAX

HEADER_BYTES = 72
CHECKSUM_BYTES = 8
OVERHEAD_BYTES = HEADER_BYTES + CHECKSUM_BYTES

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
HAS_TIMESTAMPS = 0x10
HAS_KEYS = 0x20
HAS_HEADERS = 0x40
HAS_DELTAS = 0x80
KNOWN_ATTRIBUTES = 0xFF

NO_TIMESTAMP = -1


class Payload(NamedTuple):
    """Hold the part of a batch that is the same at any offset of the log."""

    parts: list[Buffer]
    record_count: int
    last_offset_delta: int
    stored_bytes: int
    payload_bytes: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    header_count: int = 0

    @property
    def expansion_bytes(self) -> int:
        """The estimated memory of the decoded batch."""
        return expansion_bytes(self.payload_bytes, self.record_count, self.header_count)

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch with this payload."""
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
    """Join encoded columns and compress them.

    Args:
        values: the parts of an encoded column.
        keys: the parts of an encoded column, or None if no record has a key.
        headers: the parts of the encoded record headers, or None if no record has headers.
        timestamps: shape (record_count,), or one number if all timestamps are equal.
        offset_deltas: shape (record_count,), strictly increasing; None if no offset is missing.
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
    header_count = 0
    if headers is not None:
        attributes |= HAS_HEADERS
        parts += headers
        # The last start is the number of record headers.
        header_count = int.from_bytes(headers[0][-4:], "little")
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
        parts, record_count, last_delta, stored, size, attributes, base_timestamp, max_timestamp,
        header_count,
    )  # fmt: skip


def payload_of(batch: RecordBatch, last_offset_delta: int) -> Payload:
    """Encode the records of a batch again, with another last offset delta."""
    columns, header = batch.columns, batch.header
    only_timestamp = header.base_timestamp if batch.count else NO_TIMESTAMP
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
        timestamps=columns.timestamps if columns.timestamps is not None else only_timestamp,
        offset_deltas=columns.offset_deltas,
        codec_id=header.attributes & CODEC_MASK,
        is_log_append_time=bool(header.attributes & LOG_APPEND_TIME),
    )
    return payload._replace(last_offset_delta=last_offset_delta)
