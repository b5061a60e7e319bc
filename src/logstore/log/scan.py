"""Walk the batches of a segment file, check every one, and rebuild its indexes on the way.

Recovery, verification and the rebuilding of an index are this one walk. It reads through populated
maps (see `disk.mapped`) and gives up the interpreter's lock every fraction of a millisecond.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from logstore.disk import files, mapped
from logstore.format import columnar, layouts
from logstore.format.columnar import Whole
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES, PREFIX_BYTES, unpack_prefix
from logstore.log.offset_index import OffsetIndex
from logstore.log.time_index import TimeIndex

WINDOW_BYTES = 8 << 20
YIELD_BYTES = 2 << 20
YIELD_BATCHES = 32

View = Callable[[int, int, int], "bytes | memoryview"]  # fd, size_bytes, position
Progress = Callable[[int], None]  # called with the bytes done since the last call


class Damage(NamedTuple):
    """Tell of bytes in a segment that are no whole batch.

    Attributes:
        position, end_position: the bytes; the next whole batch or the file's end follows them.
        offset, end_offset: the offsets that are lost; `end_offset` is None when nothing follows.
    """

    position: int
    end_position: int
    offset: int
    end_offset: int | None
    reason: str


class Scan:
    """Hold where a walk stands: everything before `position` was looked at.

    Attributes:
        position: first byte not looked at.
        good_end: where the last whole batch ends.
        offset: the offset that the next batch must begin with.
        limit_offset: where the next segment begins; no batch of this one lies there or behind.
        index, time_index: entries of the batches found, None when nobody wants them.
    """

    def __init__(
        self,
        base_offset: int,
        *,
        index: OffsetIndex | None = None,
        time_index: TimeIndex | None = None,
        interval_bytes: int = 4096,
        view: View = mapped.view,
        limit_offset: int = 2**63,
    ) -> None:
        self.view = view
        self.base_offset = base_offset
        self.position = 0
        self.good_end = 0
        self.offset = base_offset
        self.limit_offset = limit_offset
        self.index = index
        self.time_index = time_index
        self.interval_bytes = interval_bytes
        self.indexed_position = index.positions[-1] if index else -interval_bytes
        self.max_timestamp = -1
        self.last_epoch = -1
        self.epochs: list[tuple[int, int]] = []
        self.last_position = 0
        self.batches = 0
        self.records = 0

    def run(self, fd: int, end: int, progress: Progress | None = None) -> str | None:
        """Walk up to `end`; give why it stopped before, or None when it came there.

        Raises:
            OSError: the disk could not give the bytes.
        """
        while self.position < end:
            size_bytes = min(WINDOW_BYTES, end - self.position)
            started = self.position
            reason = self._window(self.view(fd, size_bytes, started), size_bytes)
            if reason is not None and self.position + PREFIX_BYTES <= end:
                # The batch may only stick out of the window: look at it alone.
                reason = self._single(fd, end)
            if progress is not None:
                progress(self.position - started)
            if reason is None and self.position == started:
                reason = "the file is shorter than it was"
            if reason is not None:
                return reason
        return None

    def _single(self, fd: int, end: int) -> str | None:
        head = files.read_up_to(fd, PREFIX_BYTES, self.position)
        if len(head) < PREFIX_BYTES:
            return f"only {len(head)} bytes are left"
        size_bytes = unpack_prefix(head)[1] + LENGTH_OVERHEAD_BYTES
        available = end - self.position
        size_bytes = min(max(size_bytes, columnar.OVERHEAD_BYTES), available)
        before = self.position
        reason = self._window(self.view(fd, size_bytes, before), size_bytes, limit=1)
        return None if self.position > before else reason

    def _window(
        self, data: bytes | memoryview, size_bytes: int, limit: int = 1 << 62
    ) -> str | None:
        """Walk the whole batches of one window; give what stopped it before its end."""
        at, start, yield_at = 0, self.position, YIELD_BYTES
        size_bytes = min(size_bytes, len(data))
        quiet = 0
        while at < size_bytes and limit:
            batch = columnar.whole_batch(data, at, size_bytes, self.offset)
            if batch is None:
                return layouts.fault(data, at, self.offset) or "no whole batch stands here"
            self._note(batch, start + at)
            at = batch.end
            self.position = self.good_end = start + at
            limit -= 1
            quiet += 1
            if at >= yield_at or quiet >= YIELD_BATCHES:
                time.sleep(0)
                yield_at, quiet = at + YIELD_BYTES, 0
        return None if at >= size_bytes else "more batches follow"

    def _note(self, batch: Whole, position: int) -> None:
        base_offset = self.offset
        if self.index is not None and position - self.indexed_position >= self.interval_bytes:
            relative_offset = base_offset - self.base_offset
            self.index.append(relative_offset, position)
            if self.time_index is not None and position:
                self.time_index.append(self.max_timestamp, relative_offset)
            self.indexed_position = position
        self.max_timestamp = max(self.max_timestamp, batch.max_timestamp)
        if batch.leader_epoch != self.last_epoch:
            self.epochs.append((batch.leader_epoch, base_offset))
            self.last_epoch = batch.leader_epoch
        self.last_position = position
        self.offset = batch.last_offset + 1
        self.batches += 1
        self.records += batch.record_count

    def skip_damage(self, fd: int, end: int, reason: str) -> Damage:
        """Go on behind what stopped the walk: at the next whole batch, or at the end."""
        found = find_batch(fd, self.position, end, self.view)
        position, offset = self.position, self.offset
        if found is None:
            self.position = end
            return Damage(position, end, offset, None, reason)
        self.position, next_offset = found
        if offset <= next_offset < self.limit_offset:
            self.offset = next_offset
            self.indexed_position = -self.interval_bytes  # the first one behind it gets an entry
            return Damage(position, self.position, offset, next_offset, reason)
        # A whole batch of offsets that stand elsewhere in the log: take it out as well.
        head = files.read_up_to(fd, PREFIX_BYTES, self.position)
        self.position += unpack_prefix(head)[1] + LENGTH_OVERHEAD_BYTES
        return Damage(position, self.position, offset, offset, reason)


def find_batch(
    fd: int, position: int, end: int, view: View = mapped.view
) -> tuple[int, int] | None:
    """Find the next whole batch at or behind `position`: where it begins and its base offset."""
    position += -position % columnar.ALIGNMENT
    while position + columnar.OVERHEAD_BYTES <= end:
        data = view(fd, min(WINDOW_BYTES, end - position), position)
        for at in layouts.candidates(data, 0):
            base_offset, length, _, _ = unpack_prefix(data, at)
            size_bytes = length + LENGTH_OVERHEAD_BYTES
            if not columnar.OVERHEAD_BYTES <= size_bytes <= end - position - at:
                continue
            batch = view(fd, size_bytes, position + at)
            if layouts.fault(batch, 0, None) is None:
                return position + at, base_offset
        time.sleep(0)
        if len(data) < 64:
            return None
        # A prefix may lie across the edge of two windows.
        position += max(len(data) - 24, columnar.ALIGNMENT) // 8 * 8
    return None
