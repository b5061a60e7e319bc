"""Make appended records durable: the syncs of a flush, in order of offset, then the seals.

A sync that failed is never retried (R6), even if an interrupt hid its error. If a flush was
interrupted, or a shortage of the process or a full disk stopped it before any sync failed, it
leaves all of its work to the next one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from logstore.disk import files
from logstore.disk.calls import SYNCING, WORKING, call
from logstore.disk.failures import Verdict, verdict_of
from logstore.errors import LogStoreError
from logstore.log.segments.cache import Handle
from logstore.log.segments.segment import Segment
from logstore.log.write.hung_locks import keeping, reclaim
from logstore.log.write.seal import seal

if TYPE_CHECKING:
    from logstore.log.write_state import Unflushed, WriteState


def flush_to(log: WriteState, offset: int) -> None:
    """Sync everything below `offset` that is not durable; see `LogWriter._flush_to`."""
    outer = sys.exc_info()[1]
    # Not `held`: each call to the disk below registers by itself.
    with log._flush_lock:
        if log._recovery_point >= offset and not log._names_changed:
            return
        if log._in_custody:
            with keeping(log, "_flush_lock"):
                _flush(log, outer)
        else:
            log._kept = "_flush_lock"
            try:
                _flush(log, outer)
            finally:
                log._kept = ""
                if log._in_custody:
                    reclaim(log, ("_flush_lock",))


def unflushed_paths(log: WriteState) -> list[str]:
    """Name the segments that may be partly unflushed, whatever a flush does meanwhile."""
    segments, bases = log._view
    ends = [*bases[1:], log.log_end_offset]
    point = log._recovery_point
    return [one.log_path for one, end in zip(segments, ends, strict=True) if end > point]


def _flush(log: WriteState, outer: BaseException | None) -> None:
    """Sync all there is; `_flush_lock` is held.

    What is unflushed stays noted as such until it is synced. So an interrupt may come anywhere, a
    second one too, and the next flush still knows what to sync.
    """
    pending: list[Unflushed] = []
    try:
        with log._lock:
            log._check()
            end = log._active.end_offset
            pending.extend(log._unflushed)
            if log._writer is not None:
                pending.append((log._active, log._writer))
            sizes = {id(segment): segment.size_bytes for segment, _ in pending}
            names_changed, epochs_changed = log._names_changed, log._epochs_changed
        synced = _sync(log, pending, names_changed > 0, epochs_changed > 0)
        with log._lock:
            if not log._in_custody:  # else a thread that hangs in an append may still change them
                _note_synced(log, sizes, names_changed, epochs_changed)
    except LogStoreError:
        raise
    except BaseException as error:
        failure = hidden_failure(error, outer)
        if failure is not None:
            log._log_dir.failed(failure, log.directory)
        raise
    log._recovery_point = max(end, log._recovery_point)
    log._count_from_flushed()
    if log.config.flush_ms is not None:
        log._flushed_ms = log._now_ms()
    for segment, handle in synced:
        if segment is not log._active:
            with call(log.directory, WORKING):
                seal(log, segment, handle.fd)


def _note_synced(
    log: WriteState, sizes: Mapping[int, int], names_changed: int, epochs_changed: int
) -> None:
    """Forget what is durable now, but for what changed during the sync; the lock is held.

    Args:
        sizes: of the synced segments, as they were before; by identity.
    """
    log._unflushed = [
        pair for pair in log._unflushed if sizes.get(id(pair[0])) != pair[0].size_bytes
    ]
    active = log._active
    if log._writer is not None and sizes.get(id(active)) == active.size_bytes:
        log._writer = None
        log._environment.dirty.discard(log)
    if log._names_changed == names_changed:
        log._names_changed = 0
    if log._epochs_changed == epochs_changed:
        log._epochs_changed = 0


def sync_segments(log: WriteState, segments: Sequence[Segment]) -> None:
    """Sync the sealed ones of some segments that are not durable yet, in order of offset.

    Needed by a change that is durable itself and comes after them in the log; `_flush_lock` and
    `_lock` are held. Their seals are left to the next flush. Raises OSError.
    """
    wanted = {id(segment) for segment in segments}
    for segment, handle in log._unflushed:
        if id(segment) in wanted:
            handle = handle or Handle(files.open_regular(segment.log_path, files.READ_WRITE))
            files.sync_data(handle.fd)


def hidden_failure(error: BaseException, outer: BaseException | None) -> OSError | None:
    """Find the failure of the disk that an interrupt hides: a failed sync, or a missing disk.

    Other errors are no failure of the disk. An interrupt that comes while the error of a missing
    file is being ignored also carries that error.

    Args:
        outer: the error that the caller was handling before it called the disk.
    """
    context = error.__context__
    while context is not None and context is not outer:
        if isinstance(context, OSError):
            if files.is_of_sync(context):
                return files.SyncError.of(context)
            if verdict_of(context) is Verdict.GONE:
                return context
        context = context.__context__
    return None


def _sync(
    log: WriteState, pending: list[Unflushed], names_changed: bool, epochs_changed: bool
) -> list[tuple[Segment, Handle]]:
    synced, handle, segment = [], None, None
    try:
        for segment, handle in pending:
            with call(log.directory, SYNCING):
                began = time.monotonic()
                if handle is None:
                    handle = log._log_dir.spare.use(partial(_open, segment.log_path))
                files.sync_data(handle.fd)
            log._log_dir.count_flush(time.monotonic() - began)
            synced.append((segment, handle))
        segment = None
        if names_changed:
            with call(log.directory, SYNCING):
                log._log_dir.spare.use(partial(files.sync_dir, log.directory))
    except OSError as error:
        path = log.directory if segment is None else segment.log_path
        failure = log._log_dir.failed(error, path, log.topic, log.partition)
        pending.clear()  # the error's traceback must not keep descriptors of a dead disk open
        synced.clear()
        handle = None
        raise failure from error
    if epochs_changed:
        write_epochs(log)
    # it failed meanwhile, as another log found: do not acknowledge (R6)
    if log._log_dir.is_offline:
        log._log_dir.check()
    return synced


def _open(path: str) -> Handle:
    return Handle(files.open_regular(path, files.READ_WRITE))


def write_epochs(log: WriteState) -> None:
    """Write the leader epochs. They are in the batches too, so a full disk only delays the file."""
    try:
        with call(log.directory, SYNCING):
            log._epochs.write(log._of_log(log._confirmed_start), log._log_dir.replacing)
    except OSError as error:
        failure = log._log_dir.failed(error, log.directory, log.topic, log.partition)
        if not failure.retriable:
            raise failure from error
        log._epochs_changed += 1


def set_metadata(log: WriteState, changes: Mapping[str, Any]) -> None:
    """Replace `partition.metadata` durably; a new log start is first written to the epochs' file.

    After a crash between the two the old start holds: no caller has seen the new one.
    """
    metadata = log._metadata._replace(**changes)
    start = changes.get("log_start_offset")

    def write() -> None:
        if start is not None:
            log._epochs.write(log._of_log(start), log._log_dir.replacing)
        metadata.write(log.directory, log._log_dir.replacing)

    try:
        with call(log.directory, SYNCING):
            log._log_dir.ballast.use(write)
    except OSError as error:
        raise log._failed(error) from error
    log._metadata = metadata
    if start is not None:
        log._confirmed_start = start
