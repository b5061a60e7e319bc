"""Walk over the headers of the batches that producers sent, from one offset to another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar.columns import Buffer
from logstore.format.kafka.header import CONTROL
from logstore.log.producers import rules
from logstore.log.read.cursor import Cursor
from logstore.log.read.records import segment_at
from logstore.log.replica import Replica
from logstore.log.segments.segment import Segment

if TYPE_CHECKING:
    from logstore.format.kafka.markers import Marker  # markers need the extra `kafka`

WINDOW_BYTES = 1 << 20

Found = tuple[BatchHeader, "Marker | None"]


def marker_of(data: Buffer, at: int, header: BatchHeader) -> Marker | None:
    """Read the marker in a batch; return None if the batch is not a marker."""
    if not rules.bits_of(header) & CONTROL:
        return None
    from logstore.format.kafka.markers import read_marker

    return read_marker(data, at, header)


def batches_of_producers(state: Replica, start: int, end: int) -> Iterator[Found]:
    """Yield, in order, the headers of the batches that producers sent, each with its marker.

    The first batch may begin before `start`, and the last batch may end after `end`. Batches before
    the log start are included, if their segment still exists. Segments that are deleted during the
    walk are skipped.

    Raises:
        CorruptRecordBatchError: a batch is damaged.
        OSError: the disk failed.
    """
    offset = start
    while (offset := max(offset, first_offset(state))) < min(end, state.log_end_offset):
        seen, segment = state.view, segment_at(state, offset)
        try:
            for header, marker in _in_segment(state, segment, offset):
                if header.base_offset >= end:
                    return
                if rules.is_watched(header):
                    yield header, marker
                offset = header.last_offset + 1
                if segment.is_dropped:
                    break
        except FileNotFoundError:
            if not segment.is_dropped and state.view is seen:
                raise
            continue
        if not segment.is_dropped:
            offset = max(offset, segment.end_offset)


def first_offset(state: Replica) -> int:
    """Return the first offset that the segments have. It may be before the log start."""
    segments = state.segments
    return segments[0].base_offset if segments else state.log_start_offset


def _in_segment(state: Replica, segment: Segment, offset: int) -> Iterator[Found]:
    """Yield the headers of a segment's batches; the first batch contains `offset`."""
    if not segment.size_bytes:
        return
    for data, _, run in Cursor(segment, offset, state.environment).runs(WINDOW_BYTES):
        for at, header in run:
            yield header, marker_of(data, at, header)
