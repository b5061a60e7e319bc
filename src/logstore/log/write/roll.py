"""Roll: begin a new segment, and clean up after a write or a roll that was interrupted.

An interrupted thread cleans up, but a second interrupt may stop this work. So `half_made` lists the
files with bytes that are not yet part of the log. A new file is added to this list before it is
created, and removed from it when its segment is in the view. After an interrupted write, the file
of the active segment is in the list, too. If a new file in the list were not removed, the next
start would treat the file as a segment. The start would then cut off records that were appended to
the previous segment, or would find that a batch overlaps the new file. If wrong bytes stayed at the
end of the active segment, and the segment was sealed, the next start would report these bytes as
damage.

So the files and bytes that `half_made` lists are removed, and a wrong log start is corrected,
before an append, a roll, a truncation or a close. While `half_made` is not empty, `room_bytes` is
0. So every append calls `make_room`, which cleans up.
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
from logstore.log.write.flush import set_metadata
from logstore.log.write.hung_locks import held

# If `half_made` has this value, the active segment may have extra bytes at its end.
# The value is a constant, so its assignment calls no function.
# So no second interrupt can come before the assignment.
TORN = ("",)
# If `half_made` has this value, the small files may have a log start that the log does not use.
WRONG_START = ("log start",)


def create_file(path: str) -> int:
    """Create the file of a segment; use an empty file that an interrupted roll left."""
    try:
        return files.open_file(path, files.CREATE)
    except FileExistsError:
        if files.stat(path).st_size:
            raise
        return files.open_file(path, files.REPLACE)


def make_room(state: LogState, size_bytes: int, is_due: bool, magic: int = 0) -> Segment:
    """Roll if a batch does not fit into the active segment, or has another layout.

    Return the active segment. The caller must hold the log's lock.
    """
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
    """If the active segment is older than `segment_ms`, roll; return whether the log was rolled."""
    if now_ms < state.roll_at_ms:
        return False
    with state.lock:
        state.check_writable()
        if now_ms < state.roll_at_ms or not state.active.size_bytes:
            return False
        roll(state, state.active.end_offset)
    return True


def roll(state: LogState, base_offset: int) -> None:
    """Seal the active segment, and begin a segment at `base_offset`; the caller must hold the lock.

    The next flush makes the name of the new file and the bytes of the sealed file durable. This
    flush comes before any record in the new segment is acknowledged as durable.
    """
    active = state.active
    # Segments are contiguous.
    # There is one exception: a log without records can continue later (`follower_appends`).
    is_empty = active.end_offset <= state.log_start_offset
    assert base_offset == active.end_offset or (is_empty and active.end_offset < base_offset)
    segment = Segment(state.directory, base_offset)
    segment.is_sparse = active.is_sparse
    try:
        if state.half_made:
            undo(state)
        # While `room_bytes` is 0, every append calls `make_room`, which cleans up.
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
    except BaseException:  # if interrupted, free the file's name for the next attempt
        if state.active is not segment:
            files.remove_if_there(segment.log_path)
        raise


def undo(state: LogState) -> None:
    """Remove the bytes and files of an interrupted write or roll; the caller must hold the lock."""
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
    """Cut off the bytes that a failed write left after the last whole batch.

    The caller must hold the lock.
    """
    if not state.log_dir.is_offline:
        try:
            if state.writer is not None:
                files.ftruncate(state.writer.fd, position)
        except OSError as second:
            return state.log_dir.flush_failed(second, state.active.log_path)
    return None


def _tidy(state: LogState, active: Segment) -> LogStoreError | None:
    """Remove files that belong to no segment, and bytes after the active segment's end."""
    known = {segment.log_path for segment in state.segments}
    for path in reversed(state.half_made):
        if path not in known and path not in (*TORN, *WRONG_START):
            files.remove_if_there(path)
    if WRONG_START[0] in state.half_made:
        set_metadata(state, log_start_offset=state.log_start_offset)
    if TORN[0] not in state.half_made:
        return None
    if state.writer is None:
        state.take_writer(active)
    return undo_write(state, active.size_bytes)
