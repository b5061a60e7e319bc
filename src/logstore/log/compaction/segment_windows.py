"""Read a segment in windows; each window has only whole batches."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from logstore.disk import files
from logstore.disk.calls import call
from logstore.format.batch_parts import BatchHeader
from logstore.format.layouts import HEADER_BYTES_MAX, read_header
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES, PREFIX_BYTES
from logstore.log.compaction.window import Window
from logstore.log.read.cursor import corrupt
from logstore.log.segments.cache import Handle
from logstore.log.segments.segment import Segment

WINDOW_BYTES = 512 << 10
WINDOW_BATCHES = 512  # one step would take too long if it had to find the ends of more batches
_length_at = struct.Struct(">8xi").unpack_from


def windows(segment: Segment, handle: Handle, expansion_bytes_max: int) -> Iterator[Window]:
    """Yield all batches of a segment; this function only checks the sizes of the batches.

    Args:
        handle: the segment's file; this reference keeps the file open.

    Raises:
        OSError: the disk could not read the bytes.
        CorruptRecordBatchError: the file is shorter than the segment.
    """
    position, offset, size = 0, segment.base_offset, WINDOW_BYTES
    while position < segment.size_bytes:
        left = segment.size_bytes - position
        with call(segment.directory):
            data = files.read_up_to(handle.fd, min(size, left), position)
        if not data:
            raise corrupt(segment, position, "the file is shorter than its batches")
        last, end, count = whole_batches(data)
        if not end:
            wanted = _length_at(data)[0] + LENGTH_OVERHEAD_BYTES if len(data) > PREFIX_BYTES else 0
            if size < wanted <= left:
                size = wanted
                continue
            end = left  # the rest is damaged: `Window.chunks` reports this
        yield Window(segment.log_path, position, data[:end], offset, expansion_bytes_max)
        position, offset = position + end, read_header(data, last).last_offset + 1
        size = min(WINDOW_BYTES, max(end // max(count, 1) * WINDOW_BATCHES, WINDOW_BYTES // 16))


def last_header(segment: Segment, handle: Handle) -> BatchHeader:
    """Read the header of a segment's last batch; the segment must not be empty. Raises OSError."""
    with call(segment.directory):
        head = files.read_up_to(handle.fd, HEADER_BYTES_MAX, segment.last_position)
    return read_header(head, 0)


def whole_batches(data: bytes) -> tuple[int, int, int]:
    """Count whole batches; return where the last batch begins, where it ends, and the count."""
    last = at = count = 0
    limit = len(data) - PREFIX_BYTES
    while at <= limit:
        size_bytes = _length_at(data, at)[0] + LENGTH_OVERHEAD_BYTES
        if size_bytes < PREFIX_BYTES or at + size_bytes > len(data):
            break
        last, at, count = at, at + size_bytes, count + 1
    return last, at, count
