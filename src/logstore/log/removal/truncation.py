"""Drop the records at the end of a log (`truncate_to`).

While a reader may use a file, the file is never shortened. Instead, the kept part of a segment is
written to a new file, which is then renamed over the old file. The segments before the new file are
synced first. Without this sync, a crash could lose earlier records and leave a hole before the new
file, which is durable. Next, the files that describe the dropped bytes are removed. So after a
crash at any point, the log ends between the new end and the old end, and no file describes records
after the end of the log.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.disk import bulk, files
from logstore.disk.documents.checkpoint import HIGH_WATERMARKS, RECOVERY_POINTS
from logstore.disk.failures import Verdict, verdict_of
from logstore.disk.uninterrupted import uninterrupted
from logstore.errors import LogStoreError, ReplicaOfflineError
from logstore.format import layouts
from logstore.format.columnar.columns import Buffer
from logstore.log.epochs import LeaderEpochs
from logstore.log.metadata import RECOVERY_POINT_LIMIT
from logstore.log.producers import snapshots
from logstore.log.read.cursor import UNDECODABLE, Cursor, corrupt, unreadable
from logstore.log.removal import lost_records
from logstore.log.segments.cache import Handle
from logstore.log.segments.scan import Scan
from logstore.log.segments.search import magic_of
from logstore.log.segments.segment import Segment
from logstore.log.subscription import LogEvent, tell
from logstore.log.write import flush, roll
from logstore.log.write.flush import hidden_failure, set_metadata
from logstore.log.write.hung_locks import held
from logstore.names import TopicPartition

if TYPE_CHECKING:
    from logstore.log.producers.producer_state import Producers
    from logstore.log.state import LogState


class _Replacement(NamedTuple):
    """A prepared truncation, which has all the file descriptors and disk space that it needs.

    Attributes:
        kept: the segments that stay.
        gone: the segments that are dropped or replaced.
        new: the segment that replaces the first of `gone`; its file still has the name `temporary`.
        producers: the state of the producers at the new end of the log.
    """

    kept: list[Segment]
    gone: tuple[Segment, ...]
    new: Segment
    magic: int
    temporary: str
    directory: Handle
    producers: Producers | None


def truncate_to(state: LogState, offset: int, *, keep_lost: bool = False) -> str | None:
    """Drop every record at or after `offset`; see `Log.truncate_to`."""
    return uninterrupted(partial(_truncate_and_tell, state, offset, keep_lost))


def _truncate_and_tell(
    state: LogState, offset: int, keep_lost: bool, go_on: Callable[[], None]
) -> str | None:
    """Truncate, and then notify subscribers, even if the truncation failed after a change."""
    view = state.view
    with state.telling():
        try:
            return _truncate(state, offset, keep_lost, go_on)
        finally:
            if state.view is not view:
                state.arrivals.wake()  # a thread in `tail` may wait for an offset after the new end
                tell(state.subscriptions, LogEvent.TRUNCATED)


def _truncate(
    state: LogState, offset: int, keep_lost: bool, go_on: Callable[[], None]
) -> str | None:
    """Truncate under both locks, in a thread that may be interrupted."""
    outer = sys.exc_info()[1]
    replacement = kept_at = None
    with state.flush_lock, state.lock, held(state, "flush_lock", "lock"):
        state.check_writable()
        go_on()
        if not state.log_start_offset <= offset <= state.log_end_offset:
            raise state.out_of_range(offset)
        if offset == state.log_end_offset:
            return None
        if state.half_made:  # without this, the file of an interrupted roll would stay
            roll.undo(state)
        try:
            kept_at = lost_records.keep(state, offset) if keep_lost else None
            replacement = _with_room(state, offset)
            _carry_out(state, offset, replacement)
        except OSError as error:
            failure = state.failed(error)
            if _is_half_done(state) and not state.log_dir.is_offline:
                _take_what_stands(state, offset)
            try:
                raise failure from error
            finally:
                # a traceback holds this frame and its descriptors
                del failure, replacement
        except LogStoreError:
            raise
        except BaseException as error:  # the thread was interrupted
            hidden = hidden_failure(error, outer)
            if hidden is not None:
                state.log_dir.failed(hidden, state.directory)
            if _is_half_done(state):
                _take_what_stands(state, offset)
            raise
    return kept_at


def _is_half_done(state: LogState) -> bool:
    """Check whether the log still lists dropped segments, whose files may be gone."""
    return any(segment.is_dropped for segment in state.segments)


def _take_what_stands(state: LogState, offset: int) -> None:
    """Reload the log after an interrupted truncation.

    The end of the reloaded log is between the new end and the old end.
    """
    from logstore.log.recovery.open_log import reopen

    state.recovery_point = min(state.recovery_point, offset)
    state.replication.lower_to(offset)
    try:
        reopen(state)
    except LogStoreError as error:
        state.detach(error)
    except BaseException:  # after this interrupt, readers would wait if the log stayed attached
        reason = (
            "the truncation of the log was interrupted twice: open the store again to use the log"
        )
        state.detach(
            ReplicaOfflineError(topic=state.topic, partition=state.partition, reason=reason)
        )
        raise


def _with_room(state: LogState, offset: int) -> _Replacement:
    """Prepare a truncation; if the disk has no room for the copy, first drop whole segments.

    Dropping whole segments makes room for the copy of the segment that is cut. If this function
    raises OSError, the log is undamaged, and ends at its old end, or at the end of the segment that
    was to be cut.
    """
    use = state.log_dir.ballast.use
    try:
        return use(partial(_prepare, state, offset))
    except OSError as error:
        behind = [one.base_offset for one in state.segments if one.base_offset > offset]
        if verdict_of(error) is not Verdict.FULL or not behind:
            raise
    _carry_out(state, behind[0], use(partial(_prepare, state, behind[0])))
    return use(partial(_prepare, state, offset))


def _prepare(state: LogState, offset: int) -> _Replacement:
    """Acquire all file descriptors and all disk space for a truncation. Raises OSError.

    The caller must hold both locks. This function does not change the segments: if it fails, no
    record was removed.
    """
    segments = state.segments
    kept = [segment for segment in segments if segment.base_offset < offset]
    gone = segments[len(kept) :]
    cut = kept[-1] if kept and kept[-1].end_offset > offset else None
    if cut is not None:
        kept.pop()
        gone = (cut, *gone)
    flush.sync_segments(state, kept)
    limit = min(offset, state.recovery_point)
    # A `.move` copy of a running move may have the dropped records.
    # So the field `moving` is removed, and no later process continues the copy.
    generation = state.log_dir.generation
    lowered = state.metadata.with_lowered_end(generation.directory_id, generation.current)
    lowered = lowered.with_cleaned(lowered.cleaned.until(offset))
    extra = lowered.extra | {RECOVERY_POINT_LIMIT: limit}
    set_metadata(state, end_offset=offset, extra=extra, moving=None)
    _forget_epochs(state, offset)
    producers = snapshots.put_before(state, offset)
    new = Segment(state.directory, offset if cut is None else cut.base_offset)
    temporary = f"{new.log_path}.tmp"
    try:
        magic = 0
        if cut is None:
            _write_empty(new, temporary)
        else:
            magic = _write_kept_part(state, cut, offset, new, temporary)
        directory = Handle(files.open_file(state.directory, files.DIRECTORY))
    except OSError:
        with suppress(OSError):  # if the disk fails, the next open of the log removes the file
            files.remove_if_there(temporary)
        raise
    return _Replacement(kept, gone, new, magic, temporary, directory, producers)


def _forget_epochs(state: LogState, offset: int) -> None:
    """Durably remove the epochs of the dropped part from their file. Raises OSError.

    The file is not removed, because it confirms the log start. If the truncation fails after this
    step, the file lacks the epochs of batches that still exist. The next flush or open then
    rewrites the file.
    """
    kept = [entry for entry in state.replication.epochs.entries if entry[1] < offset]
    if kept != state.replication.epochs.entries:
        state.replication.epochs_changed += 1
        whose = state.of_log(state.replication.confirmed_start)
        LeaderEpochs(state.directory, kept).write(whose, state.log_dir.replacing)


def _carry_out(state: LogState, offset: int, replacement: _Replacement) -> None:
    """Replace the dropped segments with the new file, without opening a file. Raises OSError."""
    kept, gone, new, magic, temporary, directory, producers = replacement
    # Lower these offsets first.
    # Otherwise, if the log dir failed now and returned later, it would count as an old copy.
    state.recovery_point = min(state.recovery_point, offset)
    state.replication.lower_to(offset)
    state.cut_offset = min(state.cut_offset, offset)
    # Lower the checkpoint, too, although `partition.metadata` limits the recovery point.
    # If either `partition.metadata` or the checkpoint is damaged, the limit in the undamaged file
    # still holds.
    lower, use = state.log_dir.checkpoints.lower, state.log_dir.ballast.use
    key = TopicPartition(state.topic, state.partition)
    use(partial(lower, RECOVERY_POINTS, key, state.recovery_point))
    use(partial(lower, HIGH_WATERMARKS, key, offset))
    if state.producers.are_known:
        # The snapshots are durably gone before `_replace` removes records.
        snapshots.remove_after(state, offset)
    _replace(gone, new, temporary, directory.fd)
    state.producers.snapshots = tuple(at for at in state.producers.snapshots if at <= offset)
    state.producers.replace(producers)
    dropped = {id(segment) for segment in gone}
    state.unflushed = [pair for pair in state.unflushed if id(pair[0]) not in dropped]
    state.count_from_flushed()
    state.replication.epochs.truncate_to(offset)
    state.replication.epochs_changed += 1
    if new.last_epoch > state.replication.epochs.latest:  # `new` ends at or before the log start
        new.last_epoch = -1  # the next append then writes the start of its leader epoch
    state.activate([*kept, new], foreign_magic=0 if magic in (0, state.rules.magic) else magic)
    for segment in gone:
        segment.forget(state.environment)


def _replace(gone: tuple[Segment, ...], new: Segment, temporary: str, directory: int) -> None:
    """Remove segments, the newest first; rename the new file over the first segment."""
    for segment in gone:
        segment.is_dropped = True
        files.remove_if_there(segment.index_path)
        files.remove_if_there(segment.time_index_path)
    files.sync_names(directory)
    for segment in reversed(gone[1:]):
        files.remove_if_there(segment.log_path)
        files.sync_names(directory)
    files.rename(temporary, new.log_path)
    files.sync_names(directory)


def _write_empty(new: Segment, temporary: str) -> None:
    """Write an empty file for a new segment."""
    new.begin_indexes()
    writer = Handle(files.replace_file(temporary))
    files.sync_file(writer.fd)


def _write_kept_part(
    state: LogState, segment: Segment, offset: int, new: Segment, temporary: str
) -> int:
    """Write the batches before `offset`; a batch that contains `offset` is cut and encoded again.

    If the records just before `offset` are missing, an empty batch takes their offsets. So the log
    ends at `offset`, and no new record gets one of the missing offsets.

    Returns the layout of the batches.
    """
    cursor = Cursor(segment, offset, state.environment)
    rest: list[Buffer] = []
    end_position = segment.size_bytes
    for data, start, run in cursor.runs(64 * 1024):
        at, header = run[0]
        end_position = start + at
        if header.base_offset < offset:
            batch, bound = bytes(data[at : at + header.size_bytes]), state.environment
            try:
                rest = layouts.part_until(batch, offset, bound.record_expansion_bytes_max)
            except UNDECODABLE as error:
                raise unreadable(segment, end_position, error) from error
        break
    writer = Handle(files.replace_file(temporary))
    source = segment.handle(state.environment)
    bulk.copy_range(source.fd, writer.fd, 0, end_position)
    files.write_fully(writer.fd, rest, end_position)
    end = end_position + sum(map(len, rest))
    index, time_index = new.begin_indexes()
    scan = Scan(
        new.base_offset,
        index=index,
        time_index=time_index,
        interval_bytes=state.config.index_interval_bytes,
    )
    reason = scan.run(writer.fd, end)
    if reason is None and scan.offset < offset:  # compaction has removed the last records
        hole = layouts.hole(magic_of(source.fd), scan.offset, offset, _epoch_at(state, scan))
        reason = scan.run(writer.fd, end + files.write_fully(writer.fd, [hole], end))
    files.sync_file(writer.fd)
    if reason is not None:
        files.remove_if_there(temporary)
        raise corrupt(segment, scan.position, reason)
    new.take(scan)
    return scan.magic


def _epoch_at(state: LogState, scan: Scan) -> int:
    """Return the leader epoch for an empty batch that follows the walked batches."""
    return max(scan.last_epoch, state.replication.epochs.at(scan.base_offset), 0)
