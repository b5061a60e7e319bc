"""Copy a columnar batch with only some of its records, as compaction does.

The copy spans the same offsets, and has the same epoch and producer, so it can take the place of
the original. The records of a column are copied together, never one by one. If a batch has
tombstones, it states the time from which they may be removed: its delete horizon (docs/FORMAT.md,
section 4).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_digest

from logstore.format.batch import RecordBatch
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar import record_batch as columnar
from logstore.format.columnar.columns import (
    HEAD,
    PADDING,
    Buffer,
    BytesColumn,
    append_padded,
    encode_arrays,
    raw,
)
from logstore.format.columnar.decode import decode_columns
from logstore.format.columnar.payload import (
    CHECKSUM_BYTES,
    CODEC_MASK,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    Payload,
    build_payload,
)
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES
from logstore.format.steps import Steps, cut

HORIZON_AT = 68
HORIZON_UNIT_MS = 1000
HORIZON_MAX = 2**32 - 1
_HORIZON = struct.Struct(">I")
_NOTHING = Payload([], 0, 0, 0, 0, 0, NO_TIMESTAMP, NO_TIMESTAMP)

Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class Group:
    """Hold some decoded batches of one buffer; their records are numbered through all batches.

    Attributes:
        firsts: the number of each batch's first record; the last element is the record count.
    """

    def __init__(
        self,
        data: Buffer,
        run: Sequence[tuple[int, BatchHeader]],
        batches: Sequence[RecordBatch],
    ) -> None:
        self._data, self._run, self._batches = data, run, batches
        self.firsts = np.cumsum([0, *(batch.count for batch in batches)])

    def offsets(self) -> Numbers:
        """Return the offsets of all records."""
        return np.concatenate([batch.offsets for batch in self._batches])

    def is_null(self) -> Mask:
        """Return a mask of the records whose value is null."""
        return np.concatenate(
            [_nulls(batch.columns.values, batch.count) for batch in self._batches]
        )

    def keys(self) -> tuple[bytes, Numbers, Numbers]:
        """Return a buffer with all keys, and each key's start and size; a null key has size -1."""
        parts: list[Buffer] = []
        starts, sizes, at = [], [], 0
        for batch in self._batches:
            column, count = batch.columns.keys, batch.count
            if column is None:
                starts.append(np.zeros(count, np.int64))
                sizes.append(np.full(count, -1, np.int64))
                continue
            edges = column.starts.astype(np.int64)
            lengths = np.diff(edges)
            lengths[_nulls(column, count)] = -1
            starts.append(edges[:-1] + at)
            sizes.append(lengths)
            parts.append(column.data)
            at += len(column.data)
        parts.append(bytes(16))  # a reader of short keys may read past the last key
        return b"".join(parts), np.concatenate(starts), np.concatenate(sizes)

    def subset(self, number: int, keep: Mask, horizon_ms: int | None) -> Steps[bytes]:
        """Copy a batch with only the records of a mask, which must have at least one record.

        Args:
            horizon_ms: the copy's delete horizon, which is rounded up to a second.
        """
        batch, horizon = self._batches[number], _horizon_of(horizon_ms)
        position, header = self._run[number]
        if keep.all():
            body = bytearray(self._data[position : position + header.size_bytes - CHECKSUM_BYTES])
            _HORIZON.pack_into(body, HORIZON_AT, horizon)
            return bytes(body) + xxh3_64_digest(body)
        return _frame((yield from _payload(batch, keep)), header, horizon)


def group_of(
    data: Buffer,
    run: Sequence[tuple[int, BatchHeader]],
    expansion_bytes_max: int,
    *,
    checks_headers: bool,
) -> Steps[Group]:
    """Decode some batches, each with at least one record.

    Args:
        checks_headers: has no effect in this layout, because record headers are always checked.

    Raises:
        The errors of `decode_columns`.
    """
    batches = []
    for place in run:
        batches.append(decode_columns(data, *place, expansion_bytes_max))
        yield
    return Group(data, run, batches)


def delete_horizon_ms(data: Buffer, position: int, header: BatchHeader) -> int | None:
    """Return the time from which a batch's tombstones may be removed; None if it is not set yet."""
    (seconds,) = _HORIZON.unpack_from(data, position + HORIZON_AT)
    return int(seconds) * HORIZON_UNIT_MS or None


def empty(header: BatchHeader) -> bytes:
    """Create a batch without records that has the offsets and the producer of another batch."""
    return _frame(_NOTHING, header, 0)


def _horizon_of(horizon_ms: int | None) -> int:
    seconds = 0 if horizon_ms is None else -(-horizon_ms // HORIZON_UNIT_MS)
    return min(max(seconds, int(horizon_ms is not None)), HORIZON_MAX)


def _nulls(column: BytesColumn, count: int) -> Mask:
    return np.zeros(count, np.bool_) if column.validity is None else ~column.is_valid


def _payload(batch: RecordBatch, keep: Mask) -> Steps[Payload]:
    """Copy the kept records of all columns, and compress them with the batch's codec."""
    columns, attributes = batch.columns, batch.header.attributes
    times, deltas = columns.timestamps, columns.offset_deltas
    kept = np.flatnonzero(keep)
    headers: list[Buffer] | None = None
    if columns.header_starts is not None:
        assert columns.header_names is not None and columns.header_values is not None
        edges = columns.header_starts.astype(np.int64)
        counts = edges[1:] - edges[:-1]
        starts = np.zeros(len(kept) + 1, np.uint32)
        np.cumsum(counts[kept], out=starts[1:])
        if starts[-1]:
            headers, keep_header = [], np.repeat(keep, counts)
            append_padded(headers, raw(starts))
            headers += yield from _cells(columns.header_names, keep_header)
            headers += yield from _cells(columns.header_values, keep_header)
    values = yield from _cells(columns.values, keep)
    keys = None if columns.keys is None else (yield from _cells(columns.keys, keep))
    yield
    return build_payload(
        values,
        len(kept),
        keys=keys,
        headers=headers,
        timestamps=batch.header.base_timestamp if times is None else times[kept],
        offset_deltas=kept.astype(np.uint32) if deltas is None else deltas[kept],
        codec_id=attributes & CODEC_MASK,
        is_log_append_time=bool(attributes & LOG_APPEND_TIME),
    )


def _cells(column: BytesColumn, keep: Mask) -> Steps[list[Buffer]]:
    """Encode the kept cells of a column."""
    size = column.cell_bytes
    if column.is_fixed:
        parts: list[Buffer] = [HEAD.pack(size * int(np.count_nonzero(keep)), size)]
        if size:
            cells = np.frombuffer(column.buffer, f"V{size}", len(column), column.data_start)
            append_padded(parts, cells.take(np.flatnonzero(keep)).view(np.uint8).data)
        return parts
    edges = column.starts.astype(np.int64)
    starts = np.zeros(int(np.count_nonzero(keep)) + 1, np.int64)
    np.cumsum((edges[1:] - edges[:-1])[keep], out=starts[1:])
    data = b"".join((yield from cut(column.buffer, edges + column.data_start, keep)))
    is_valid = None if column.validity is None else column.is_valid[keep]
    return encode_arrays(data, starts, is_valid)


def _frame(payload: Payload, header: BatchHeader, horizon: int) -> bytes:
    """Frame a payload with the offsets, the epoch and the producer of another batch."""
    body = b"".join(
        (
            columnar.HEADER.pack(
                header.base_offset, payload.size_bytes - LENGTH_OVERHEAD_BYTES,
                header.leader_epoch, columnar.MAGIC, columnar.VERSION, payload.attributes,
                payload.record_count, header.last_offset - header.base_offset,
                payload.stored_bytes, payload.base_timestamp, payload.max_timestamp,
                header.producer_id, header.producer_epoch, 0, header.base_sequence,
                payload.payload_bytes, horizon,
            ),
            *payload.parts,
            PADDING[payload.stored_bytes & 7],
        )
    )  # fmt: skip
    return body + xxh3_64_digest(body)
