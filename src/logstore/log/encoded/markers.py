"""Append the marker that ends a transaction of a producer (KIP-98)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.format import layouts
from logstore.log.encoded.leader_appends import write_and_take
from logstore.log.producers import appends
from logstore.log.producers.appends import Batches
from logstore.log.write import appending, flush
from logstore.log.write.outcome import NO_TIMESTAMP, AppendInfo, mark

if TYPE_CHECKING:
    from logstore.format.kafka.markers import Marker
    from logstore.log.state import LogState


def append_marker(
    state: LogState,
    producer_id: int,
    epoch: int,
    marker: Marker,
    *,
    leader_epoch: int | None,
    durable: bool,
    is_epoch_raised: bool,
) -> AppendInfo:
    """Append a marker; see `Log.append_marker`."""
    from logstore.format.kafka.markers import build_marker

    is_begun = False
    try:
        now_ms = state.now_ms()
        data = build_marker(producer_id, epoch, now_ms, marker)
        batches: Batches = [(data, layouts.read_header(data, 0))]
        with state.lock:
            state.check_appendable()
            state.replication.fence(leader_epoch)
            known = appends.current(state)
            known.check_marker(
                producer_id, epoch, marker.coordinator_epoch, is_epoch_raised=is_epoch_raised
            )
            later = known.later_verification(producer_id, epoch, is_epoch_raised=is_epoch_raised)
            offset = state.active.end_offset
            try:
                is_begun = True
                write_and_take(state, batches, offset + 1, known, now_ms)
                if later is not None:
                    known.restore(producer_id, later)
            except BaseException as error:
                # Compare under the lock: later, another thread's append may move the log end.
                mark(error, state.active.end_offset > offset)
                raise
        appending.after_append(state, offset)
        if durable:
            flush.flush_appended(state, offset + 1)
        append_time = now_ms if state.rules.is_log_append_time else NO_TIMESTAMP
        return AppendInfo(offset, offset, append_time, state.log_start_offset, now_ms)
    except BaseException as error:
        mark(error, is_begun and state.active.end_offset > offset)
        raise
