"""Drop the beginning of a log: by age, by size, up to an offset, or because the disk is full.

The new log start offset is durable in `partition.metadata` before the first file is removed. So
deleted records never come back, even if a crash happens before their files are removed. A reader
that has a dropped segment open reads the segment to its end, and then raises OffsetOutOfRangeError.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from logstore.disk import files
from logstore.disk.uninterrupted import uninterrupted
from logstore.errors import LogStoreError
from logstore.log.metadata import PartitionMetadata
from logstore.log.producers import snapshots
from logstore.log.replica import view_of
from logstore.log.segments.segment import Segment
from logstore.log.write.flush import hidden_failure, set_metadata
from logstore.log.write.hung_locks import held

if TYPE_CHECKING:
    from logstore.log.state import LogState

# A timestamp may be in the future, for example the time when a task is due.
# If a timestamp is more than a year ahead, it counts as wrong.
AHEAD_MS_MAX = 366 * 24 * 3600 * 1000


def delete_records_before(state: LogState, offset: int) -> None:
    """Move the log start to `offset`; see `Log.delete_records_before`."""
    uninterrupted(partial(_delete_records_before, state, offset))


def _delete_records_before(state: LogState, offset: int, go_on: Callable[[], None]) -> None:
    """Move the log start; Ctrl-C may interrupt the thread."""
    with state.telling(), state.flush_lock, held(state, "flush_lock"):
        state.check_current()
        go_on()
        if offset > state.high_watermark or offset < 0:
            raise state.out_of_range(offset)
        if offset > state.log_start_offset:
            _start_at(state, offset)


def apply_retention(state: LogState) -> int:
    """Drop whole segments that the configuration no longer keeps; return their number."""
    if not state.config.is_retained:
        return 0
    return uninterrupted(partial(_apply_retention, state))


def _apply_retention(state: LogState, go_on: Callable[[], None]) -> int:
    """Drop segments; Ctrl-C may interrupt the thread."""
    with state.telling(), state.flush_lock, held(state, "flush_lock"):
        state.check_current()
        go_on()
        config, segments = state.config, state.segments
        if not config.is_retained:  # the configuration changed while this thread waited
            return 0
        oldest_ms = state.now_ms() - (config.retention_ms or 0)
        rest_bytes = sum(segment.size_bytes for segment in segments)
        dropped = 0
        replicated_to = state.high_watermark
        for segment in segments[:-1]:
            if segment.end_offset > replicated_to:
                break
            is_old = config.retention_ms is not None and _newest_ms(state, segment) < oldest_ms
            is_over = (
                config.retention_bytes is not None
                and rest_bytes - segment.size_bytes >= config.retention_bytes
            )
            if not is_old and not is_over:
                break
            rest_bytes -= segment.size_bytes
            dropped += 1
        if dropped:
            _start_at(state, segments[dropped].base_offset)
        return dropped


def oldest_under_pressure(state: LogState) -> int | None:
    """Return the time (ms) of the oldest segment; None if even a full disk must not drop it."""
    segments = state.segments
    if not state.config.retention_pressure or len(segments) < 2:
        return None
    first = segments[0]
    return _newest_ms(state, first) if first.end_offset <= state.high_watermark else None


def drop_oldest(state: LogState) -> bool:
    """Drop the oldest segment because the disk is full; return False if the segment must stay."""
    return uninterrupted(partial(_drop_oldest, state))


def _drop_oldest(state: LogState, go_on: Callable[[], None]) -> bool:
    """Drop one segment; Ctrl-C may interrupt the thread."""
    with state.telling(), state.flush_lock, held(state, "flush_lock"):
        state.check_current()
        go_on()
        if oldest_under_pressure(state) is None:
            return False
        _start_at(state, state.segments[1].base_offset)
        return True


def _newest_ms(state: LogState, segment: Segment) -> int:
    """Return the time (ms) of a segment's newest record; retention by age uses this time.

    Programs and peers set the timestamps. If the largest timestamp is too far in the future, it
    must be wrong. If the largest timestamp is below 0, no record has a timestamp. If the largest
    timestamp is wrong or below 0, the time of the last write to the file is used.
    """
    newest = segment.max_timestamp
    if 0 <= newest <= state.now_ms() + AHEAD_MS_MAX:
        return newest
    try:
        return files.stat(segment.log_path).st_mtime_ns // 1_000_000
    except OSError as error:
        raise state.failed(error) from error


def _start_at(state: LogState, offset: int) -> None:
    """Move the log start durably, then drop the segments before it.

    The caller must hold `flush_lock`.

    If an interrupt comes after the metadata was written, the segments are still dropped. The
    metadata says that their records are deleted, so the records must no longer be served. The
    metadata is written again before any file is removed, because the interrupt may have come before
    the sync of the metadata. But if a sync has failed, no file is removed, and the log dir goes
    OFFLINE.
    """
    outer = sys.exc_info()[1]
    segments = state.segments
    first = 0
    while first + 1 < len(segments) and segments[first + 1].base_offset <= offset:
        first += 1
    gone = segments[:first]
    try:
        snapshots.put_before_start(state, offset)
        set_metadata(state, log_start_offset=offset)
        _hide(state, offset, gone)
        _remove_files(state, gone)
    except LogStoreError:
        raise
    except BaseException as error:  # the thread was interrupted
        hidden = hidden_failure(error, outer)
        if isinstance(hidden, files.SyncError):
            state.log_dir.flush_failed(hidden, state.directory)
        elif _is_written(state, offset):
            _hide(state, offset, gone)
            with suppress(LogStoreError):  # on failure, the next start removes the files
                set_metadata(state, log_start_offset=offset)
                _remove_files(state, gone)
        raise


def _is_written(state: LogState, offset: int) -> bool:
    """Return True if the metadata has a log start at or after `offset`, or is unreadable."""
    try:
        metadata = PartitionMetadata.read(state.directory)
    except (OSError, LogStoreError):
        return True
    return metadata is None or metadata.log_start_offset >= offset


def _hide(state: LogState, offset: int, gone: tuple[Segment, ...]) -> None:
    """Move the log start in memory, and forget earlier segments; a second call does no harm."""
    assert state.log_start_offset <= offset <= state.log_end_offset
    with state.lock:
        state.log_start_offset = state.replication.confirmed_start = offset
        if gone:
            _leave_out(state, gone)
        state.replication.epochs.start_at(offset)
        state.replication.epochs_changed += 1


def _leave_out(state: LogState, gone: tuple[Segment, ...]) -> None:
    ids = {id(segment) for segment in gone}
    for segment in gone:
        segment.is_dropped = True
    state.unflushed = [pair for pair in state.unflushed if id(pair[0]) not in ids]
    state.view = view_of([one for one in state.segments if id(one) not in ids])


def _remove_files(state: LogState, gone: tuple[Segment, ...]) -> None:
    for segment in gone:  # release all segments first, because the removal of a file may fail
        segment.forget(state.environment)
    try:
        for segment in gone:
            for path in segment.paths:
                files.remove_if_there(path)
    except OSError as error:
        raise state.failed(error) from error
