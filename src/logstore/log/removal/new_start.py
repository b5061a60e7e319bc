"""Remove all records of a log, and begin the log again at a later offset (`start_at`).

A follower does this if its leader has already deleted the records after the follower's last record.
First the records are removed, as by a truncation. After the removal, the empty log gets its new
start, as if the first batch of a leader had arrived (`follower_appends`). So a crash leaves one of
three states: the log is unchanged, or is empty at its old start, or is empty at its new start. From
each of the three states, the follower can call `start_at` again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from logstore.disk.uninterrupted import uninterrupted
from logstore.errors import LogStoreError, OffsetOutOfRangeError, ReplicaOfflineError
from logstore.log.encoded.follower_appends import start_empty_at
from logstore.log.encoded.raw_batches import OFFSETS_MAX
from logstore.log.removal.truncation import truncate_to
from logstore.log.write import roll
from logstore.log.write.hung_locks import held

if TYPE_CHECKING:
    from logstore.log.state import LogState


def start_at(state: LogState, offset: int, *, keep_lost: bool = False) -> str | None:
    """Remove all records, and begin at `offset`; see `Log.start_at`."""
    return uninterrupted(partial(_start_at, state, offset, keep_lost))


def _start_at(
    state: LogState, offset: int, keep_lost: bool, go_on: Callable[[], None]
) -> str | None:
    """Begin the log again; Ctrl-C may interrupt the thread."""
    with state.lock:
        _check(state, offset)
        go_on()
    kept_at = _remove_all(state, keep_lost=keep_lost)
    with state.telling(), state.flush_lock, state.lock, held(state, "flush_lock", "lock"):
        _check(state, offset)
        if state.log_end_offset != state.log_start_offset:
            raise ReplicaOfflineError(
                topic=state.topic,
                partition=state.partition,
                reason="records were appended while the log was being restarted at a later "
                "offset: call again",
            )
        if offset > state.log_end_offset:
            if state.half_made:
                roll.undo(state)
            # The next record of the leader may have an earlier epoch than the removed records.
            state.replication.epochs.truncate_to(0)
            state.replication.epochs_changed += 1
            start_empty_at(state, offset)
            if state.replication.replicated_to is not None:
                state.replication.replicated_to = offset
    state.arrivals.wake()  # a thread in `tail` may wait for an offset before the new start
    return kept_at


def _check(state: LogState, offset: int) -> None:
    """Raise an error if the log refuses writes, or cannot begin at the offset."""
    state.check_writable()
    if offset >= OFFSETS_MAX:
        raise ValueError(f"offset {offset} is larger than any offset that a log can have")
    if offset < state.log_end_offset:
        raise OffsetOutOfRangeError(
            f"the log cannot begin at offset {offset}, because its log end offset is "
            f"{state.log_end_offset}: truncate the log first",
            offset=offset,
            log_start_offset=state.log_start_offset,
            log_end_offset=state.log_end_offset,
        )


def _remove_all(state: LogState, *, keep_lost: bool) -> str | None:
    """Truncate the log to its start, which retention may raise meanwhile."""
    while True:
        start = state.log_start_offset
        try:
            return truncate_to(state, start, keep_lost=keep_lost)
        except LogStoreError:
            if state.log_start_offset == start:
                raise
