"""Decide where a compacted segment ends: at its last batch, or where the next segment begins.

The compaction of this library keeps the last batch of a segment, so the end of the segment shows in
the file. A segment that Kafka compacted may end before the next segment begins. A crash can leave
the same files: the records at the end of a segment are lost, but the next segment already exists.
"""

from __future__ import annotations

from logstore.log.metadata import CLEANED, PartitionMetadata


def lacks_end(
    metadata: PartitionMetadata, next_base: int, recovery_point: int, last_filled: int
) -> bool:
    """Check whether compaction may have removed the offsets between two segments.

    Args:
        next_base: the base offset of the next segment.
        recovery_point: everything below this offset was flushed, so no crash has lost it.
        last_filled: the base offset of the last segment that is not empty.
    """
    if next_base <= max(recovery_point, metadata.cleaned.end_offset):
        return True
    if metadata.config.is_compacted or CLEANED in metadata.extra:
        return False
    # Kafka's segments were whole when they were adopted. A crash leaves empty segments at the end.
    return next_base <= last_filled
