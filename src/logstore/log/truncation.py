"""Drop the end of a log: `truncate_to`.

No file is ever shortened under a reader: the kept part of a segment is written to a new file that
takes the old one's name. What describes the dropped bytes goes first, so that a crash at any point
leaves a log that ends somewhere between the old end and the new one, and nothing that says more.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from logstore.disk import files
from logstore.errors import LogStoreError
from logstore.format import layouts
from logstore.format.columns import Buffer
from logstore.log.cache import Handle
from logstore.log.cursor import Cursor, corrupt
from logstore.log.custody import held
from logstore.log.flushing import hidden_failure
from logstore.log.scan import Scan
from logstore.log.segment import Segment
from logstore.log.writer import RECOVERY_POINT_LIMIT

if TYPE_CHECKING:
    from logstore.log.log import Log


def truncate_to(log: Log, offset: int) -> None:
    """Drop every record at or behind `offset`; see `Log.truncate_to`."""
    outer = sys.exc_info()[1]
    with log._flush_lock, log._lock, held(log, "_flush_lock", "_lock"):
        log._check_writable()
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise log._out_of_range(offset)
        if offset == log.log_end_offset:
            return
        try:
            _truncate(log, offset)
        except OSError as error:
            failure = log._failed(error)
            if not log._log_dir.is_offline:
                _take_what_stands(log, offset)
            try:
                raise failure from error
            finally:
                del failure  # its traceback holds this frame, and the frame segments
        except LogStoreError:
            raise
        except BaseException as error:  # interrupted
            hidden = hidden_failure(error, outer)
            if hidden is not None:
                log._log_dir.flush_failed(hidden, log.directory)
            _take_what_stands(log, offset)
            raise


def _take_what_stands(log: Log, offset: int) -> None:
    """Look what a truncation left that broke off: the log ends between the old end and the new."""
    from logstore.log.opening import reopen

    log._recovery_point = min(log._recovery_point, offset)
    try:
        reopen(log)
    except LogStoreError as error:
        log.detach(error)


def _truncate(log: Log, offset: int) -> None:
    """Do it, both locks held; raises OSError.

    Whatever needs a descriptor or space is got before the first file goes.
    """
    limit = min(offset, log._recovery_point)
    # A copy that a move builds may hold what is dropped here: it is not to be gone on with unseen.
    log._set_metadata(extra={**log._metadata.extra, RECOVERY_POINT_LIMIT: limit}, moving=None)
    segments = log._view[0]
    kept = [segment for segment in segments if segment.base_offset < offset]
    gone = segments[len(kept) :]
    cut = kept[-1] if kept and kept[-1].end_offset > offset else None
    new, temporary = _begun_at(log, offset) if cut is None else _kept_part(log, cut, offset)
    if cut is not None:
        kept.pop()
        gone = (cut, *gone)
    directory = Handle(files.open_file(log.directory, files.DIRECTORY))
    try:
        _replace(gone, new, temporary, directory.fd)
    except OSError as error:
        _take_what_is_left(log, offset, error)
        raise
    dropped = {id(segment) for segment in gone}
    log._unflushed = [pair for pair in log._unflushed if id(pair[0]) not in dropped]
    log._recovery_point = min(log._recovery_point, offset)
    log._count_from_flushed()
    log._epochs.truncate_to(offset)
    log._epochs_changed = True
    log._activate([*kept, new])
    for segment in gone:
        segment.forget(log._environment)


def _replace(gone: tuple[Segment, ...], new: Segment, temporary: str, directory: int) -> None:
    """Remove segments, newest first, but the first: a new file takes its place and name."""
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


def _take_what_is_left(log: Log, offset: int, error: OSError) -> None:
    """Make a log that was left half truncated what its files are; else it serves no more."""
    from logstore.log.opening import reopen

    log._recovery_point = min(log._recovery_point, offset)
    failure = log._failed(error)
    try:
        log._log_dir.check()
        reopen(log)
    except LogStoreError:
        log.detach(failure)


def _begun_at(log: Log, offset: int) -> tuple[Segment, str]:
    """Write an empty file to begin a segment with, under another name."""
    new = Segment(log.directory, offset)
    new.begin_indexes()
    temporary = f"{new.log_path}.tmp"
    writer = Handle(files.open_file(temporary, files.REPLACE))
    files.sync_file(writer.fd)
    return new, temporary


def _kept_part(log: Log, segment: Segment, offset: int) -> tuple[Segment, str]:
    """Write the batches below `offset` to a new file, the one it falls into cut and framed anew."""
    cursor = Cursor(segment, offset, log._environment)
    rest: list[Buffer] = []
    end_position = segment.size_bytes
    for data, start, run in cursor.runs(64 * 1024):
        at, header = run[0]
        end_position = start + at
        if header.base_offset < offset:
            rest = layouts.part_until(bytes(data[at : at + header.size_bytes]), offset)
        break
    temporary = f"{segment.log_path}.tmp"
    writer = Handle(files.open_file(temporary, files.REPLACE))
    source = segment.handle(log._environment)
    files.copy_range(source.fd, writer.fd, 0, end_position)
    files.write_fully(writer.fd, rest, end_position)
    files.sync_file(writer.fd)
    end = end_position + sum(map(len, rest))
    new = Segment(segment.directory, segment.base_offset)
    index, time_index = new.begin_indexes()
    scan = Scan(
        new.base_offset,
        index=index,
        time_index=time_index,
        interval_bytes=log.config.index_interval_bytes,
    )
    reason = scan.run(writer.fd, end)
    if reason is not None:
        files.remove_if_there(temporary)
        raise corrupt(segment, scan.position, reason)
    new.take(scan)
    return new, temporary
