"""Make appended records durable: a flush syncs segments in order of offset, then seals them.

A failed sync is never retried, even if an interrupt hid the error. A flush may be interrupted. A
flush may also stop before any sync has failed, because the disk is full or no file descriptor is
free. After a flush that stopped early, the next flush does the work.
"""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from logstore.disk import files
from logstore.disk.calls import SYNCING, WORKING, call
from logstore.disk.failures import Verdict, verdict_of
from logstore.errors import LogDirError, LogDirSuspectError, LogStoreError
from logstore.log.metadata import HIGH_WATERMARK, SPARSE_OFFSETS
from logstore.log.segments.cache import Handle
from logstore.log.segments.segment import Segment
from logstore.log.write.hung_locks import keeping, reclaim
from logstore.log.write.outcome import mark
from logstore.log.write.seal import seal

if TYPE_CHECKING:
    from logstore.format.producer_file import Snapshot
    from logstore.log.state import LogState, Unflushed


def flush_to(state: LogState, offset: int) -> None:
    """Sync all unflushed bytes below `offset`, in order of offset, or wait for a running sync."""
    if state.recovery_point < offset or state.names_changed:
        _flush_to(state, offset)


def flush_all(state: LogState) -> int:
    """Make every record appended so far durable; return the new recovery point."""
    timing = state.timing
    started = 0.0 if timing is None else time.perf_counter()
    state.check()
    flush_to(state, state.log_end_offset)
    if timing is not None:
        timing.syncs.note(time.perf_counter() - started)
    return state.recovery_point


def flush_appended(state: LogState, offset: int) -> None:
    """Make the last appended records durable; after an error, do not append them again."""
    timing = state.timing
    started = 0.0 if timing is None else time.perf_counter()
    try:
        flush_to(state, offset)
    except LogStoreError as error:
        if not error.retriable:
            mark(error, None)
            raise
        if isinstance(error, LogDirSuspectError):
            more = f"; the new records before offset {offset} may be in the log or not: "
            more += "flush again later"
            suspect = state.log_dir.suspect_error(more, retriable=False)
            mark(suspect, None)
            raise suspect from error
        reason = f"the new records before offset {offset} are appended, but not flushed: "
        reason += f"flush again ({error})"
        raise LogDirError(path=state.log_dir.path, reason=reason) from error
    if timing is not None:
        timing.syncs.note(time.perf_counter() - started)


def flush_if_due(state: LogState, now_ms: int) -> bool:
    """Flush if `flush_ms` has passed or a sealed segment is unflushed.

    Return True if the log was flushed.
    """
    flush_ms = state.config.flush_ms
    is_due = flush_ms is not None and now_ms - state.flushed_ms >= flush_ms
    if not state.unflushed and not (is_due and state.writer is not None):
        return False
    flush_to(state, state.log_end_offset)
    return True


def _flush_to(state: LogState, offset: int) -> None:
    """Flush under the flush lock; do nothing if another thread has flushed meanwhile."""
    outer = sys.exc_info()[1]
    # The lock is taken without `held`, because each disk call below registers itself.
    with state.flush_lock:
        if state.recovery_point >= offset and not state.names_changed:
            return
        if state.in_custody:
            with keeping(state, "flush_lock"):
                _flush(state, outer)
        else:
            state.kept = "flush_lock"
            try:
                _flush(state, outer)
            finally:
                state.kept = ""
                if state.in_custody:
                    reclaim(state, ("flush_lock",))


def unflushed_paths(state: LogState) -> list[str]:
    """List the paths of segments that may have unflushed bytes, even while a flush runs."""
    segments, bases = state.view
    ends = [*bases[1:], state.log_end_offset]
    point = state.recovery_point
    return [one.log_path for one, end in zip(segments, ends, strict=True) if end > point]


def _flush(state: LogState, outer: BaseException | None) -> None:
    """Sync all unflushed segments; the caller must hold `flush_lock`.

    An unflushed segment is forgotten only after its sync. So if interrupts come at any point, the
    next flush still knows what to sync.
    """
    pending: list[Unflushed] = []
    try:
        with state.lock:
            state.check()
            end = state.active.end_offset
            pending.extend(state.unflushed)
            if state.writer is not None:
                pending.append((state.active, state.writer))
            sizes = {id(segment): segment.size_bytes for segment, _ in pending}
            names_changed, epochs_changed = state.names_changed, state.replication.epochs_changed
            snapshot = _snapshot_due(state) if state.producers.are_known else None
        synced = _sync(state, pending, names_changed > 0, epochs_changed > 0)
        if snapshot is not None:
            _put_snapshot(state, snapshot)
        with state.lock:
            if not state.in_custody:  # an append that hangs may still change these fields
                _note_synced(state, sizes, names_changed, epochs_changed)
    except LogStoreError:
        raise
    except BaseException as error:
        failure = hidden_failure(error, outer)
        if failure is not None:
            state.log_dir.failed(failure, state.directory)
        raise
    state.note_flushed(max(end, state.recovery_point))
    if state.config.flush_ms is not None:
        state.flushed_ms = state.now_ms()
    for segment, handle in synced:
        if segment is not state.active:
            with call(state.directory, WORKING):
                seal(state, segment, handle.fd)


def _snapshot_due(state: LogState) -> Snapshot | None:
    from logstore.log.producers import snapshots  # only logs with producers need this module

    return snapshots.due(state)


def _put_snapshot(state: LogState, snapshot: Snapshot) -> None:
    from logstore.log.producers import snapshots

    snapshots.put(state, snapshot)


def _note_synced(
    state: LogState, sizes: Mapping[int, int], names_changed: int, epochs_changed: int
) -> None:
    """Forget the changes that are now durable; keep the changes that came during the sync.

    The caller must hold the log's lock.

    Args:
        sizes: maps the `id` of each synced segment to the size of the segment before the sync.
    """
    state.unflushed = [
        pair for pair in state.unflushed if sizes.get(id(pair[0])) != pair[0].size_bytes
    ]
    active = state.active
    if state.writer is not None and sizes.get(id(active)) == active.size_bytes:
        state.writer = None
        state.environment.dirty.discard(state)
    assert state.names_changed >= names_changed, "only a flush forgets them"
    if state.names_changed == names_changed:
        state.names_changed = 0
    if state.replication.epochs_changed == epochs_changed:
        state.replication.epochs_changed = 0


def sync_segments(state: LogState, segments: Sequence[Segment]) -> None:
    """Sync the given segments that are sealed and not yet durable, in order of offset.

    A truncation and a repair write durable files, so the segments before these files must be
    durable first. The caller must hold `flush_lock` and `lock`. The next flush writes the seals of
    the synced segments. Raises OSError.
    """
    wanted = {id(segment) for segment in segments}
    for segment, handle in state.unflushed:
        if id(segment) in wanted:
            handle = handle or Handle(files.open_regular(segment.log_path, files.READ_WRITE))
            files.sync_data(handle.fd)


def hidden_failure(error: BaseException, outer: BaseException | None) -> OSError | None:
    """Find the disk failure that an interrupt hides: a failed sync, or a missing disk.

    Other errors do not count as failures of the disk. For example, if an interrupt comes while code
    handles the error of a missing file, this error is in the interrupt's `__context__`, too.

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
    state: LogState, pending: list[Unflushed], names_changed: bool, epochs_changed: bool
) -> list[tuple[Segment, Handle]]:
    synced, handle, segment = [], None, None
    try:
        for segment, handle in pending:
            with call(state.directory, SYNCING):
                began = time.monotonic()
                handle = handle or _open(segment.log_path)
                if handle is not None:
                    files.sync_data(handle.fd)
                    synced.append((segment, handle))
                else:  # this closes the file, so the next call can use the spare descriptor again
                    state.log_dir.spare.use(partial(_sync_closed, segment.log_path))
            state.log_dir.count_flush(time.monotonic() - began)
        segment = None
        if names_changed:
            with call(state.directory, SYNCING):
                state.log_dir.spare.use(partial(files.sync_dir, state.directory))
    except OSError as error:
        path = state.directory if segment is None else segment.log_path
        failure = state.log_dir.failed(error, path, state.topic, state.partition)
        pending.clear()  # the error's traceback must not keep descriptors of a dead disk open
        synced.clear()
        handle = None
        raise failure from error
    if epochs_changed:
        write_epochs(state)
    # If another log's call took the log dir OFFLINE meanwhile, do not report success.
    if state.log_dir.is_offline:
        state.log_dir.check()
    return synced


def _open(path: str) -> Handle | None:
    """Open a segment that an earlier process wrote; return None if no descriptor is free."""
    try:
        return Handle(files.open_regular(path, files.READ_WRITE))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        return None


def _sync_closed(path: str) -> None:
    """Sync a segment without keeping its file open; the next open of the log seals the segment."""
    fd = files.open_regular(path, files.READ_WRITE)
    try:
        files.sync_data(fd)
    finally:
        files.close(fd)


def write_epochs(state: LogState) -> None:
    """Write the file of leader epochs; if the disk is full, leave the work to a later flush.

    Before the later flush, the epochs are not lost, because the batches contain them, too.
    """
    try:
        with call(state.directory, SYNCING):
            whose = state.of_log(state.replication.confirmed_start)
            state.replication.epochs.write(whose, state.log_dir.replacing)
    except OSError as error:
        failure = state.log_dir.failed(error, state.directory, state.topic, state.partition)
        if not failure.retriable:
            raise failure from error
        state.replication.epochs_changed += 1


def allow_gaps(state: LogState) -> None:
    """Durably note that offsets may be missing: compaction in Kafka's layout leaves gaps.

    The caller must hold `flush_lock`. Raises LogStoreError.
    """
    if not state.metadata.extra.get(SPARSE_OFFSETS):
        set_metadata(state, extra=state.metadata.extra | {SPARSE_OFFSETS: True})
        write_epochs(state)


def set_metadata(state: LogState, *, end_offset: int | None = None, **changes: Any) -> None:
    """Replace `partition.metadata` durably; write a new log start to the epochs' file first.

    A crash between the two writes leaves the old log start. This is correct, because no caller has
    seen the new log start. The file of a replicated log also gets a high watermark, below which
    everything is flushed.

    Args:
        end_offset: the log end after a truncation that is about to begin. The high watermark is not
            set above this offset.
    """
    metadata = state.metadata._replace(**changes)
    if state.replication.replicated_to is not None:
        # After a crash, the recovery point may be lower than the high watermark in the file.
        flushed = max(state.recovery_point, metadata.extra.get(HIGH_WATERMARK, 0))
        bound = flushed if end_offset is None else min(flushed, end_offset)
        metadata = metadata.with_high_watermark(min(state.high_watermark, bound))
    start = changes.get("log_start_offset")

    def write() -> None:
        if start is not None:
            state.replication.epochs.write(state.of_log(start), state.log_dir.replacing)
        metadata.write(state.directory, state.log_dir.replacing)

    try:
        with call(state.directory, SYNCING):
            state.log_dir.ballast.use(write)
    except OSError as error:
        raise state.failed(error) from error
    state.metadata = metadata
    if start is not None:
        state.replication.confirmed_start = start
