"""Walk over a segment in which no offsets are missing: each batch continues the batch before it.

No checksum covers the base offset of a Kafka batch. In a log with gaps, only the next batch can
show that a base offset is too large. So in a log with gaps, the walk accepts a last batch with a
base offset that is too large, and the log end is too large, too. In a log without gaps, the end of
a batch is the base offset of the next batch. So this walk reports every wrong base offset as
damage, also in the last batch.

If a batch does not have the expected base offset, the walk reads the header of the next batch. If
the next batch continues this batch, the base offset of this batch is right, and the offsets before
this batch are missing. If the next batch does not continue this batch, the expected base offset is
right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from logstore.disk import files
from logstore.format import layouts
from logstore.format.batch_parts import BatchHeader
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES, PREFIX_BYTES, unpack_prefix
from logstore.log.metadata import CONFIG_LOST, PartitionMetadata
from logstore.log.segments.scan import Damage, Scan
from logstore.log.segments.segment import Segment

if TYPE_CHECKING:
    from logstore.format.kafka.sound import SoundHeaders

OFFSET_BYTES = 8  # a batch begins with its base offset


class MisplacedBatch(Damage):
    """A whole batch whose only damage is its base offset; `offset` is the right base offset."""

    __slots__ = ()


class DenseScan(Scan):
    """The state of a walk over a segment without gaps in its offsets."""

    def skip_damage(self, fd: int, end: int, reason: str) -> Damage:
        """Move past the damage that stopped the walk; see `Scan.skip_damage`."""
        if self._refused is None:
            found = self._base_offset_fault(fd, end, reason)
            if found is not None:
                self.position, self.offset = found.end_position, found.end_offset or self.offset
                self.magic, self.indexed_position = layouts.KAFKA_MAGIC, -self.interval_bytes
                self.good_end = self.position
                return found
        return super().skip_damage(fd, end, reason)

    def _base_offset_fault(self, fd: int, end: int, reason: str) -> Damage | None:
        """Return the damage if only the base offset of a batch is wrong, or if offsets are missing.

        Otherwise return None.
        """
        position, offset = self.position, self.offset
        head = files.read_up_to(fd, PREFIX_BYTES, position)
        if len(head) < PREFIX_BYTES:
            return None
        base_offset, length, _, magic = unpack_prefix(head)
        batch_end = position + length + LENGTH_OVERHEAD_BYTES
        is_framed = position + layouts.OVERHEAD_BYTES_MIN <= batch_end <= end
        if base_offset == offset or magic != layouts.KAFKA_MAGIC or not is_framed:
            return None
        data = files.read_up_to(fd, batch_end - position, position)
        data = offset.to_bytes(OFFSET_BYTES, "big") + data[OFFSET_BYTES:]
        if layouts.fault(data, 0, offset) is not None:
            return None  # the batch has other damage, too
        header, shift = layouts.read_header(data, 0), base_offset - offset
        moved = header._replace(base_offset=base_offset, last_offset=header.last_offset + shift)
        following = files.read_up_to(fd, PREFIX_BYTES, batch_end)
        has_next = len(following) == PREFIX_BYTES
        has_next = has_next and following[layouts.MAGIC_AT] == layouts.KAFKA_MAGIC
        if has_next and unpack_prefix(following)[0] == moved.last_offset + 1:
            is_hole = shift > 0 and not self._is_beyond(moved)
            return Damage(position, position, offset, base_offset, reason) if is_hole else None
        if self._is_beyond(header):
            return None
        return MisplacedBatch(position, batch_end, offset, header.last_offset + 1, reason)

    def _note_many(self, found: SoundHeaders, start: int) -> bool:
        """Take many batches at once; if offsets are missing, return False instead."""
        expected = np.concatenate(([self.offset], found.last_offsets[:-1] + 1))
        is_dense = bool((found.base_offsets == expected).all())
        return is_dense and super()._note_many(found, start)

    def _fits(self, header: BatchHeader, position: int, fd: int) -> bool:
        """Refuse a batch that follows a gap in the offsets."""
        return False


def scan_class(metadata: PartitionMetadata, segment: Segment) -> type[Scan]:
    """Choose the walk for a segment of a log.

    If `partition.metadata` was lost, it may also be unknown whether the log has gaps.
    """
    is_dense = not segment.is_sparse and CONFIG_LOST not in metadata.extra
    return DenseScan if is_dense else Scan
