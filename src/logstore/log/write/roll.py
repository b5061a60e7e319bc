"""Roll: begin a new segment, and clean up after a write or a roll that was interrupted.

An interrupted thread cleans up itself, but a second interrupt may prevent that. `_half_made` names
the files with bytes that are in no view: new files, from before they are created until their
segments are in the view, and the active segment's file after an interrupted write. If such a file
stayed, the next start would take it for a segment: it would cut the records before it that were
appended since, or find that a batch reaches into it. If such bytes stayed and the segment was
sealed, they would be found where the next segment begins.

So both are removed before an append, a roll, a truncation or a close. While `_half_made` names a
file, the log has no room (`_room_bytes` is 0): every append calls `_make_room`.
"""

from __future__ import annotations

from logstore.disk import files
from logstore.errors import LogStoreError
from logstore.log.segments.cache import Handle
from logstore.log.segments.segment import WRITER, Segment
from logstore.log.write.hung_locks import held
from logstore.log.write_state import (
    POSITION_MAX,
    RELATIVE_OFFSET_MAX,
    UNFLUSHED_SEGMENTS_MAX,
    WriteState,
)

# Represents the active segment's tail in `_half_made`. A constant: adding it calls nothing, so no
# second interrupt can come before it is added.
TORN = ("",)


def create_file(path: str) -> int:
    """Create the file of a segment; a roll that was interrupted leaves an empty one."""
    try:
        return files.open_file(path, files.CREATE)
    except FileExistsError:
        if files.stat(path).st_size:
            raise
        return files.open_file(path, files.REPLACE)


def make_room(log: WriteState, size_bytes: int, is_due: bool, magic: int) -> Segment:
    """Roll if a batch of a layout does not fit into the active segment; the lock is held."""
    if log._half_made:
        undo(log)
    active = log._active
    index = active.index
    assert index is not None
    if active.size_bytes and (
        is_due
        or (magic or log._magic) != (log._foreign_magic or log._magic)
        or active.size_bytes + size_bytes > min(log._segment_bytes, POSITION_MAX)
        or len(index) >= log._index_entries_max
        or active.end_offset - active.base_offset >= RELATIVE_OFFSET_MAX
    ):
        roll(log, active.end_offset)
    return log._active


def roll(log: WriteState, base_offset: int) -> None:
    """Seal the active segment and begin one at `base_offset`; called under the lock.

    The new file's name and the sealed one's bytes are made durable by the next flush, before
    anything in the new segment is acknowledged as durable (R2).
    """
    segment = Segment(log._directory, base_offset)
    try:
        if log._half_made:
            undo(log)
        # No room for a record: the next append, however small, calls `_make_room`, which cleans up.
        log._half_made, log._room_bytes = (segment.log_path,), 0
        with held(log, "_lock"):
            writer = Handle(create_file(segment.log_path))
        log._environment.handles.put(segment.cached, WRITER, writer, 1)
        log._names_changed += 1
        if log._active.size_bytes:
            log._unflushed.append((log._active, log._writer))
        if len(log._unflushed) > UNFLUSHED_SEGMENTS_MAX:
            log._flush_at = 0
        log._activate([*log._view[0], segment])
        log._leave_if_detached(segment)
    except OSError as error:
        raise log._failed(error) from error
    except BaseException:  # interrupted: the name must be free for the next attempt
        if log._active is not segment:
            files.remove_if_there(segment.log_path)
        raise


def undo(log: WriteState) -> None:
    """Remove what an interrupted write or roll left, the newest file first; the lock is held."""
    active = log._active
    try:
        with held(log, "_lock"):
            failure = _tidy(log, active)
    except OSError as error:
        raise log._failed(error) from error
    if failure is not None:
        raise failure
    log._half_made, log._room_bytes = (), log._room_in(active, log._foreign_magic)


def _tidy(log: WriteState, active: Segment) -> LogStoreError | None:
    """Remove files that belong to no segment, and the bytes after the active segment's end."""
    known = {segment.log_path for segment in log._view[0]}
    for path in reversed(log._half_made):
        if path and path not in known:
            files.remove_if_there(path)
    if TORN[0] not in log._half_made:
        return None
    if log._writer is None:
        log._take_writer(active)
    return log._undo_write(active.size_bytes)
