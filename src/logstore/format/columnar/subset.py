"""Copy a columnar batch with only some of its records, as compaction does.

The copy spans the same offsets, and has the same epoch and producer. So the copy can replace the
original batch. The cells of a column are copied together, never one by one. A batch with tombstones
has a delete horizon: the time after which compaction may remove the tombstones (docs/FORMAT.md,
section 4).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

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
    """Hold decoded batches of one buffer; the records of all batches are numbered from 0.

    Attributes:
        firsts: the number of each batch's first record; the last element is the record count.
    """

    def __init__(self, data: Buffer, run: Sequence[tuple[int, BatchHeader]]) -> None:
        self._data, self._run = data, run
        self._counts = np.array([header.record_count for _, header in run], np.int64)
        self.firsts = np.concatenate(([0], np.cumsum(self._counts)))
        self._batches: list[RecordBatch] = []
        self._keys: list[Buffer] = []  # the data of each batch's keys
        # For each batch: where its keys begin, and the size of each key.
        # The size is -1 if the batch has no keys, and 0 if the keys differ in size.
        self._key_places: list[tuple[int, int]] = []
        self._keys_bytes = 0

    def add(self, batch: RecordBatch) -> None:
        """Add the next batch of the run; the caller must have decoded this batch.

        For most batches, this method calls no NumPy function.
        """
        self._batches.append(batch)
        column, size = batch.columns.keys, -1
        if column is not None:
            size = column.cell_bytes if column.is_fixed else 0
            self._keys.append(column.data)
        self._key_places.append((self._keys_bytes, size))
        self._keys_bytes += len(column.data) if column is not None else 0

    def offsets(self) -> Numbers:
        """Return the offsets of all records."""
        bases = np.array([header.base_offset for _, header in self._run], np.int64)
        found = self._spread(bases - self.firsts[:-1])
        found += np.arange(len(found))
        for rows, batch in self._rows():
            if batch.columns.offset_deltas is not None:
                found[rows] = batch.offsets
        return found

    def is_null(self) -> Mask:
        """Return a mask of the records whose value is null."""
        found = np.zeros(self.firsts[-1], np.bool_)
        for rows, batch in self._rows():
            if batch.columns.values.validity is not None:
                found[rows] = ~batch.columns.values.is_valid
        return found

    def keys(self) -> tuple[bytes, Numbers, Numbers]:
        """Return a buffer with all keys, and each key's start and size; a null key has size -1."""
        places = np.array(self._key_places, np.int64)
        sizes = self._spread(places[:, 1])
        # The index of each key in its batch.
        number = np.arange(len(sizes)) - self._spread(self.firsts[:-1])
        starts = self._spread(places[:, 0]) + number * np.maximum(sizes, 0)
        for rows, batch in self._rows():
            column = batch.columns.keys
            if column is not None and not column.is_fixed:
                edges = column.starts.astype(np.int64)
                starts[rows] += edges[:-1]
                sizes[rows] = edges[1:] - edges[:-1]
                if column.validity is not None:
                    sizes[rows][~column.is_valid] = -1
        # A reader of short keys may read past the last key, into these zeros.
        return b"".join((*self._keys, bytes(16))), starts, sizes

    def _rows(self) -> Iterator[tuple[slice, RecordBatch]]:
        edges = self.firsts.tolist()
        for number, batch in enumerate(self._batches):
            yield slice(edges[number], edges[number + 1]), batch

    def _spread(self, of_batches: Numbers) -> Numbers:
        """Give each record the number of its batch: return one number per record."""
        return np.repeat(of_batches, self._counts)

    def subset(self, number: int, keep: Mask, horizon_ms: int | None) -> Steps[bytes]:
        """Copy a batch with only the records that `keep` selects; `keep` selects at least one.

        Args:
            horizon_ms: the copy's delete horizon, which is rounded up to a whole second.
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
        The errors that `decode_columns` raises.
    """
    group = Group(data, run)
    for place in run:
        group.add(decode_columns(data, *place, expansion_bytes_max))
        yield
    return group


def delete_horizons_ms(data: Buffer, run: Sequence[tuple[int, BatchHeader]]) -> list[int | None]:
    """Return the times after which compaction may remove each batch's tombstones.

    If the time for a batch is not set yet, its item is None.
    """
    seconds = [_HORIZON.unpack_from(data, position + HORIZON_AT)[0] for position, _ in run]
    return [each * HORIZON_UNIT_MS or None for each in seconds]


def empty(header: BatchHeader) -> bytes:
    """Create a batch that has no records, but the offsets and the producer of another batch."""
    return _frame(_NOTHING, header, 0)


def _horizon_of(horizon_ms: int | None) -> int:
    seconds = 0 if horizon_ms is None else -(-horizon_ms // HORIZON_UNIT_MS)
    return min(max(seconds, int(horizon_ms is not None)), HORIZON_MAX)


def _payload(batch: RecordBatch, keep: Mask) -> Steps[Payload]:
    """Copy the selected records of all columns, and compress them with the batch's codec."""
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
    """Encode the selected cells of a column."""
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
    """Build a batch from a payload, with the offsets, epoch and producer of another batch."""
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
