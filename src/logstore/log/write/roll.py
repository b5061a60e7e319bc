"""Roll: begin a new segment, and clean up after a write or a roll that was interrupted.

An interrupted thread cleans up itself, but a second interrupt may prevent that. `half_made` names
the files with bytes that are in no view: new files, from before they are created until their
segments are in the view, and the active segment's file after an interrupted write. If such a file
stayed, the next start would take it for a segment: it would cut the records before it that were
appended since, or find that a batch reaches into it. If such bytes stayed and the segment was
sealed, they would be found where the next segment begins.

So both are removed before an append, a roll, a truncation or a close. While `half_made` names a
file, the log has no room (`room_bytes` is 0): every append calls `make_room`.
"""

from __future__ import annotations

from logstore.disk import files
from logstore.errors import LogStoreError
from logstore.log.segments.cache import Handle
from logstore.log.segments.segment import WRITER, Segment
from logstore.log.state import (
    POSITION_MAX,
    RELATIVE_OFFSET_MAX,
    UNFLUSHED_SEGMENTS_MAX,
    LogState,
)
from logstore.log.write.hung_locks import held

# Represents the active segment's tail in `half_made`. A constant: adding it calls nothing, so no
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


def make_room(state: LogState, size_bytes: int, is_due: bool, magic: int = 0) -> Segment:
    """Roll if a batch of a layout does not fit into the active segment; the lock is held."""
    if state.half_made:
        undo(state)
    active = state.active
    index = active.index
    assert index is not None
    if active.size_bytes and (
        is_due
        or (magic or state.rules.magic) != (state.foreign_magic or state.rules.magic)
        or active.size_bytes + size_bytes > min(state.rules.segment_bytes, POSITION_MAX)
        or len(index) >= state.rules.index_entries_max
        or active.end_offset - active.base_offset >= RELATIVE_OFFSET_MAX
    ):
        roll(state, active.end_offset)
    return state.active


def roll_if_due(state: LogState, now_ms: int) -> bool:
    """Roll if the active segment is older than `segment_ms`; returns whether it did."""
    if now_ms < state.roll_at_ms:
        return False
    with state.lock:
        state.check_writable()
        if now_ms < state.roll_at_ms or not state.active.size_bytes:
            return False
        roll(state, state.active.end_offset)
    return True


def roll(state: LogState, base_offset: int) -> None:
    """Seal the active segment and begin one at `base_offset`; called under the lock.

    The new file's name and the sealed one's bytes are made durable by the next flush, before
    anything in the new segment is acknowledged as durable (R2).
    """
    active = state.active
    # Segments are contiguous; only an empty log may begin later (see `raw_batches`).
    assert base_offset == active.end_offset or active.base_offset == active.end_offset < base_offset
    segment = Segment(state.directory, base_offset)
    try:
        if state.half_made:
            undo(state)
        # No room for a record: the next append, however small, calls `make_room`, which cleans up.
        state.half_made, state.room_bytes = (segment.log_path,), 0
        with held(state, "lock"):
            writer = Handle(create_file(segment.log_path))
        state.environment.handles.put(segment.cached, WRITER, writer, 1)
        state.names_changed += 1
        if state.active.size_bytes:
            state.unflushed.append((state.active, state.writer))
        if len(state.unflushed) > UNFLUSHED_SEGMENTS_MAX:
            state.flush_at = 0
        state.activate([*state.segments, segment])
        state.leave_if_detached(segment)
    except OSError as error:
        raise state.failed(error) from error
    except BaseException:  # interrupted: the name must be free for the next attempt
        if state.active is not segment:
            files.remove_if_there(segment.log_path)
        raise


def undo(state: LogState) -> None:
    """Remove what an interrupted write or roll left, the newest file first; the lock is held."""
    active = state.active
    try:
        with held(state, "lock"):
            failure = _tidy(state, active)
    except OSError as error:
        raise state.failed(error) from error
    if failure is not None:
        raise failure
    state.half_made, state.room_bytes = (), state.room_in(active, state.foreign_magic)


def undo_write(state: LogState, position: int) -> LogStoreError | None:
    """Cut off what a failed write left after the last whole batch (R7); the lock is held."""
    if not state.log_dir.is_offline:
        try:
            if state.writer is not None:
                files.ftruncate(state.writer.fd, position)
        except OSError as second:
            return state.log_dir.flush_failed(second, state.active.log_path)
    return None


def _tidy(state: LogState, active: Segment) -> LogStoreError | None:
    """Remove files that belong to no segment, and the bytes after the active segment's end."""
    known = {segment.log_path for segment in state.segments}
    for path in reversed(state.half_made):
        if path and path not in known:
            files.remove_if_there(path)
    if TORN[0] not in state.half_made:
        return None
    if state.writer is None:
        state.take_writer(active)
    return undo_write(state, active.size_bytes)
