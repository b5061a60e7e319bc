"""Yield the records of a log, and then new records when they are appended.

A truncation may drop records that a tail has already yielded. After such a truncation, new records
get the offsets of the dropped records, and the tail would skip the new records. So the tail raises
OffsetOutOfRangeError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from logstore.arguments import whole
from logstore.errors import OffsetOutOfRangeError
from logstore.log.read.isolation import end_of, isolated
from logstore.log.read.records import check_cuts

if TYPE_CHECKING:
    from logstore.format.batch import Record, RecordBatch
    from logstore.log.read.cut import Cut
    from logstore.log.replica import Replica


def tail(state: Replica, offset: int | str, timeout: float | None, level: str) -> Iterator[Record]:
    """Check the offset, and yield the records at and after it; see `ReadableLog.tail`."""
    state.check()
    state.refresh()
    cut = state.cut
    end = end_of(state, level)
    if isinstance(offset, str):
        if offset not in ("start", "end"):
            raise ValueError(f'offset {offset!r} is neither a number, "start" nor "end"')
        offset = state.log_start_offset if offset == "start" else end
    else:
        offset = whole(offset, "offset")
        if offset < 0:
            offset += state.log_end_offset
        state.check_readable(offset, offset)
    return _follow(state, offset, timeout, level, cut)


def _follow(
    state: Replica, offset: int, timeout: float | None, level: str, cut: Cut
) -> Iterator[Record]:
    """Yield records in passes over the log; if the log end moves back (a cut), the pass ends.

    After a cut, the rest of a pass may yield records that were dropped. So the next pass begins
    after the last batch that was yielded.
    """
    batch = None
    while True:
        state.refresh()
        if cut.later is not None:
            cut = check_cuts(state, cut, offset, batch)
        end, is_whole = max(offset, end_of(state, level)), False
        try:
            for found in isolated(state, level, offset, end):
                if cut.later is not None:
                    break
                batch = found
                yield from batch.records(state.topic, state.partition)
            else:
                # Check for a cut last, because a log may grow to its old length again after a cut.
                is_whole = end_of(state, level) >= end and cut.later is None
        except OffsetOutOfRangeError:
            if cut.later is None:
                raise
        if is_whole:
            offset = end
        elif batch is not None:
            offset = max(offset, batch.offset_at(batch.count - 1) + 1)
        if not _wait(state, offset, timeout, level, cut):
            return


def _wait(state: Replica, offset: int, timeout: float | None, level: str, cut: Cut) -> bool:
    """Wait for the record at an offset, or for a cut; return False if the timeout ends first."""
    return state.wait_until(lambda: end_of(state, level) > offset or cut.later is not None, timeout)


def _last_of(state: Replica, batch: RecordBatch | None) -> Record | None:
    """Return the last record of the last batch that was yielded."""
    return None if batch is None else batch.record(batch.count - 1, state.topic, state.partition)
