"""Copy a Kafka batch with only some of its records, as compaction does.

The copy spans the same offsets, and has the same epoch, producer and base timestamp. So the
selected records are copied without a change. But if the copy gets a delete horizon (KIP-534), the
horizon replaces the base timestamp, and the time deltas are encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar.columns import Buffer
from logstore.format.kafka.bounds import STEP_RECORDS_MAX, bounds_in_steps, record_bounds
from logstore.format.kafka.crc import crc32c
from logstore.format.kafka.decode import (
    Fields,
    batches_of,
    check_numbers,
    headers_max,
    read_fields,
)
from logstore.format.kafka.encode import NO_TIMESTAMP, Varints, weave
from logstore.format.kafka.header import (
    CODEC_MASK,
    CRC_END,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
)
from logstore.format.kafka.record_batch import records_of
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES
from logstore.format.steps import STEP_CELLS, Steps, cut

Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class Group:
    """Hold some batches of one buffer, with the places of their records' fields.

    Attributes:
        firsts: the number of each batch's first record; the last element is the record count.
    """

    def __init__(
        self, headers: Sequence[BatchHeader], data: bytes, firsts: Numbers, fields: Fields
    ) -> None:
        self.firsts = firsts
        self._headers, self._data, self._fields = headers, data, fields

    def offsets(self) -> Numbers:
        """Return the offsets of all records."""
        bases = np.array([header.base_offset for header in self._headers], np.int64)
        return np.repeat(bases, np.diff(self.firsts)) + self._fields.offset_deltas

    def is_null(self) -> Mask:
        """Return a mask of the records whose value is null."""
        return self._fields.value_sizes < 0

    def keys(self) -> tuple[bytes, Numbers, Numbers]:
        """Return a buffer with all keys, and each key's start and size; a null key has size -1."""
        return self._data, self._fields.key_starts, self._fields.key_sizes

    def subset(self, number: int, keep: Mask, horizon_ms: int | None) -> Steps[bytes]:
        """Copy a batch with only the records that `keep` selects; `keep` selects at least one.

        Args:
            horizon_ms: the copy's delete horizon. If the time deltas from this horizon would not
                fit into 64 bits, the copy gets no horizon, and its tombstones are never removed.
        """
        header, fields = self._headers[number], self._fields
        rows = slice(*self.firsts[number : number + 2].tolist())
        times = fields.time_deltas[rows][keep]
        attributes, base, latest = header.attributes, header.base_timestamp, header.max_timestamp
        if not attributes & LOG_APPEND_TIME:
            latest = base + int(times.max())
        if horizon_ms is not None and _is_too_far(times, base - horizon_ms):
            horizon_ms = None
        if horizon_ms is None or (attributes & DELETE_HORIZON and base == horizon_ms):
            edges = np.append(fields.begins[rows], fields.ends[rows.stop - 1])
            parts = yield from cut(self._data, edges, keep)
        else:
            starts, ends = fields.delta_starts[rows][keep], fields.ends[rows][keep]
            parts = yield from _with_times(self._data, times + (base - horizon_ms), starts, ends)
            attributes, base = attributes | DELETE_HORIZON, horizon_ms
        records = b"".join(parts)
        if codec_id := attributes & CODEC_MASK:
            from logstore.format.kafka import codecs as kafka_codecs

            records = kafka_codecs.compress(codec_id, records)
            yield
        return frame(header, attributes, base, latest, len(times), records)


def group_of(
    data: Buffer,
    run: Sequence[tuple[int, BatchHeader]],
    expansion_bytes_max: int,
    *,
    checks_headers: bool,
) -> Steps[Group]:
    """Find the fields of all records of some batches; each batch must have a record.

    Args:
        checks_headers: whether to check the record headers too. The headers are read one by one.

    Raises:
        RecordExpansionError: a batch needs more memory than allowed.
        ValueError: the records of a batch contradict each other or its header.
        UnsupportedFormatError: a codec's library is not installed.
    """
    look, parts = memoryview(data), []
    headers = [header for _, header in run]
    for position, header in run:
        parts.append(records_of(look, position, header, expansion_bytes_max))
        if header.attributes & CODEC_MASK:
            yield
    batches = batches_of(parts, headers, expansion_bytes_max)
    left = headers_max(parts, headers, expansion_bytes_max) if checks_headers else None
    is_long = len(run) == 1 and headers[0].record_count > STEP_RECORDS_MAX
    bounds = (yield from bounds_in_steps(batches)) if is_long else record_bounds(batches)
    yield
    fields = read_fields(batches, left, bounds)
    yield
    check_numbers(batches, fields.time_deltas, fields.offset_deltas, headers)
    return Group(headers, batches.data, batches.firsts, fields)


def delete_horizons_ms(data: Buffer, run: Sequence[tuple[int, BatchHeader]]) -> list[int | None]:
    """Return the times after which compaction may remove each batch's tombstones.

    If the time for a batch is not set yet, its item is None.
    """
    return [
        header.base_timestamp if header.attributes & DELETE_HORIZON else None for _, header in run
    ]


def empty(header: BatchHeader) -> bytes:
    """Create a batch that has no records, but the offsets and the producer of another batch.

    The largest timestamp of the batch is copied, because it shows when the producer was last
    active.
    """
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return frame(header, attributes, NO_TIMESTAMP, header.max_timestamp, 0, b"")


def _is_too_far(times: Numbers, shift: int) -> bool:
    """Report whether `shift`, or a time delta after the shift, does not fit into 64 bits."""
    ends = shift, shift + int(times.min()), shift + int(times.max())
    return not all(-(2**63) <= each < 2**63 for each in ends)


def _with_times(data: bytes, times: Numbers, starts: Numbers, ends: Numbers) -> Steps[list[Buffer]]:
    """Encode records again, with new time deltas.

    The bytes of each record after its position in `starts` are copied unchanged.
    """
    time = Varints(times)
    length = Varints(1 + time.sizes + (ends - starts))
    heads, (sizes,) = weave(len(times), [length, np.ones(len(times), np.int64), time], [3])
    head_ends = np.cumsum(sizes)
    parts: list[Buffer] = []
    for first in range(0, len(times), STEP_CELLS):
        rows = slice(first, first + STEP_CELLS)
        places = (head_ends - sizes)[rows], head_ends[rows], starts[rows], ends[rows]
        for a, b, c, d in zip(*(numbers.tolist() for numbers in places), strict=True):
            parts += (heads[a:b], data[c:d])
        yield
    return parts


def frame(
    header: BatchHeader, attributes: int, base: int, latest: int, count: int, records: bytes
) -> bytes:
    """Build a batch from records, with the offsets, epoch and producer of another batch."""
    length = HEADER_BYTES + len(records) - LENGTH_OVERHEAD_BYTES
    head = bytearray(
        HEADER.pack(
            header.base_offset, length, header.leader_epoch, MAGIC, 0, attributes,
            header.last_offset - header.base_offset, base, latest, header.producer_id,
            header.producer_epoch, header.base_sequence, count,
        )
    )  # fmt: skip
    crc = crc32c(records, crc32c(memoryview(head)[CRC_END:]))
    head[CRC_END - 4 : CRC_END] = crc.to_bytes(4, "big")
    return bytes(head) + records
