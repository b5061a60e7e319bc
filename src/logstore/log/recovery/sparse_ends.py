"""Decide where a compacted segment ends: at its last batch, or where the next segment begins.

The compaction of this library keeps the last batch of a segment. So the file shows where the
segment ends. If Kafka compacted a segment, the last batch may end before the next segment begins. A
crash can leave similar files: the records at the end of a segment are lost, but the next segment
exists.
"""

from __future__ import annotations

from logstore.log.metadata import CLEANED, PartitionMetadata


def lacks_end(
    metadata: PartitionMetadata, next_base: int, recovery_point: int, last_filled: int
) -> bool:
    """Check whether compaction may have removed the offsets between two segments.

    Args:
        next_base: the base offset of the next segment.
        recovery_point: all records before this offset were flushed, so no crash has lost them.
        last_filled: the base offset of the last segment that is not empty.
    """
    if next_base <= max(recovery_point, metadata.cleaned.end_offset):
        return True
    if metadata.config.is_compacted or CLEANED in metadata.extra:
        return False
    # Kafka's segments were complete when this store adopted them.
    # So a crash can have lost records only at the end of the last segment that has records.
    return next_base <= last_filled
