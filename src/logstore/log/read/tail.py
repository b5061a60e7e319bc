"""Yield the records of a log, and then new records when they are appended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from logstore.arguments import whole
from logstore.log.read.isolation import end_of, isolated

if TYPE_CHECKING:
    from logstore.format.batch import Record
    from logstore.log.replica import Replica


class TailedLog(Protocol):
    """The method of a log that a tail uses."""

    def wait_for(self, offset: int, timeout: float | None, isolation_level: str) -> bool:
        """Wait until the record at `offset` can be read; False if the time ends first."""


def tail(
    log: TailedLog, state: Replica, offset: int | str, timeout: float | None, level: str
) -> Iterator[Record]:
    """Check the offset, and yield records from this offset on; see `ReadableLog.tail`."""
    state.check()
    state.refresh()
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
    return _follow(log, state, offset, timeout, level)


def _follow(
    log: TailedLog, state: Replica, offset: int, timeout: float | None, level: str
) -> Iterator[Record]:
    while True:
        state.refresh()
        end = max(offset, end_of(state, level))
        for batch in isolated(state, level, offset, end):
            yield from batch.records(state.topic, state.partition)
        offset = end
        if not log.wait_for(offset, timeout, level):
            return
