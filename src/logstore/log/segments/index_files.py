"""Write the two index files of a segment: first `.timeindex`, then `.index` with the trailer.

The files are written only after the part of the `.log` that they describe was flushed. So the
trailer proves that this part is durable.
"""

from __future__ import annotations

from contextlib import suppress

from xxhash import xxh3_64_intdigest

from logstore.disk import files
from logstore.errors import CorruptRecordBatchError
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES, PREFIX_BYTES, unpack_prefix
from logstore.log.metadata import PartitionMetadata
from logstore.log.segments.offset_index import ENTRY_BYTES
from logstore.log.segments.segment import Segment
from logstore.log.segments.trailer import Trailer, stored_checksum


def index_files(
    segment: Segment, fd: int, metadata: PartitionMetadata, *, is_sealed: bool
) -> tuple[bytes, bytes]:
    """Encode a segment's two index files, and return the bytes: `.timeindex`, then `.index`.

    The bytes describe the segment's state at the time of the call. This function reads the
    checksums of the first and the last batch, and sets the segment's `seal` from these checksums.

    Raises:
        CorruptRecordBatchError: the `.log` file is shorter than the segment.
        OSError: the disk could not read the bytes.
    """
    assert segment.index is not None and segment.time_index is not None
    first = last = 0
    if segment.size_bytes:
        head = files.read_up_to(fd, PREFIX_BYTES, 0)
        if len(head) < PREFIX_BYTES:
            raise CorruptRecordBatchError(
                path=segment.log_path, position=0, reason="the file is shorter than its batches"
            )
        first = stored_checksum(fd, 0, unpack_prefix(head)[1] + LENGTH_OVERHEAD_BYTES)
        last = stored_checksum(fd, segment.last_position, segment.size_bytes)
    segment.seal = (first, segment.last_position, last)
    time_bytes, entries = segment.time_index.to_bytes(), segment.index.to_bytes()
    trailer = Trailer(
        metadata.topic_id,
        metadata.partition,
        len(entries) // ENTRY_BYTES,
        segment.base_offset,
        segment.end_offset,
        segment.size_bytes,
        segment.last_position,
        first,
        last,
        segment.max_timestamp,
        segment.last_epoch,
        int(is_sealed),
        xxh3_64_intdigest(time_bytes),
        xxh3_64_intdigest(entries),
    )
    return time_bytes, entries + trailer.to_bytes()


def write_index_files(
    index_path: str, time_index_path: str, time_bytes: bytes, data: bytes
) -> None:
    """Write both index files of a segment, the time index first. Raises OSError."""
    for path, content in ((time_index_path, time_bytes), (index_path, data)):
        temporary = f"{path}.tmp"
        fd = files.replace_file(temporary)
        try:
            try:
                files.write_fully(fd, [content], 0)
            finally:
                files.close(fd)
            files.rename_over(temporary, path)
        except OSError:
            with suppress(OSError):  # if the disk fails, the next open of the log removes the file
                files.remove_if_there(temporary)
            raise
