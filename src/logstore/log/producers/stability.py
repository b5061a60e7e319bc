"""Return the last stable offset of a log from its producers, without reading its batches."""

from __future__ import annotations

from logstore.log.producers import appends
from logstore.log.replica import Replica
from logstore.log.state import LogState


def kept_last_stable_offset(state: Replica) -> int | None:
    """Return the last stable offset, or None if this process does not know the log's producers.

    Raises:
        LogStoreError: the log is closed or unavailable.
    """
    if not isinstance(state, LogState) or state.refusal:
        return None
    # Read the high watermark before the producers.
    # Then no batch that is appended later is below this high watermark.
    end = state.high_watermark
    if not state.producers.are_known:
        return end
    with state.lock:
        state.check()
        known = appends.current(state)
        if state.replication.replicated_to is None:
            return known.first_open_offset(state.log_end_offset, state.log_start_offset)
        return known.last_stable_offset(state.high_watermark, state.log_start_offset)
