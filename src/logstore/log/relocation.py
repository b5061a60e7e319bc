"""Give a mover access to a log: reads, changes of the metadata, and the steps of a swap.

The mover decides the order of the steps of a swap; this module contains the steps that change the
log. Readers are never stopped: they continue with the files that they have open. If a reader cannot
open a file because the file was renamed, the reader looks the log up again (see `read/records`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from logstore.disk.log_dir import LogDir
from logstore.log.epochs import LeaderEpochs, OfLog
from logstore.log.host import log_dir_of, metadata_of, open_segment, tell_end
from logstore.log.metadata import MOVE_RATES, Moving, PartitionMetadata, Superseded
from logstore.log.producers import snapshots
from logstore.log.segments.cache import Handle
from logstore.log.segments.segment import Segment
from logstore.log.write import hung_locks
from logstore.log.write.flush import set_metadata

if TYPE_CHECKING:
    from logstore.format.producer_file import Snapshot
    from logstore.log.log import Log

Rates = dict[str, int | str | None]

__all__ = [
    "Handle", "held", "hide", "log_dir_of", "metadata_of", "moving_of", "open_segment", "point_to",
    "rates_of", "segments_of", "set_moving", "settle", "show", "tell_end", "write_marks",
]  # fmt: skip


# --- what a mover reads -----------------------------------------------------------------------


def segments_of(log: Log) -> tuple[Segment, ...]:
    """Return the current segments; the last segment is active."""
    state = log._state
    state.check()
    return state.segments


def moving_of(log: Log) -> Moving | None:
    """Return the running move in the metadata, or None if there is none."""
    return log._state.metadata.moving


def rates_of(log: Log) -> Rates | None:
    """Return the rates in the metadata for the running move; None if there are none."""
    rates = log._state.metadata.extra.get(MOVE_RATES)
    return rates if isinstance(rates, dict) else None


def epochs_of(log: Log) -> list[tuple[int, int]]:
    """Return each leader epoch with its first offset."""
    return log._state.replication.epochs.entries


def whose_epochs(log: Log) -> OfLog:
    """Describe the log, for the `leader-epoch-checkpoint` of a copy; see `OfLog`."""
    state = log._state
    start = state.replication.confirmed_start
    return state.of_log(None if start is None else log.log_start_offset)


def with_high_watermark(log: Log, metadata: PartitionMetadata, copied: int) -> PartitionMetadata:
    """Write the high watermark to a copy's metadata; the copy must be durable up to `copied`.

    Until the target's log dir writes its checkpoint of high watermarks again, that checkpoint lacks
    this log.
    """
    if log._state.replication.replicated_to is None:
        return metadata
    return metadata.with_high_watermark(min(log._state.high_watermark, copied))


def snapshot_of(log: Log) -> Snapshot | None:
    """Copy the producers of a log; return None if there are none. Raises LogStoreError."""
    state = log._state
    with state.lock:
        state.check()
        return snapshots.copy(state) if state.producers.are_known else None


def has_producers(log: Log) -> bool:
    """Check whether a log has producers; if so, a copy of the log needs a snapshot of them."""
    return log._state.producers.are_known


# --- changes of the metadata ------------------------------------------------------------------


def set_moving(log: Log, moving: Moving | None, rates: Rates | None = None) -> None:
    """Durably write the running move, or that no move runs (`moving` is None).

    If no move runs, the key `superseded_by` is removed, too.

    Args:
        rates: the rates at which a later process continues the move.
    """
    state = log._state
    with state.flush_lock, hung_locks.held(state, "flush_lock"):
        state.check()
        metadata = state.metadata
        plain = metadata if moving is not None else metadata.with_superseded_by(None)
        extra = {**plain.extra, MOVE_RATES: rates}
        if rates is None:
            del extra[MOVE_RATES]
        if (metadata.moving, metadata.extra) != (moving, extra):
            set_metadata(state, moving=moving, extra=extra)


def write_marks(log: Log, moving: Moving, superseded_by: Superseded) -> None:
    """Durably record, before the swap, which copy is about to replace this log."""
    state = log._state
    with state.flush_lock, hung_locks.held(state, "flush_lock"):
        state.check()
        metadata = state.metadata.with_superseded_by(superseded_by)
        if (metadata, state.metadata.moving) != (state.metadata, moving):
            set_metadata(state, extra=metadata.extra, moving=moving)


def settle(log: Log) -> None:
    """After a move, write the metadata, without the keys of the move, to the new log dir."""
    state = log._state
    with state.flush_lock, hung_locks.held(state, "flush_lock"):
        state.check()
        set_metadata(state)


# --- steps of the swap, under the locks --------------------------------------------------------


@contextmanager
def held(log: Log) -> Iterator[None]:
    """Stop appends, flushes, truncations and retention during a `with` block; readers continue."""
    state = log._state
    with state.flush_lock, state.lock, hung_locks.held(state, "flush_lock", "lock"):
        state.check_writable()
        yield


def hide(log: Log) -> None:
    """Mark the segments as dropped, before a rename; the caller must hold both locks."""
    for segment in log._state.segments:
        segment.is_dropped = True


def show(log: Log) -> None:
    """Undo `hide` if the rename does not happen; the caller must hold both locks."""
    for segment in log._state.segments:
        segment.is_dropped = False


def point_to(
    log: Log,
    log_dir: LogDir,
    directory: str,
    metadata: PartitionMetadata,
    segments: list[Segment],
    snapshot_offset: int | None,
) -> None:
    """Serve the log from another directory; the caller must hold both locks.

    In that directory, the whole log must be durable.

    Args:
        snapshot_offset: the offset of the snapshot of producers in that directory.
    """
    state = log._state
    old = state.segments
    epochs = LeaderEpochs(directory, state.replication.epochs.entries)
    end = segments[-1].end_offset
    for segment in segments:  # the mover has verified every batch of the copy
        segment.sound_from = 0
    with state.appended:  # `detach` must find only old files or only new files
        state.log_dir, state.directory, state.metadata = log_dir, directory, metadata
        state.replication.epochs = epochs
        state.producers.snapshots = () if snapshot_offset is None else (snapshot_offset,)
        state.unflushed, state.names_changed = [], 0
        state.activate(segments, state.foreign_magic)  # the layout is the same, so read no file
        # the old disk failed after the last step of the swap on the old disk
        if state.is_left_by_dir:
            state.unavailable, state.is_left_by_dir = None, False
    state.note_flushed(max(end, metadata.log_start_offset))
    state.flushed_ms = state.now_ms()
    state.environment.dirty.discard(state)
    for segment in old:
        segment.forget(state.environment)


def bring_back(log: Log, generation: int) -> None:
    """Set a generation above the generation of the target's copy; store that no move runs.

    The caller must hold both locks.
    """
    state = log._state
    extra = state.metadata.with_superseded_by(None).extra
    set_metadata(state, generation=generation, moving=None, extra=extra)
