"""Advance the high watermark of a log: all in-sync replicas have the records below this offset.

The program that replicates a log advances the high watermark. The first call durably writes into
`partition.metadata` that the log is replicated. Later calls do not use the disk: the keeper of the
log dir writes the high watermarks together with its other checkpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.log.subscription import LogEvent, tell
from logstore.log.write.flush import set_metadata
from logstore.log.write.hung_locks import held

if TYPE_CHECKING:
    from logstore.log.state import LogState


def advance(state: LogState, offset: int) -> int:
    """Raise the high watermark of a log, and return it; see `Log.advance_high_watermark`."""
    if state.replication.replicated_to is None:
        _begin(state, offset)
    with state.lock:
        state.check_current()
        known = state.high_watermark
        offset = state.within(offset)
        if offset > known:
            state.replication.replicated_to = offset
    if offset <= known:
        return known
    if state.waiters:
        state.arrivals.wake()
    if state.subscriptions:
        tell(state.subscriptions, LogEvent.HIGH_WATERMARK_ROSE)
    return offset


def _begin(state: LogState, offset: int) -> None:
    """Durably write down that the log is replicated; from now on, the log has a high watermark."""
    with state.flush_lock, held(state, "flush_lock"):
        state.check_current()
        if state.replication.replicated_to is not None:
            return
        at = state.within(offset)
        set_metadata(
            state, extra=state.metadata.with_high_watermark(min(at, state.recovery_point)).extra
        )
        with state.lock:
            state.replication.replicated_to = at
