"""Decide whether a segment or a trailer belongs to the log whose directory contains it."""

from __future__ import annotations

import enum

from logstore.disk import files
from logstore.format import layouts
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES, PREFIX_BYTES, unpack_prefix
from logstore.log.metadata import PartitionMetadata
from logstore.log.segments import trailer as trailers
from logstore.log.segments.listing import SegmentFiles
from logstore.log.segments.segment import Segment

FIRST_BATCH_BYTES_MAX = 1 << 20


class Owner(enum.Enum):
    """The log to which a segment belongs, according to the segment's trailer."""

    OURS = "the trailer belongs to this log"
    ANOTHER = "the segment belongs to another log, so it is not read"
    UNKNOWN = "the trailer belongs to another log, and does not describe this file"


def is_ours(metadata: PartitionMetadata, segment: Segment, trailer: trailers.Trailer) -> bool:
    """Check whether a trailer belongs to this segment, and to the log that `metadata` describes."""
    ours = (metadata.topic_id, metadata.partition, segment.base_offset)
    return (trailer.topic_id, trailer.partition, trailer.base_offset) == ours


def owner_of(
    metadata: PartitionMetadata, segment: Segment, row: SegmentFiles, trailer: trailers.Trailer
) -> tuple[Owner, int]:
    """Decide to which log a segment belongs; also return the layout of the segment's last batch.

    A trailer has the ids of a log, and describes the last batch of a segment file. If the trailer
    has the ids of this log, but the file has a different last batch, the segment file belongs to
    another log. If the trailer has the ids of another log and describes this file, the segment file
    belongs to that other log. If the trailer has the ids of another log and does not describe this
    file, only the index file is misplaced. The layout is 0 if the last batch was not read, or is
    not the batch that the trailer describes.
    """
    told = Owner.OURS if is_ours(metadata, segment, trailer) else Owner.UNKNOWN
    if not 0 < trailer.log_bytes <= row.log_bytes:
        return told, 0
    fd = files.open_regular(segment.log_path, files.READ)
    try:
        last_position, end = trailer.last_position, trailer.log_bytes
        found, magic = trailers.checksum_and_magic(fd, last_position, end)
        is_match = found == trailer.last_checksum
        if (told is Owner.OURS) == is_match:
            return told, magic if is_match else 0
        batch = _claimed_batch(fd, last_position, end)
        if not is_match and layouts.fault(batch, 0, None) is not None:
            head = files.read_up_to(fd, min(row.log_bytes, FIRST_BATCH_BYTES_MAX), 0)
            if layouts.fault(head, 0, segment.base_offset) is None:
                first = layouts.read_header(head, 0).size_bytes
                is_match = trailers.stored_checksum(fd, 0, first) == trailer.first_checksum
            if is_match:
                # If the end of the segment is damaged, the segment counts as a segment of this log.
                # A reader of the end gets an error.
                return told, 0
    finally:
        files.close(fd)
    return Owner.ANOTHER, 0


def _claimed_batch(fd: int, position: int, end: int) -> bytes:
    """Read the batch at a position; if the batch does not end at `end`, read only its prefix."""
    head = files.read_up_to(fd, PREFIX_BYTES, position)
    if len(head) < PREFIX_BYTES or unpack_prefix(head)[1] + LENGTH_OVERHEAD_BYTES != end - position:
        return head
    return files.read_up_to(fd, end - position, position)
