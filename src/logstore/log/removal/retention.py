"""Drop the beginning of a log: by age, by size, or up to an offset.

The new log start offset is durable in `partition.metadata` before the first file is removed. So
deleted records never come back, whichever files a crash leaves. A reader in a dropped segment
continues as long as it holds the segment's file, and raises OffsetOutOfRangeError after that.
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
from logstore.log.replica import view_of
from logstore.log.segments.segment import Segment
from logstore.log.write.flush import hidden_failure
from logstore.log.write.hung_locks import held

if TYPE_CHECKING:
    from logstore.log.writer import LogWriter

# A timestamp may be in the future, for example the time when something is due. More than a year
# ahead is wrong.
AHEAD_MS_MAX = 366 * 24 * 3600 * 1000


def delete_records_before(log: LogWriter, offset: int) -> None:
    """Move the log start to `offset`; see `Log.delete_records_before`."""
    uninterrupted(partial(_delete_records_before, log, offset))


def _delete_records_before(log: LogWriter, offset: int, go_on: Callable[[], None]) -> None:
    """Move the log start, in a thread that may be interrupted."""
    with log._telling(), log._flush_lock, held(log, "_flush_lock"):
        log._check()
        go_on()
        if offset > log.log_end_offset or offset < 0:
            raise log._out_of_range(offset)
        if offset > log._log_start_offset:
            _start_at(log, offset)


def apply_retention(log: LogWriter) -> int:
    """Drop whole segments that the configuration no longer keeps; returns how many."""
    if log.config.retention_ms is None and log.config.retention_bytes is None:
        return 0
    return uninterrupted(partial(_apply_retention, log))


def _apply_retention(log: LogWriter, go_on: Callable[[], None]) -> int:
    """Drop segments, in a thread that may be interrupted."""
    config = log.config
    with log._telling(), log._flush_lock, held(log, "_flush_lock"):
        log._check()
        go_on()
        segments = log._view[0]
        oldest_ms = log._now_ms() - (config.retention_ms or 0)
        rest_bytes = sum(segment.size_bytes for segment in segments)
        dropped = 0
        for segment in segments[:-1]:
            is_old = config.retention_ms is not None and _newest_ms(log, segment) < oldest_ms
            is_over = (
                config.retention_bytes is not None
                and rest_bytes - segment.size_bytes >= config.retention_bytes
            )
            if not is_old and not is_over:
                break
            rest_bytes -= segment.size_bytes
            dropped += 1
        if dropped:
            _start_at(log, segments[dropped].base_offset)
        return dropped


def _newest_ms(log: LogWriter, segment: Segment) -> int:
    """Give the time of a segment's newest record, which decides how long it is kept.

    A program or a peer sets the timestamps. If the largest one is so far in the future that it must
    be wrong, the time of the last write to the file counts.
    """
    newest = segment.max_timestamp
    if newest <= log._now_ms() + AHEAD_MS_MAX:
        return newest
    try:
        return files.stat(segment.log_path).st_mtime_ns // 1_000_000
    except OSError as error:
        raise log._failed(error) from error


def _start_at(log: LogWriter, offset: int) -> None:
    """Move the log start, durably, then drop what is before it; `_flush_lock` is held.

    If this is interrupted after the first step, the second still runs: records that the disk lists
    as deleted must not be served, and could not be appended to. The first step may still lack its
    sync; so it is repeated before any file is removed, unless that sync was what failed.
    """
    outer = sys.exc_info()[1]
    segments = log._view[0]
    first = 0
    while first + 1 < len(segments) and segments[first + 1].base_offset <= offset:
        first += 1
    gone = segments[:first]
    try:
        log._set_metadata(log_start_offset=offset)
        _hide(log, offset, gone)
        _remove_files(log, gone)
    except LogStoreError:
        raise
    except BaseException as error:  # interrupted
        hidden = hidden_failure(error, outer)
        if isinstance(hidden, files.SyncError):
            log._log_dir.flush_failed(hidden, log.directory)
        elif _is_written(log, offset):
            _hide(log, offset, gone)
            with suppress(LogStoreError):  # the files stay then, for the next start
                log._set_metadata(log_start_offset=offset)
                _remove_files(log, gone)
        raise


def _is_written(log: LogWriter, offset: int) -> bool:
    """Check on the disk whether the log starts at an offset; True if it gives no answer."""
    try:
        metadata = PartitionMetadata.read(log.directory)
    except (OSError, LogStoreError):
        return True
    return metadata is None or metadata.log_start_offset >= offset


def _hide(log: LogWriter, offset: int, gone: tuple[Segment, ...]) -> None:
    """Forget what is before the log start; repeating it does no harm."""
    with log._lock:
        log._log_start_offset = log._confirmed_start = offset
        if gone:
            _leave_out(log, gone)
        log._epochs.start_at(offset)
        log._epochs_changed += 1


def _leave_out(log: LogWriter, gone: tuple[Segment, ...]) -> None:
    ids = {id(segment) for segment in gone}
    for segment in gone:
        segment.is_dropped = True
    log._unflushed = [pair for pair in log._unflushed if id(pair[0]) not in ids]
    log._view = view_of([one for one in log._view[0] if id(one) not in ids])


def _remove_files(log: LogWriter, gone: tuple[Segment, ...]) -> None:
    for segment in gone:  # all of them first: the disk may fail at any file
        segment.forget(log._environment)
    try:
        for segment in gone:
            for path in segment.paths:
                files.remove_if_there(path)
    except OSError as error:
        raise log._failed(error) from error
