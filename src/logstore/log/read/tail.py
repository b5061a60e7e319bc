"""Yield the records of a log, and then new records when they are appended.

A truncation may drop records that a tail has already yielded. Then new records get the offsets of
the dropped records, and the tail would skip the new records. So the tail raises
OffsetOutOfRangeError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from logstore.arguments import whole
from logstore.errors import (
    CorruptRecordBatchError,
    OffsetOutOfRangeError,
    RecordExpansionError,
)
from logstore.log.read.isolation import end_of, isolated
from logstore.log.read.records import record_from_disk

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
            cut = _check_cuts(state, cut, offset, batch)
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


def _check_cuts(state: Replica, cut: Cut, offset: int, batch: RecordBatch | None) -> Cut:
    """Return the last cut; raise if a cut after `cut` dropped records that were yielded.

    Args:
        offset: the next offset that the tail will yield.
        batch: the last records that the tail has yielded; None if it has yielded no record.
    """
    lowest: Cut | None = None
    while cut.later is not None:
        cut = cut.later
        is_before = cut.offset < offset and (lowest is None or cut.offset < lowest.offset)
        if is_before and (cut.is_sure or not _has_still(state, offset, batch)):
            lowest = cut
    if lowest is None:
        return cut
    where = f"to {lowest.offset}" if lowest.is_sure else "by its owner"
    message = (
        f"the log {state.name} was truncated {where}, but a tail had already read up to offset "
        f"{offset}: records that it yielded are gone, and other records get their offsets; begin "
        "a new tail"
    )
    raise OffsetOutOfRangeError(message, **state.out_of_range(offset).facts)


def _has_still(state: Replica, offset: int, batch: RecordBatch | None) -> bool:
    """In a log that another process writes, check that the last yielded record still exists.

    A record that compaction has removed, or that has become unreadable, counts as present.
    """
    if offset > state.log_end_offset:
        return False
    if batch is None:
        return True
    last = batch.record(batch.count - 1, state.topic, state.partition)
    if last.offset < state.log_start_offset:
        return True
    try:
        return record_from_disk(state, last.offset) == last
    except OffsetOutOfRangeError:
        return last.offset < state.log_end_offset
    except (CorruptRecordBatchError, RecordExpansionError):
        return True
