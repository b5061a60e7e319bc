"""Check batches in as few steps as possible: the inner loops of recovery and of scans.

These functions return a batch only if it is whole and valid. For any other batch, `layouts.fault`
finds the reason. Pass a memoryview, because its slices are not copies.
"""

from __future__ import annotations

import struct

from xxhash import xxh3_64_intdigest

from logstore.format.batch import new_tuple
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar.columns import Buffer
from logstore.format.columnar.payload import CHECKSUM_BYTES, KNOWN_ATTRIBUTES, OVERHEAD_BYTES
from logstore.format.columnar.record_batch import HEADER, MAGIC, VERSION
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES

_unpack_header = HEADER.unpack_from
_unpack_checksum = struct.Struct(">Q").unpack_from


def sound_header(data: Buffer, position: int, end: int, expected_offset: int) -> BatchHeader | None:
    """Check the batch at `position`; return None if anything is wrong."""
    if position + OVERHEAD_BYTES > end:
        return None
    (
        base_offset, length, epoch, magic, version, attributes, count, last_delta, stored,
        base_timestamp, max_timestamp, producer_id, producer_epoch, _, sequence, payload_bytes, _,
    ) = _unpack_header(data, position)  # fmt: skip
    size_bytes = length + LENGTH_OVERHEAD_BYTES
    if (
        base_offset != expected_offset
        or magic != MAGIC
        or version != VERSION
        or position + size_bytes > end
        or ((stored + 7) & ~7) + OVERHEAD_BYTES != size_bytes
        or count > last_delta + 1
        or attributes & ~KNOWN_ATTRIBUTES
    ):
        return None
    body_end = position + size_bytes - CHECKSUM_BYTES
    if xxh3_64_intdigest(data[position:body_end]) != _unpack_checksum(data, body_end)[0]:
        return None
    return new_tuple(
        BatchHeader,
        (
            base_offset, size_bytes, epoch, magic, attributes, count, base_offset + last_delta,
            stored, base_timestamp, max_timestamp, producer_id, producer_epoch, sequence,
            payload_bytes,
        ),
    )  # fmt: skip


def sound_run(
    data: Buffer, position: int, expected_offset: int, offset: int, start: int, verified: bytearray
) -> tuple[list[tuple[int, BatchHeader]], int, int]:
    """Check the batches that begin at `position`, as `sound_header` does.

    The check stops at the first batch that is not valid, or whose last offset is below `offset`.

    Args:
        start: the position of `data` in its file.
        verified: a bit for each 32 bytes of the file. The bit is set if a batch that begins in the
            32 bytes was checked.

    Returns:
        The position and header of each batch, then the position and the offset of the next batch.
    """
    found: list[tuple[int, BatchHeader]] = []
    end = len(data)
    while position + OVERHEAD_BYTES <= end:
        (
            base_offset, length, epoch, magic, version, attributes, count, last_delta, stored,
            base_timestamp, max_timestamp, producer_id, producer_epoch, _, sequence, payload_bytes,
            _,
        ) = _unpack_header(data, position)  # fmt: skip
        batch_end = position + length + LENGTH_OVERHEAD_BYTES
        if (
            base_offset != expected_offset
            or magic != MAGIC
            or version != VERSION
            or batch_end > end
            or ((stored + 7) & ~7) + (OVERHEAD_BYTES - LENGTH_OVERHEAD_BYTES) != length
            or count > last_delta + 1
            or attributes & ~KNOWN_ATTRIBUTES
        ):
            break
        at = start + position
        if not verified[at >> 8] >> (at >> 5 & 7) & 1:
            body_end = batch_end - CHECKSUM_BYTES
            if xxh3_64_intdigest(data[position:body_end]) != _unpack_checksum(data, body_end)[0]:
                break
            verified[at >> 8] |= 1 << (at >> 5 & 7)
        last_offset = base_offset + last_delta
        if last_offset < offset:
            break
        header = new_tuple(
            BatchHeader,
            (
                base_offset, batch_end - position, epoch, magic, attributes, count, last_offset,
                stored, base_timestamp, max_timestamp, producer_id, producer_epoch, sequence,
                payload_bytes,
            ),
        )  # fmt: skip
        found.append((position, header))
        position, expected_offset = batch_end, last_offset + 1
    return found, position, expected_offset
