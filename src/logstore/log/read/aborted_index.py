"""Find the aborted transactions in a range of offsets, for readers of encoded batches.

A reader of committed records needs this list with each range. So the list of the whole log is kept,
and each event of a transaction is taken only once, in the order of the log. If segments before the
last one have changed, the list is made again from the events that were kept for each segment.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from logstore.errors import CorruptRecordBatchError
from logstore.log.read.file_range import FileRange, read_range
from logstore.log.read.isolation import READ_COMMITTED
from logstore.log.read.transactions import (
    ABORT,
    BEGIN,
    Aborted,
    Event,
    events_of,
    forget_dropped,
    steady,
)
from logstore.log.segments.segment import Segment

if TYPE_CHECKING:
    from logstore.log.replica import Replica


class Index(NamedTuple):
    """The aborted transactions of a log, up to an event. An index is never changed.

    Attributes:
        segments: the segments whose events were taken.
        last_offset: the offset of the last event that was taken; -1 before the first.
        begun: the first offset of each transaction that has no marker yet.
        rows: the aborted transactions, in the order of their markers.
        stable: for each row, an offset before which no transaction was open after the marker.
        damage: the error of the segment at which the search ended, or None.
    """

    segments: tuple[Segment, ...]
    last_offset: int
    begun: dict[int, int]
    rows: list[Aborted]
    stable: list[int]
    damage: CorruptRecordBatchError | None


EMPTY = Index((), -1, {}, [], [], None)


def committed_range(
    state: Replica, offset: int, max_bytes: int, has_transactions: Callable[[], bool]
) -> tuple[FileRange, list[tuple[int, int]]]:
    """Find a range, and the aborted transactions in it; see `ReplicatedLog.read_committed_range`.

    If a segment was removed or compacted in between, the list may lack transactions of the range.
    After such a change, the range and the list are read again.

    Args:
        has_transactions: whether the log may have transactions now; if not, no segment is walked.
    """
    while True:
        state.check()
        state.refresh()
        view, start = state.view, state.log_start_offset
        found = read_range(state, offset, max_bytes, None, READ_COMMITTED)
        if not found.size_bytes:
            return found, []
        try:
            rows = []
            if has_transactions():
                rows = aborted_in(state, found.first_offset, found.next_offset)
        except BaseException:
            found.close()
            raise
        if state.view is view and state.log_start_offset == start:
            return found, rows
        found.close()


def aborted_in(state: Replica, offset: int, end_offset: int) -> list[tuple[int, int]]:
    """List the aborted transactions with records in a range, as (producer id, first offset).

    Raises:
        LogStoreError: the log is closed or unavailable.
        CorruptRecordBatchError: it is not known whether a transaction in the range was aborted.
    """

    def look() -> tuple[Index, object]:
        found = _index_of(state)
        return found, found.damage

    index = steady(state, look)
    if index.damage is not None and min(index.begun.values(), default=end_offset) < end_offset:
        raise index.damage
    found = []
    at = bisect_left(index.rows, offset, key=lambda row: row.last_offset)
    for number in range(at, len(index.rows)):
        row = index.rows[number]
        if row.first_offset < end_offset:
            found.append((row.first_offset, row.producer_id))
        if index.stable[number] >= end_offset:
            break
    return [(producer_id, first) for first, producer_id in sorted(found)]


def _index_of(state: Replica) -> Index:
    """Take the events that are new since the last call; raises OSError."""
    end_offset = state.high_watermark  # later events are ignored
    segments = state.segments
    index: Index = state.aborted_index or EMPTY
    count = len(index.segments)
    if index.segments != segments[:count]:
        index, count = EMPTY, 0
        forget_dropped(state)
    if index.damage is not None:
        index = index._replace(damage=None)
    for number in range(max(count - 1, 0), len(segments)):
        try:
            events = events_of(state, segments[number])
        except CorruptRecordBatchError as error:
            index = index._replace(damage=error)
            break
        first = bisect_right(events, index.last_offset, key=lambda event: event.offset)
        last = bisect_left(events, end_offset, key=lambda event: event.offset)
        if first < last:
            index = _with(index, events[first:last])
        if number >= len(index.segments):
            index = index._replace(segments=segments[: number + 1])
        if last < len(events):
            break
    state.aborted_index = index
    return index


def _with(index: Index, events: list[Event]) -> Index:
    """Take events, which follow the last event of an index."""
    begun, rows, stable = dict(index.begun), list(index.rows), list(index.stable)
    for kind, producer_id, offset in events:
        if kind == BEGIN:
            begun.setdefault(producer_id, offset)
            continue
        first = begun.pop(producer_id, None)
        if kind == ABORT and first is not None:
            rows.append(Aborted(producer_id, first, offset))
            stable.append(min(begun.values(), default=offset + 1))
    return index._replace(last_offset=events[-1].offset, begun=begun, rows=rows, stable=stable)
