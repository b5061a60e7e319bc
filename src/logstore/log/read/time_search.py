"""Use the time indexes to find the first record at or after a point in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.format.columnar import record_batch as columnar
from logstore.log.read import records

if TYPE_CHECKING:
    from logstore.log.replica import Replica
    from logstore.log.segments.segment import Segment


def first_offset_at(state: Replica, timestamp: int) -> int | None:
    """Return the first offset with a timestamp at or after `timestamp`, or None.

    The timestamps of a log can be in any order. A segment is skipped if its largest timestamp is
    before `timestamp`. The time index also shows which records at the beginning of a segment are
    too early. These records are skipped. The rest of the segment is read batch by batch.
    """
    while True:
        state.check()
        for segment in state.segments:
            if segment.max_timestamp < timestamp or segment.end_offset <= state.log_start_offset:
                continue
            start = _start_in(state, segment, timestamp)
            if start is None:
                break
            for batch in records.batches_of(state, start, max(segment.end_offset, start)):
                header = batch.header
                # In Kafka's layout, the header's largest timestamp may be wrong.
                if header.max_timestamp < timestamp and header.magic == columnar.MAGIC:
                    continue
                late = (batch.timestamps >= timestamp).nonzero()[0]
                if len(late):
                    return batch.offset_at(int(late[0]))
        else:
            return None


def _start_in(state: Replica, segment: Segment, timestamp: int) -> int | None:
    """Return the offset at which a search in a segment begins; None if the segment is dropped."""
    try:
        relative = segment.offset_time_index(state.environment).start_for(timestamp)
    except FileNotFoundError as error:
        state.retry(segment, state.log_start_offset, error)
        return None
    except OSError as error:
        state.take_failure(segment, state.log_start_offset, error)
        return None
    return max(segment.base_offset + relative, state.log_start_offset)
