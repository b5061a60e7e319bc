"""Return a range of whole batches as a place in an open file, for the caller's `sendfile`.

Bytes are *sound* if this process has appended, moved or verified them. A segment remembers which of
its bytes are sound (`Segment.sound_until`). If the first batch of a range is sound, the range has
only sound bytes, and this process does not read the range. If the first batch is not sound, the
batches of the range are read and verified. Reading the batches also brings them into the page
cache.

A range refers to the open file, and no file is shortened while a reader uses it (ADR 3, ADR 5). So
the bytes of a range do not change if its log is rolled, truncated or moved, or if retention drops
its segment. A range never extends over two segments.

An index file may be wrong. So before code uses a position from an index file, it checks that a
batch begins at this position.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Self

from logstore.disk import files
from logstore.disk.calls import call
from logstore.errors import CorruptRecordBatchError
from logstore.format import layouts
from logstore.format.prefix import BATCH_BYTES_MIN, PREFIX_BYTES, unpack_prefix
from logstore.log.read.cursor import Cursor
from logstore.log.read.isolation import end_of
from logstore.log.read.records import segment_at
from logstore.log.segments.segment import Segment

if TYPE_CHECKING:
    from types import TracebackType

    from logstore.format.batch_parts import BatchHeader
    from logstore.log.replica import Replica
    from logstore.log.segments.cache import Handle

WALK_BYTES = 8192  # how many bytes are read at once to step through small batches
WALKED_INTERVALS = 16
WINDOW_BYTES = layouts.WINDOW_BYTES


class FileRange:
    """Whole batches in an open file, from `Log.read_range`. Close the range, or use a `with` block.

    Attributes:
        position: where the first batch begins in the file.
        size_bytes: size of all batches; 0 if there is no batch to read yet.
        first_offset: base offset of the first batch. The first batch contains the requested offset.
            If that offset is missing in the log, the first batch is the next batch after the gap.
        next_offset: the offset to request for the next range.
    """

    __slots__ = ("_handle", "first_offset", "next_offset", "position", "size_bytes")

    def __init__(
        self, handle: Handle, position: int, size_bytes: int, first_offset: int, next_offset: int
    ) -> None:
        """Use `Log.read_range`."""
        self._handle: Handle | None = handle
        self.position = position
        self.size_bytes = size_bytes
        self.first_offset = first_offset
        self.next_offset = next_offset

    def __repr__(self) -> str:
        state = ", closed" if self._handle is None else ""
        return (
            f"<FileRange offsets {self.first_offset}..{self.next_offset}, "
            f"{self.size_bytes} bytes at {self.position}{state}>"
        )

    def fileno(self) -> int:
        """Give the file's descriptor; it is valid until the range is closed or dropped."""
        if self._handle is None:
            raise ValueError("the range is closed")
        return self._handle.fd

    def close(self) -> None:
        """Release the descriptor; closing twice is allowed."""
        self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._handle = None


# Describes a range: position, size in bytes, first offset and next offset.
Place = tuple[int, int, int, int]


def read_range(
    state: Replica, offset: int, max_bytes: int, end_offset: int | None, level: str
) -> FileRange:
    """Find a range of whole batches; see `ReadableLog.read_range`."""
    state.check()
    state.refresh()
    end = end_of(state, level)
    if end_offset is not None and end_offset < end:
        end = end_offset
    if offset < state.log_start_offset or (offset >= end and offset > state.log_end_offset):
        raise state.out_of_range(offset)
    while offset < end:
        seen = state.view
        segments, bases = seen
        segment = segments[bisect_right(bases, offset) - 1]
        if not segment.base_offset <= offset < segment.end_offset:
            segment = segment_at(state, offset)
        try:
            handle = segment.handle(state.environment)
            place = _verified(state, segment, handle.fd, offset, max_bytes, end)
            if place is None:
                place = _verify(state, segment, handle.fd, offset, max_bytes, end)
            if place is not None:
                return FileRange(handle, *place)
            if segment.end_offset >= end:
                return FileRange(handle, 0, 0, offset, offset)
            offset = segment.end_offset  # compaction left a gap at the segment's end
        except FileNotFoundError as error:
            state.retry(segment, offset, error)
        except CorruptRecordBatchError as error:
            state.look_twice(offset, seen, error)
        except OSError as error:
            state.take_failure(segment, offset, error)
        state.check()
    return _empty(state, offset)


def _empty(state: Replica, offset: int) -> FileRange:
    """Give a range without batches, for an offset where there is nothing to read yet."""
    while True:
        segment = state.segments[-1]
        try:
            return FileRange(segment.handle(state.environment), 0, 0, offset, offset)
        except FileNotFoundError as error:
            state.retry(segment, offset, error)
        except OSError as error:
            state.take_failure(segment, offset, error)


def _verified(
    state: Replica, segment: Segment, fd: int, offset: int, max_bytes: int, end: int
) -> Place | None:
    """Find a range of sound batches that begins at `offset`, or return None."""
    base, end_offset, size_bytes = segment.base_offset, segment.end_offset, segment.size_bytes
    growing = segment.index  # None if the index is only in a file
    index = segment.offset_index(state.environment) if growing is None else growing
    offsets, positions = index.offsets, index.positions
    entry = bisect_right(offsets, offset - base) - 1
    if entry < 0:
        return None
    position, first = positions[entry], base + offsets[entry]
    sound_end = min(segment.sound_until(position), size_bytes)
    if sound_end <= position or (growing is None and not _begins(segment, fd, position, first)):
        return None
    if first < offset:
        found = _batch_with(segment, fd, position, sound_end, offset)
        if found is None:
            return None
        position, first = found
    goal = position + max_bytes
    if goal >= sound_end:
        goal = sound_end
        if growing is None and goal == size_bytes and end_offset <= end:
            return position, size_bytes - position, first, end_offset
    # An append publishes first the size of the segment, and then its end offset.
    end = min(end, end_offset)
    last = min(bisect_right(positions, goal), bisect_right(offsets, end - base)) - 1
    at, following = (position, first) if last < 0 else (positions[last], base + offsets[last])
    if at <= position:
        at, following = position, first
    elif growing is None and at < size_bytes and not _begins(segment, fd, at, following):
        return None
    # The batches between two index entries take less than one index interval.
    # So if the next index entry is after the goal, a large range leaves out the last batches.
    # A large range then ends at the last index entry before the goal.
    is_next_after = 0 <= last < len(offsets) - 1 and positions[last + 1] > goal
    least_bytes = WALKED_INTERVALS * state.config.index_interval_bytes
    if at == position or not is_next_after or max_bytes < least_bytes:
        at, following = _walk_on(segment, fd, at, following, goal, end)
    if at == position:  # the first batch is larger than `max_bytes`, or extends beyond `end`
        at, following = _walk_on(segment, fd, at, following, sound_end, end, most=1)
    return None if at == position else (position, at - position, first, following)


def _begins(segment: Segment, fd: int, position: int, base_offset: int) -> bool:
    """Check that the batch with this base offset begins at a position from an index file."""
    with call(segment.directory):
        head = files.pread(fd, PREFIX_BYTES, position)
    return len(head) == PREFIX_BYTES and bool(unpack_prefix(head)[0] == base_offset)


def _batch_with(
    segment: Segment, fd: int, position: int, end: int, offset: int
) -> tuple[int, int] | None:
    """Find the batch with an offset, or the next batch after a gap.

    Return the position and the base offset of this batch.
    """
    while position < end:
        with call(segment.directory):
            data = files.read_up_to(fd, min(WALK_BYTES, end - position), position)
        at = 0
        while (header := _header_at(data, at)) is not None:
            if header.last_offset >= offset:
                return position + at, header.base_offset
            at += header.size_bytes
        if not at:
            return None
        position += at
    return None


def _walk_on(
    segment: Segment, fd: int, position: int, offset: int, goal: int, end: int, most: int = 2**31
) -> tuple[int, int]:
    """Step over whole batches up to a position and an offset; return the next batch's place.

    The place consists of the position and the base offset of that batch.
    """
    window_bytes = layouts.HEADER_BYTES_MAX  # usually, the next batch ends beyond `goal`
    while most and goal - position >= PREFIX_BYTES:
        with call(segment.directory):
            data = files.read_up_to(fd, min(window_bytes, goal - position), position)
        at, window_bytes = 0, WALK_BYTES
        while most and (header := _header_at(data, at)) is not None:
            if position + at + header.size_bytes > goal or header.last_offset >= end:
                return position + at, offset
            at, offset, most = at + header.size_bytes, header.last_offset + 1, most - 1
        if not at:
            break
        position += at
    return position, offset


def _header_at(data: bytes, at: int) -> BatchHeader | None:
    """Read the header of a batch; return None if the buffer does not contain the whole header."""
    if at + layouts.HEADER_BYTES_MAX > len(data) and not layouts.has_header(memoryview(data)[at:]):
        return None
    return layouts.read_header(data, at)


def _verify(
    state: Replica, segment: Segment, fd: int, offset: int, max_bytes: int, end: int
) -> Place | None:
    """Read and verify batches, and mark them as sound; return None if no batch is in the range.

    Raises:
        CorruptRecordBatchError: the first batch is damaged. If a later batch is damaged, the range
            ends before that batch.
    """
    taken = _Taken(offset, max_bytes, end)
    _take_sound_run(state, segment, fd, taken)
    if not taken.size_bytes:  # the first batch follows a gap or is damaged, or the index is wrong
        taken = _Taken(offset, max_bytes, end)
        try:
            for _, start, run in Cursor(segment, offset, state.environment).runs(WINDOW_BYTES):
                if not taken.take(run, start):
                    break
        except CorruptRecordBatchError:
            if not taken.size_bytes:
                raise
    if not taken.size_bytes:
        return None
    if not segment.inode:  # this process owns the file, so no other process changes the bytes
        segment.mark_sound(taken.position, taken.position + taken.size_bytes)
    return taken.position, taken.size_bytes, taken.first_offset, taken.next_offset


def _take_sound_run(state: Replica, segment: Segment, fd: int, taken: _Taken) -> None:
    """Take the contiguous batches that begin at an index entry; read each byte only once."""
    size_bytes, index = segment.size_bytes, segment.offset_index(state.environment)
    entry = index.lookup(taken.offset - segment.base_offset)
    if entry < 0:
        return
    position = index.positions[entry]
    expected = segment.base_offset + index.offsets[entry]
    while True:
        # Before the first wanted batch, up to one index interval of batches is skipped.
        goal = taken.goal if taken.size_bytes else position + taken.max_bytes + WALK_BYTES
        size = min(goal - position, size_bytes - position, WINDOW_BYTES)
        if size < BATCH_BYTES_MIN:
            return
        with call(segment.directory):
            data = files.read_up_to(fd, size, position)
        if not layouts.has_header(data):
            return
        bits = segment.verified_up_to(position + len(data))
        check = layouts.sound_run_of(data)
        run, used, expected = check(memoryview(data), 0, expected, expected, position, bits)
        if not run or not taken.take(run, position) or size < WINDOW_BYTES:
            return
        position += used
        del data, run  # only one window is in memory; one window fits into a core's cache


class _Taken:
    """The batches that were verified so far for one range."""

    def __init__(self, offset: int, max_bytes: int, end: int) -> None:
        self.offset = offset
        self.max_bytes = max_bytes
        self.end = end
        self.position = self.goal = -1
        self.size_bytes = 0
        self.first_offset = self.next_offset = -1

    def take(self, run: list[tuple[int, BatchHeader]], start: int) -> bool:
        """Take the wanted, contiguous batches of a run; return False after the last wanted batch.

        Args:
            start: the position of a window in the file; the run is in this window.
        """
        for at, header in run:
            if header.last_offset < self.offset:
                continue
            if self.position < 0:
                self.position = start + at
                self.goal = self.position + self.max_bytes
                self.first_offset = header.base_offset
            last_at, last = run[-1]
            is_next = start + at == self.position + self.size_bytes
            run_end = start + last_at + last.size_bytes
            if is_next and run_end <= self.goal and last.last_offset < self.end:  # usually all
                self.size_bytes = run_end - self.position
                self.next_offset = last.last_offset + 1
                return True
            is_large = start + at + header.size_bytes > self.goal and self.size_bytes > 0
            if not is_next or is_large or header.last_offset >= self.end:
                return False
            self.size_bytes += header.size_bytes
            self.next_offset = header.last_offset + 1
        return True
