"""Write a snapshot of a log's producers: at a flush, at a close, and before records are removed.

    due    under `lock`: copy the state, together with the log end offset
    put    under `flush_lock`, when all records before this offset are durable: write the file, and
           remove old snapshots

A flush writes a snapshot if the log has none yet, or if the log was rolled since the last snapshot.
So after a crash, at most about one segment is replayed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from logstore.disk import files
from logstore.disk.calls import SYNCING, call
from logstore.errors import CorruptRecordBatchError
from logstore.format import producer_file
from logstore.log.producers import rebuild, snapshot_files
from logstore.log.write.hung_locks import held

if TYPE_CHECKING:
    from logstore.format.producer_file import Snapshot
    from logstore.log.producers.producer_state import Producers
    from logstore.log.state import LogState

KEPT = 2  # if the newest snapshot is damaged, the previous snapshot is read


def copy(state: LogState) -> Snapshot | None:
    """Copy the producers in their state at the end of the log; the caller must hold `lock`."""
    producers = state.producers
    if producers.is_torn:
        rebuild.mend(state)
    return None if producers.known is None else producers.known.snapshot(state.log_end_offset)


def due(state: LogState) -> Snapshot | None:
    """If the next flush has to write a snapshot, copy the producers.

    The caller must hold `lock`.
    """
    snapshots = state.producers.snapshots
    if snapshots and snapshots[-1] >= state.active.base_offset:
        return None
    return copy(state)


def put(state: LogState, snapshot: Snapshot) -> None:
    """Write a snapshot durably, then remove old snapshots; the caller must hold `flush_lock`.

    If the disk is full, the snapshot is written later. But if the log has no snapshot yet, an error
    is raised, and no record counts as flushed (see `log_producers`).

    Raises:
        LogStoreError: the disk failed.
    """
    producers = state.producers
    try:
        with call(state.directory, SYNCING):
            state.log_dir.ballast.use(partial(_put, state, snapshot))
    except OSError as error:
        failure = state.log_dir.failed(error, state.directory, state.topic, state.partition)
        if not failure.retriable or not producers.snapshots:
            raise failure from error


def _put(state: LogState, snapshot: Snapshot) -> None:
    snapshot_files.write(state.directory, snapshot, state.metadata, state.log_dir.replacing)
    known = sorted({*state.producers.snapshots, snapshot.offset})
    state.producers.snapshots = tuple(known)
    snapshot_files.remove(state.directory, known[:-KEPT])
    state.producers.snapshots = tuple(known[-KEPT:])


def put_before_start(state: LogState, offset: int) -> None:
    """Before the log start moves to an offset, write a snapshot unless a later snapshot exists.

    Without this snapshot, a crash would bring back an older state of the producers. With this older
    state, the log would append again a batch that is now deleted. The caller must hold
    `flush_lock`.

    Raises:
        LogStoreError: the disk failed.
    """
    snapshots = state.producers.snapshots
    if not state.producers.are_known or (snapshots and snapshots[-1] >= offset):
        return
    try:
        with call(state.directory, SYNCING):
            found, cut = rebuild.before(state, offset)
            snapshot = found.snapshot(offset if cut is None else cut.base_offset)
            if snapshots[-1:] != (snapshot.offset,):
                state.log_dir.ballast.use(partial(_put, state, snapshot))
    except CorruptRecordBatchError:
        return  # damage must not stop a deletion
    except OSError as error:
        raise state.failed(error) from error


def put_before(state: LogState, offset: int) -> Producers | None:
    """Return the producers in their state before `offset`, where a truncation will cut the log.

    First, a snapshot of the kept producers is written, because the truncation removes all later
    snapshots. The caller must hold both locks. Raises OSError.
    """
    if not state.producers.are_known:
        return None
    producers, cut = rebuild.before(state, offset)
    snapshot = producers.snapshot(offset if cut is None else cut.base_offset)
    snapshot_files.write(state.directory, snapshot, state.metadata, state.log_dir.replacing)
    state.producers.snapshots = tuple(sorted({*state.producers.snapshots, snapshot.offset}))
    if cut is not None:
        producers.take(cut, cut.base_offset, state.now_ms())
    return producers


def forget(state: LogState) -> None:
    """Forget all producers of an empty log that will begin at a later offset.

    The caller must hold both locks.

    The markers of open transactions may be among the records that the log skips. If open
    transactions were kept without their markers, the last stable offset would never rise again.

    Raises:
        LogStoreError: the disk failed.
    """
    if not state.producers.are_known:
        return
    try:
        remove_after(state, -1)
        files.sync_dir(state.directory)
    except OSError as error:
        raise state.failed(error) from error
    state.producers.snapshots = ()
    state.producers.replace(None)


def remove_after(state: LogState, offset: int) -> None:
    """Remove all snapshots after an offset; a sync of the directory makes the removal durable.

    The files are listed, because an interrupt may have left a snapshot that is not in
    `producers.snapshots`. Raises OSError.
    """
    found = map(producer_file.offset_of, files.names(state.directory))
    snapshot_files.remove(
        state.directory, [each for each in found if each is not None and each > offset]
    )


def put_last(state: LogState) -> None:
    """Write a snapshot at the end of a log that is being closed; the next open replays no batches.

    Raises:
        LogStoreError: the disk failed.
    """
    with state.flush_lock, held(state, "flush_lock"):
        with state.lock, held(state, "lock"):
            state.check()
            end = state.log_end_offset
            is_there = state.producers.snapshots[-1:] == (end,)
            snapshot = None if is_there or state.recovery_point < end else copy(state)
        if snapshot is not None:
            put(state, snapshot)
