"""Define the three isolation levels, each with the offset at which its readers stop.

read_uncommitted    the log end
read_replicated     the high watermark; the log end if the log is not replicated
read_committed      the last stable offset; records of aborted transactions are left out
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from logstore.arguments import text, whole
from logstore.log.read import records

if TYPE_CHECKING:
    from logstore.format.batch import RecordBatch
    from logstore.log.read.cut import Cut
    from logstore.log.replica import Replica

READ_UNCOMMITTED, READ_REPLICATED = "read_uncommitted", "read_replicated"
READ_COMMITTED = "read_committed"
ISOLATION_LEVELS = (READ_UNCOMMITTED, READ_REPLICATED, READ_COMMITTED)


def check_level(level: str) -> None:
    """Raise TypeError or ValueError if the argument is not an isolation level."""
    if type(level) is not str or level not in ISOLATION_LEVELS:
        text(level, "isolation_level")
        raise ValueError(f"isolation_level {level!r} is not one of {ISOLATION_LEVELS}")


def end_of(state: Replica, level: str) -> int:
    """Return the offset at which a reader with an isolation level stops now.

    Raises:
        TypeError, ValueError: `level` is not an isolation level.
        LogStoreError: the log is closed or unavailable; raised only for read_committed.
    """
    check_level(level)
    if level == READ_UNCOMMITTED:
        return state.log_end_offset
    if level == READ_REPLICATED:
        return state.high_watermark
    from logstore.log.producers.stability import kept_last_stable_offset
    from logstore.log.read.transactions import decided_now

    kept = kept_last_stable_offset(state)
    return decided_now(state).last_stable_offset if kept is None else kept


def isolated(
    state: Replica, level: str, offset: int | None, end_offset: int | None, **options: Any
) -> Iterator[RecordBatch]:
    """Yield the batches of `offset..end_offset` that a reader with this isolation level sees.

    Args:
        options: further arguments of `records.batches_of`.
    """
    check_level(level)
    if level == READ_COMMITTED:
        from logstore.log.read.transactions import committed

        return committed(state, offset, end_offset, options)
    if level == READ_REPLICATED:
        state.refresh()
        cut = state.cut
        start = whole(state.log_start_offset if offset is None else offset, "offset")
        at = state.high_watermark
        wanted = at if end_offset is None else whole(end_offset, "end_offset", 0)
        end = max(start, min(wanted, at))
        found = records.batches_of(state, offset, end, **options)
        return _replicated(state, found, start, end, cut, options)
    return records.batches_of(state, offset, end_offset, **options)


def _replicated(
    state: Replica,
    found: Iterator[RecordBatch],
    start: int,
    end: int,
    cut: Cut,
    options: dict[str, Any],
) -> Iterator[RecordBatch]:
    """Yield the batches of `start..end`; a truncation may lower the high watermark meanwhile."""
    while True:
        for batch in found:
            if cut.later is not None:
                break
            start = batch.header.last_offset + 1
            yield batch
            del batch  # release its memory before the next read
        if cut.later is None:
            return
        cut = cut.last
        end = min(end, state.high_watermark)
        if start >= end:
            return
        found = records.batches_of(state, start, end, **options)
