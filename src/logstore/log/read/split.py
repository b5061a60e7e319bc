"""Cut a range of a log into pieces of similar size, so that several readers can share the work.

A piece ends where a segment ends, or at an entry of a segment's index. Pieces are ranges of
offsets. So if an index entry is wrong, the sizes of the pieces differ more, but no record is lost
or read twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.log.segments.offset_index import OffsetIndex
from logstore.log.segments.segment import Segment

if TYPE_CHECKING:
    from logstore.log.replica import Replica

OffsetRange = tuple[int, int]


def split(state: Replica, start: int, end: int, piece_bytes: int) -> list[OffsetRange]:
    """Cut the offsets `start..end` into pieces of about `piece_bytes` stored bytes."""
    try:
        return _split(state, start, end, piece_bytes)
    except (
        FileNotFoundError
    ):  # a segment was dropped meanwhile; the reader of the piece handles this
        return [(start, end)] if start < end else []
    except OSError as error:
        raise state.failed(error) from error


def bytes_between(state: Replica, start: int, end: int) -> int:
    """Estimate the stored bytes of the offsets `start..end`, from the sizes of segments only."""
    total = 0.0
    for segment in state.segments:
        span = segment.end_offset - segment.base_offset
        common = min(end, segment.end_offset) - max(start, segment.base_offset)
        if common > 0:
            total += segment.size_bytes * common / span
    return int(total)


def _split(state: Replica, start: int, end: int, piece_bytes: int) -> list[OffsetRange]:
    pieces: list[OffsetRange] = []
    begin, filled = start, 0
    for segment in state.segments:
        first, last = max(start, segment.base_offset), min(end, segment.end_offset)
        if first >= last:
            continue
        if filled + segment.size_bytes > piece_bytes:
            index = segment.offset_index(state.environment)
            position = _position(segment, index, first)
            end_position = _position(segment, index, last)
            while (rest := filled + end_position - position) > piece_bytes:
                # Make equal pieces.
                # Otherwise a small piece could remain at the end of the segment.
                equal_bytes = rest // -(-rest // piece_bytes)
                cut = _entry_at(index, position + equal_bytes - filled)
                offset = segment.base_offset + index.offsets[cut] if cut < len(index) else last
                if not begin < offset < last:
                    break
                pieces.append((begin, offset))
                begin, filled, position = offset, 0, index.positions[cut]
            filled += end_position - position
        else:
            filled += segment.size_bytes
        if filled > piece_bytes // 2 and begin < last < end:
            pieces.append((begin, last))
            begin, filled = last, 0
    if begin < end:
        pieces.append((begin, end))
    return pieces


def _position(segment: Segment, index: OffsetIndex, offset: int) -> int:
    """Estimate the position of an offset in its segment."""
    if offset <= segment.base_offset:
        return 0
    if offset >= segment.end_offset:
        return segment.size_bytes
    entry = index.lookup(offset - segment.base_offset)
    return index.positions[entry] if entry >= 0 else 0


def _entry_at(index: OffsetIndex, position: int) -> int:
    """Return how many index entries are before a position."""
    from bisect import bisect_left

    return bisect_left(index.positions, position)
