"""Use the time indexes to find the first record at or after a time, or the latest record.

A batch without records of clients, such as a transaction marker, is never found. But a segment's
largest timestamp and its time index also count these batches. So the largest timestamp and the time
index are only upper bounds of the timestamps of records.

If the thread has a lease of memory for decompressed batches, it returns this memory before each
read of the disk. So each loop drops its batch before it asks for the next batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING

from logstore.errors import OffsetOutOfRangeError
from logstore.format import expansion_lease as lease
from logstore.format.columnar import record_batch as columnar
from logstore.log.read import records

if TYPE_CHECKING:
    from logstore.format.batch import RecordBatch
    from logstore.log.replica import Replica
    from logstore.log.segments.segment import Segment
    from logstore.log.segments.time_index import TimeIndex

# The latest record is usually near the end of a segment, so only a few bytes are read at once.
WINDOW_BYTES = 64 << 10
Found = tuple[int, int]  # a timestamp, and an offset


def first_offset_at(state: Replica, timestamp: int) -> int | None:
    """Return the first offset with a timestamp at or after `timestamp`; None if there is none."""
    found = first_record_at(state, timestamp)
    return None if found is None else found[1]


def first_record_at(state: Replica, timestamp: int) -> Found | None:
    """Return the timestamp and the offset of the first record at or after `timestamp`, or None.

    The timestamps of a log can be in any order. A segment is skipped if its largest timestamp is
    before `timestamp`. The time index also shows which records at the beginning of a segment are
    too early. These records are skipped. The rest of the segment is read batch by batch.
    """
    return _repeated(state, lambda: _first_record_at(state, timestamp))


def _repeated(state: Replica, search: Callable[[], tuple[bool, Found | None]]) -> Found | None:
    """Repeat a search until no segment is dropped during the search."""
    while True:
        state.check()
        log_start = state.log_start_offset
        try:
            is_whole, found = search()
        except OffsetOutOfRangeError:
            if state.log_start_offset == log_start:
                raise
            continue  # retention dropped the records that were about to be read
        if is_whole:
            return found


def _first_record_at(state: Replica, timestamp: int) -> tuple[bool, Found | None]:
    """Return whether the search was undisturbed (no segment was dropped), and the first record."""
    for segment in state.segments:
        if segment.max_timestamp < timestamp or segment.end_offset <= state.log_start_offset:
            continue
        start = _start_in(state, segment, timestamp)
        if start is None:
            return False, None
        for batch in records.batches_of(state, start, max(segment.end_offset, start)):
            found = _first_in(batch, timestamp)
            del batch
            if found is not None:
                return True, found
    return True, None


def _first_in(batch: RecordBatch, timestamp: int) -> Found | None:
    # In Kafka's layout, the header's largest timestamp may be wrong.
    header = batch.header
    if header.max_timestamp < timestamp and header.magic == columnar.MAGIC:
        return None
    times = batch.timestamps
    late = (times >= timestamp).nonzero()[0]
    return (int(times[late[0]]), batch.offset_at(int(late[0]))) if len(late) else None


def latest_record(state: Replica) -> Found | None:
    """Return the largest timestamp of all records, and the first offset that has it, or None.

    Records with a negative timestamp have no time, and are left out. Usually only the end of one
    segment is read. If the markers of transactions are much later than all records, every segment
    is read, but a segment that does not grow is read only once.
    """
    return _repeated(state, lambda: _latest_record(state))


def _latest_record(state: Replica) -> tuple[bool, Found | None]:
    """Return whether the search was undisturbed (no segment was dropped), and the latest record."""
    best: Found | None = None
    # segments with equal timestamps stay in the order of their offsets
    for segment in sorted(state.segments, key=lambda each: each.max_timestamp, reverse=True):
        if segment.max_timestamp < 0:
            break
        if best is not None and (segment.max_timestamp, -segment.base_offset) < (best[0], -best[1]):
            continue  # every record of the segment is older, or has a larger offset
        if segment.end_offset <= state.log_start_offset:
            continue
        size_bytes, kept = segment.size_bytes, segment.latest
        if kept is not None and kept[0] == size_bytes and _is_left(state, kept[1]):
            best = _later(best, kept[1])
            continue
        index = _index_of(state, segment)
        if index is None:
            return False, None
        found = _latest_in(state, segment, index)
        segment.latest = size_bytes, found
        best = _later(best, found)
    return True, best


def _is_left(state: Replica, found: Found | None) -> bool:
    """Return whether an earlier result is still right: retention has not deleted its record."""
    return found is None or found[1] >= state.log_start_offset


def _latest_in(state: Replica, segment: Segment, index: TimeIndex) -> Found | None:
    """Read a segment from its end, until no earlier record can have a larger timestamp."""
    best, end, step = None, segment.end_offset, 1
    most = segment.max_timestamp  # no record before `end` has a larger timestamp
    number = bisect_left(index.timestamps, most)
    while True:
        number = max(number - step, -1)
        relative = index.offsets[number] if number >= 0 else 0
        start = max(segment.base_offset + relative, state.log_start_offset)
        best = _later(best, _latest_between(state, start, end, most))
        if number < 0 or (best is not None and index.timestamps[number] < best[0]):
            return best
        end, most = min(start, end), index.timestamps[number]
        step *= 2  # a few large reads cost less than many small reads


def _latest_between(state: Replica, start: int, end: int, most: int) -> Found | None:
    """Find the latest record in a range of offsets; stop at a record with the timestamp `most`."""
    best = None
    if start >= end:
        return None
    for batch in records.batches_of(state, start, end, window_bytes=WINDOW_BYTES):
        at = int(batch.timestamps.argmax())
        best = _later(best, (int(batch.timestamps[at]), batch.offset_at(at)))
        del batch
        if best is not None and best[0] >= most:
            break
    lease.settle()  # the loop may have ended early
    return best


def _later(one: Found | None, other: Found | None) -> Found | None:
    """Return the pair with the larger timestamp.

    If the timestamps are equal, return the pair with the smaller offset.
    """
    if other is None or other[0] < 0:
        return one
    if one is None:
        return other
    return max(one, other, key=lambda found: (found[0], -found[1]))


def _start_in(state: Replica, segment: Segment, timestamp: int) -> int | None:
    """Return the offset at which a search in a segment begins; None if the segment is dropped."""
    index = _index_of(state, segment)
    if index is None:
        return None
    return max(segment.base_offset + index.start_for(timestamp), state.log_start_offset)


def _index_of(state: Replica, segment: Segment) -> TimeIndex | None:
    """Return the time index of a segment; None if the segment is dropped."""
    try:
        return segment.offset_time_index(state.environment)
    except FileNotFoundError as error:
        state.retry(segment, state.log_start_offset, error)
    except OSError as error:
        state.take_failure(segment, state.log_start_offset, error)
    return None
