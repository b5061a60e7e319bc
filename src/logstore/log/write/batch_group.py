"""Append several whole batches in one operation: all of them, or none.

    plan    which batches go into the active segment, and which go into new segments
    write   with one call for each segment; readers do not see the written bytes yet
    publish the new end of the log, when every byte is in its file

If a write fails or is interrupted, the written bytes are cut off again, and new files are removed.
So if the error is retriable, no batch is in the log. When all bytes are in their files, no disk
error can stop the append any more. If an interrupt comes then, it takes effect only after all
batches are published.
"""

from __future__ import annotations

import time
from typing import NamedTuple, Never

from logstore.disk import files
from logstore.errors import LogStoreError, ReplicaOfflineError
from logstore.format.columnar.columns import Buffer
from logstore.log.segments.cache import Handle
from logstore.log.segments.segment import WRITER, Segment
from logstore.log.state import (
    POSITION_MAX,
    RELATIVE_OFFSET_MAX,
    UNFLUSHED_SEGMENTS_MAX,
    LogState,
)
from logstore.log.write import roll
from logstore.log.write.hung_locks import NOT_WRITING, reclaim
from logstore.log.write.outcome import mark

SHORTAGES_MAX, SHORTAGE_SECONDS = 20, 0.05


class PlacedBatch(NamedTuple):
    """One encoded batch with its place in the log."""

    buffers: list[Buffer]
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    magic: int


Group = list[PlacedBatch]


class _Room:
    """The size of a segment, including the batches that are planned for the segment so far."""

    def __init__(self, state: LogState, base_offset: int) -> None:
        self.state, self.base_offset = state, base_offset
        self.size_bytes = self.entries = self.magic = 0
        self.indexed_position = -1

    @classmethod
    def of_active(cls, state: LogState) -> _Room:
        """Begin with the present size of the active segment."""
        active = state.active
        room = cls(state, active.base_offset)
        if active.size_bytes and active.index is not None:
            room.size_bytes, room.entries = active.size_bytes, len(active.index)
            room.magic = state.foreign_magic or state.rules.magic
            room.indexed_position = state.indexed_position
        return room

    def takes(self, batch: PlacedBatch) -> bool:
        """Plan a batch for this segment; return False if the batch has to begin a new segment."""
        state = self.state
        if self.size_bytes and (
            batch.magic != self.magic
            or self.size_bytes + batch.size_bytes > min(state.rules.segment_bytes, POSITION_MAX)
            or self.entries >= state.rules.index_entries_max
            or batch.last_offset - self.base_offset > RELATIVE_OFFSET_MAX
        ):
            return False
        at, indexed = self.size_bytes, self.indexed_position
        if indexed < 0 or at - indexed >= state.rules.index_interval_bytes:
            self.entries, self.indexed_position = self.entries + 1, at
        self.size_bytes, self.magic = at + batch.size_bytes, batch.magic
        return True


def plan(state: LogState, batches: Group) -> list[Group]:
    """Decide which batches go into the active segment, and which into new segments.

    The caller must hold the log's lock.

    If the batches do not all fit into the active segment, but all fit into a new segment, all
    batches go into the new segment. So one system call can write all batches.
    """
    end = state.active.end_offset
    groups = _groups(batches, _Room.of_active(state), end)
    if len(groups) > 1 and groups[0]:
        alone = _groups(batches, _Room(state, end), end)
        if len(alone) == 1:
            return [[], *alone]
    return groups


def _groups(batches: Group, room: _Room, end: int) -> list[Group]:
    """Divide batches among segments; each new segment begins where the previous segment ends.

    Args:
        end: the end of the log before the first batch of the group is appended.
    """
    groups: list[Group] = [[]]
    for batch in batches:
        if not room.takes(batch):
            groups.append([])
            room = _Room(room.state, end)
            room.takes(batch)
        groups[-1].append(batch)
        end = batch.last_offset + 1
    return groups


def write(state: LogState, batches: Group) -> None:
    """Append batches at the log's end, all of them or none; the caller must hold the lock."""
    timing = state.timing
    started = 0.0 if timing is None else time.perf_counter()
    _write(state, batches)
    if timing is not None:
        timing.writes.note(time.perf_counter() - started)


def _write(state: LogState, batches: Group) -> None:
    if state.half_made:
        roll.undo(state)
    first, *others = plan(state, batches)
    if not first and len(others) == 1:
        roll.roll(state, state.active.end_offset)
        first, others = others[0], []
    active = state.active
    end = first[-1].last_offset + 1 if first else active.end_offset
    state.writing = position = active.size_bytes
    fresh: list[tuple[Segment, Handle, Group]] = []
    paths: list[str] = []
    writer: Handle | None = None
    try:
        if first:
            writer = state.writer or state.take_writer(active)
            _write_group(writer, first, position)
        for group in others:
            segment = Segment(state.directory, end)
            segment.is_sparse, end = active.is_sparse, group[-1].last_offset + 1
            paths.append(segment.log_path)
            state.half_made, state.room_bytes = tuple(paths), 0
            handle = Handle(files.open_file(segment.log_path, files.CREATE))
            fresh.append((segment, handle, group))
            _write_group(handle, group, 0)
        state.writing = NOT_WRITING
        if state.in_custody:
            reclaim(state, ("lock",))
        _publish_surely(state, active, position, first, fresh)
    except OSError as error:
        _fail(state, error, position, paths)
    except BaseException as error:  # after an interrupt, either all batches are published, or none
        if state.active.end_offset <= batches[-1].last_offset:
            is_half_shown = state.active is not active or active.end_offset > batches[0].base_offset
            if is_half_shown:  # there is not enough memory to show the other batches
                state.writer = writer
            state.half_made, state.room_bytes = (*roll.TORN, *paths), 0
            _take_back(state, error, position, paths, is_half_shown=is_half_shown)
        raise
    finally:
        state.writing = NOT_WRITING
        if state.in_custody:
            reclaim(state, ("lock",))


def _write_group(handle: Handle, group: Group, position: int) -> None:
    parts = [part for batch in group for part in batch.buffers]
    written = files.write_fully(handle.fd, parts, position)
    assert written == sum(batch.size_bytes for batch in group)


def _fail(state: LogState, error: OSError, position: int, paths: list[str]) -> Never:
    """Raise the LogStoreError for an OSError of the disk.

    Cut off the written bytes first, because a log dir that is OFFLINE cannot be changed.
    """
    was_offline = state.log_dir.is_offline
    left = _undo(state, position, paths)
    failure = left or state.failed(error)
    mark(failure, None if was_offline or left is not None else False)
    try:
        raise failure from error
    finally:
        del failure, left  # avoid a reference cycle through this frame


def _take_back(
    state: LogState, error: BaseException, position: int, paths: list[str], *, is_half_shown: bool
) -> None:
    """Remove the bytes that were written before an interrupt.

    If readers may see some of the written bytes, detach the log.
    """
    if state.log_dir.is_offline or _undo(state, position, paths) is not None:
        mark(error, None)
    if is_half_shown:
        reason = (
            "there was too little memory for the log's index: open the store again to use the log"
        )
        state.detach(
            ReplicaOfflineError(topic=state.topic, partition=state.partition, reason=reason)
        )


def _undo(state: LogState, position: int, paths: list[str]) -> LogStoreError | None:
    """Remove the written bytes: new files, the newest first, then the end of the active segment."""
    failure = None
    for path in reversed(paths):
        if not state.log_dir.is_offline:
            try:
                files.remove_if_there(path)
            except OSError as error:
                failure = state.log_dir.flush_failed(error, path)
    return roll.undo_write(state, position) or failure


def _publish_surely(
    state: LogState,
    active: Segment,
    position: int,
    first: Group,
    fresh: list[tuple[Segment, Handle, Group]],
) -> None:
    """Show the written batches to readers; raise an interrupt only after this work.

    The interrupt may come between two rounds of `_publish_all`'s loop, where the loop does not
    catch it.
    """
    try:
        _publish_all(state, active, position, first, fresh)
    except KeyboardInterrupt:
        _publish_all(state, active, position, first, fresh)
        raise


def _publish_all(
    state: LogState,
    active: Segment,
    position: int,
    first: Group,
    fresh: list[tuple[Segment, Handle, Group]],
) -> None:
    """Show the batches to readers; a repeated call does no harm.

    If there is not enough memory, this function tries again, for at most a second. If this function
    cannot show all batches in this time, the log refuses every call until it is opened again.
    """
    interrupt: BaseException | None = None
    shortages = 0
    while True:
        try:
            state.half_made = ()
            if first:
                _publish(state, active, position, first)
            for segment, handle, group in fresh:
                _begin(state, segment, handle)
                _publish(state, segment, 0, group)
            break
        except MemoryError:
            shortages += 1
            if shortages == SHORTAGES_MAX:
                raise
            time.sleep(SHORTAGE_SECONDS)
        except BaseException as error:
            if interrupt is not None and not isinstance(error, KeyboardInterrupt):
                raise
            interrupt = error
    if interrupt is not None:
        raise interrupt


def _publish(state: LogState, segment: Segment, position: int, group: Group) -> None:
    """Add batches to the indexes, then move the segment's end; a repeated call does no harm."""
    index = segment.index
    assert index is not None
    known = len(index.offsets)
    del index.positions[known:]  # type: ignore[attr-defined] # a growing index is an array
    at, indexed = position, state.indexed_position if known else -1
    for batch in group:
        relative_offset = batch.base_offset - segment.base_offset
        if known and index.offsets[-1] >= relative_offset:
            indexed = index.positions[-1]
        elif indexed < 0 or at - indexed >= state.rules.index_interval_bytes:
            state.add_index_entry(segment, batch.base_offset, at)
            indexed, known = at, known + 1
        if segment.last_epoch != batch.leader_epoch:
            segment.last_epoch = batch.leader_epoch
            state.replication.note(batch.leader_epoch, batch.base_offset)
        segment.max_timestamp = max(segment.max_timestamp, batch.max_timestamp)
        last_position, at = at, at + batch.size_bytes
    end_offset = batch.last_offset + 1
    foreign_magic = 0 if batch.magic == state.rules.magic else batch.magic
    is_full = end_offset - segment.base_offset >= RELATIVE_OFFSET_MAX
    state.foreign_magic = foreign_magic
    if foreign_magic or is_full:
        state.room_bytes = 0
    segment.last_position, segment.size_bytes, segment.end_offset = last_position, at, end_offset


def _begin(state: LogState, segment: Segment, handle: Handle) -> None:
    """Seal the active segment, and activate the written segment; a repeated call does no harm."""
    active, known = state.active, state.segments
    if active is not segment:
        if any(segment is one for one in known):
            return
        assert segment.base_offset == active.end_offset
        if active.size_bytes and not any(pair[0] is active for pair in state.unflushed):
            state.unflushed.append((active, state.writer))
        state.names_changed += 1
        if len(state.unflushed) > UNFLUSHED_SEGMENTS_MAX:
            state.flush_at = 0
        state.activate([*known, segment])
    state.environment.handles.put(segment.cached, WRITER, handle, 1)
    state.writer = handle
    state.environment.dirty.add(state)
    state.leave_if_detached(segment)
