"""Check the batches of an append against a log's producers, and remember them after the write.

    current   under `lock`, before the write: the state, rebuilt if an append was interrupted
    take      under `lock`, after the write

`is_torn` is set before the write, and reset after `take` has recorded the batches. If an interrupt
leaves `is_torn` set, the next call of `current` rebuilds the state from the log. Modules that only
a log with producers needs are imported in functions, so that `import logstore` stays cheap. The
code that opens a log imports every module that producers need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar.columns import Buffer
from logstore.format.kafka.header import CONTROL
from logstore.log.producers import rules

if TYPE_CHECKING:
    from logstore.format.kafka.markers import Marker
    from logstore.format.producer_file import Snapshot
    from logstore.log.producers.producer_state import Producers, ProducerState
    from logstore.log.state import LogState

Batches = list[tuple[Buffer, BatchHeader]]


def are_watched(batches: Batches) -> bool:
    """Check whether the log has to track a producer of one of the batches."""
    for _, header in batches:
        if header.producer_id >= 0 and (header.producer_epoch >= 0 or rules.is_watched(header)):
            return True
    return False


def current(state: LogState) -> Producers:
    """Return the producers of a log, or an empty state if there is none yet.

    The caller must hold `lock`.
    """
    producers = state.producers
    if producers.is_torn or producers.known is None:
        return _rebuilt(state)
    return producers.known


def _rebuilt(state: LogState) -> Producers:
    from logstore.log.producers.rebuild import made, mend

    if state.producers.is_torn:
        mend(state)
    known = state.producers.known
    return made(state) if known is None else known


def take(
    state: LogState, known: Producers, batches: Batches, offset: int | None, now_ms: int
) -> None:
    """Remember the batches that were written at `offset`; the caller must hold `lock`.

    If `offset` is None, each batch was written at the offset that it carries.
    """
    at = 0 if offset is None else offset
    for data, header in batches:
        if offset is None:
            at = header.base_offset
        marker = _marker_of(data, header) if header.attributes & CONTROL else None
        if marker is not None:
            known.take_marker(header, at, now_ms, marker)
        else:
            known.take(header, at, now_ms)
        if len(batches) == 1:
            break
        at += header.last_offset + 1 - header.base_offset
    producers = state.producers
    producers.known = known
    producers.is_torn = False


def _marker_of(data: Buffer, header: BatchHeader) -> Marker | None:
    from logstore.log.producers.walk import marker_of

    return marker_of(data, 0, header)


def snapshot(state: LogState) -> Snapshot:
    """Copy the producers of a log, together with the log end."""
    with state.lock:
        state.check()
        return current(state).snapshot(state.log_end_offset)


def states(state: LogState) -> list[ProducerState]:
    """List the state of each producer; the list is made without the log's lock."""
    from logstore.log.producers.producer_state import Producers

    return Producers(snapshot(state)).states()


def verification(state: LogState, producer_id: int, epoch: int, sequence: int) -> int:
    """Give the token for a transaction; see `Log.transaction_token`."""
    with state.lock:
        state.check()
        known = state.producers.known = current(state)
        return known.verification(producer_id, epoch, sequence, state.now_ms())


def expire(state: LogState, now_ms: int) -> None:
    """Forget the producers of a log that were not used for the expiration time."""
    from logstore.log.producers.producer_state import FORGOTTEN_AT_ONCE

    is_over = not state.producers.are_known
    while not is_over:  # work in parts, so that appends can run in between
        with state.lock:
            producers = state.producers
            is_over = producers.known is None or producers.is_torn
            if producers.known is not None and not is_over:
                is_over = producers.known.expire(now_ms) < FORGOTTEN_AT_ONCE
