"""Check Kafka's batches in as few steps as possible: the inner loops of recovery and of scans.

These functions return a batch only if it is whole and valid. For any other batch, `layouts.fault`
finds the reason. Pass a memoryview, because its slices are not copies.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from logstore.format.batch import new_tuple
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar.columns import Buffer
from logstore.format.kafka.crc import crc32c
from logstore.format.kafka.header import (
    CODEC_MASK,
    CRC_END,
    HEADER,
    HEADER_BYTES,
    HEADER_FIELDS,
    MAGIC,
    RECORD_BYTES_MIN,
)
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES, PREFIX_BYTES

MAGIC_AT = PREFIX_BYTES - 1
_unpack_base_offset = struct.Struct(">q").unpack_from
_unpack_header = HEADER.unpack_from
_unpack_length = struct.Struct(">8xi").unpack_from
# This many small batches are checked in less than a millisecond, before other threads can run.
TOGETHER_MAX = 512
TOGETHER_MIN = 16  # up to this many batches are checked faster one by one

Numbers = NDArray[np.int64]


def sound_header(
    data: Buffer, position: int, end: int, expected_offset: int, is_verified: bool = False
) -> BatchHeader | None:
    """Check the batch at `position` in few steps; return None if anything is wrong.

    If the batch begins after `expected_offset`, the caller must check this gap with the next batch.
    If the result is None, `layouts.fault` finds the reason. Pass a memoryview, because its slices
    are not copies.
    """
    if position + HEADER_BYTES > end:
        return None
    (
        base_offset, length, epoch, magic, crc, attributes, last_delta, base_timestamp,
        max_timestamp, producer_id, producer_epoch, sequence, count,
    ) = _unpack_header(data, position)  # fmt: skip
    batch_end = position + length + LENGTH_OVERHEAD_BYTES
    stored = batch_end - position - HEADER_BYTES
    if (
        base_offset < expected_offset
        or magic != MAGIC
        or stored < 0
        or batch_end > end
        or not 0 <= count <= last_delta + 1
        or last_delta < 0
        or (count * RECORD_BYTES_MIN > stored and not attributes & CODEC_MASK)
    ):
        return None
    if not is_verified and crc32c(data[position + CRC_END : batch_end]) != crc:
        return None
    return new_tuple(
        BatchHeader,
        (
            base_offset, length + LENGTH_OVERHEAD_BYTES, epoch, magic, attributes, count,
            base_offset + last_delta, stored, base_timestamp, max_timestamp, producer_id,
            producer_epoch, sequence, 0 if attributes & CODEC_MASK else stored,
        ),
    )  # fmt: skip


def sound_run(
    data: Buffer, position: int, expected_offset: int, offset: int, start: int, verified: bytearray
) -> tuple[list[tuple[int, BatchHeader]], int, int]:
    """Check the batches that begin at `position`; see `sound.sound_run`.

    Compaction leaves gaps between offsets. A batch after a gap is accepted only if `data` also has
    the start of the next batch, with a later base offset. The reason: no checksum covers the base
    offset, and only the next batch shows whether the base offset is too large.
    """
    found: list[tuple[int, BatchHeader]] = []
    end = len(data)
    while position < end:
        at = start + position
        is_verified = bool(verified[at >> 8] >> (at >> 5 & 7) & 1)
        header = sound_header(data, position, end, expected_offset, is_verified)
        if header is None or header.last_offset < offset:
            break
        behind = position + header.size_bytes
        if header.base_offset != expected_offset and (
            behind + PREFIX_BYTES > end
            or data[behind + MAGIC_AT] != MAGIC
            or _unpack_base_offset(data, behind)[0] <= header.last_offset
        ):
            break
        verified[at >> 8] |= 1 << (at >> 5 & 7)
        found.append((position, header))
        position, expected_offset = behind, header.last_offset + 1
    return found, position, expected_offset


class SoundHeaders(NamedTuple):
    """Hold the header fields of consecutive batches, one row for each batch.

    Attributes:
        data: the window that holds the batches.
        positions: the position of each batch in the window; the last element is the end of the last
            batch.
        last_offsets: the last offset of each batch. The next batch begins after the last offset,
            perhaps after a gap.
    """

    data: memoryview
    positions: Numbers
    base_offsets: Numbers
    last_offsets: Numbers
    leader_epochs: Numbers
    attributes: Numbers
    max_timestamps: Numbers
    record_counts: Numbers
    producer_ids: Numbers

    def until(self, count: int) -> SoundHeaders:
        """Return the rows of the first `count` batches."""
        return SoundHeaders(
            self.data, self.positions[: count + 1], *(column[:count] for column in self[2:])
        )


def sound_headers(data: memoryview, position: int, expected_offset: int) -> SoundHeaders | None:
    """Check many small batches, from `position` to the first that `sound_header` refuses.

    Each batch begins at or after the end offset of the batch before it. If the last batch begins
    after a gap, the caller must check that gap. If there are only a few batches, the result is
    None, because it is faster to check them one by one.
    """
    places = _follow(data, position)
    if len(places) <= TOGETHER_MIN:
        return None
    positions = np.array(places, np.int64)
    # An array of overlapping items: a possible header begins at each position of the data.
    headers = np.ndarray((len(data) - HEADER_BYTES + 1,), HEADER_FIELDS, data, 0, (1,))
    rows = headers[positions[:-1]]
    stored = np.diff(positions) - HEADER_BYTES
    columns = {name: rows[name].astype(np.int64) for name in _WANTED}
    base_offsets, last_deltas = columns["base_offset"], columns["last_offset_delta"]
    counts, attributes = columns["record_count"], columns["attributes"]
    last_offsets = base_offsets + last_deltas
    is_good = (rows["magic"] == MAGIC) & (last_deltas >= 0)
    is_good &= last_offsets >= base_offsets  # if this is False, the sum has overflowed 64 bits
    is_good &= (counts >= 0) & (counts <= last_deltas + 1)
    is_good &= (counts * RECORD_BYTES_MIN <= stored) | (attributes & CODEC_MASK != 0)
    is_good &= base_offsets >= np.concatenate(([expected_offset], last_offsets[:-1] + 1))
    good = len(is_good) if is_good.all() else int(is_good.argmin())
    for number, crc in enumerate(rows["crc"][:good].tolist()):
        if crc32c(data[places[number] + CRC_END : places[number + 1]]) != crc:
            good = number
            break
    found = SoundHeaders(
        data, positions, base_offsets, last_offsets, columns["leader_epoch"], attributes,
        columns["max_timestamp"], counts, columns["producer_id"],
    )  # fmt: skip
    return found.until(good) if good else None


_WANTED = (
    "base_offset", "leader_epoch", "attributes", "last_offset_delta", "max_timestamp",
    "producer_id", "record_count",
)  # fmt: skip


def _follow(data: memoryview, position: int) -> list[int]:
    """Step from batch to batch by their lengths, which are not checked.

    Return where batches seem to begin, and the end of the last batch.
    """
    places, end = [position], len(data)
    while position + HEADER_BYTES <= end and len(places) <= TOGETHER_MAX:
        size_bytes = _unpack_length(data, position)[0] + LENGTH_OVERHEAD_BYTES
        position += size_bytes
        if size_bytes < HEADER_BYTES or position > end:
            break
        places.append(position)
    return places
