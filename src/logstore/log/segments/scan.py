"""Walk over the batches of a segment file, check every batch, and rebuild the indexes.

Recovery, verification and the rebuilding of an index all use this walk. The walk reads windows with
`pread`, and often releases the interpreter's lock (docs/adr/0006).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from logstore.disk import files
from logstore.format import layouts
from logstore.format.batch import WrongMaxTimestampError
from logstore.format.batch_parts import BatchHeader
from logstore.format.columnar import record_batch as columnar
from logstore.format.layouts import framed_header
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES, PREFIX_BYTES, unpack_prefix
from logstore.log.segments.offset_index import OffsetIndex
from logstore.log.segments.search import find_batch, magic_of, whole_at
from logstore.log.segments.time_index import TimeIndex

if TYPE_CHECKING:
    from logstore.format.kafka.sound import SoundHeaders

# Other threads run while a window is read, and after each YIELD_BATCHES batches of a window.
# A batch longer than a window is hashed in one call, without the interpreter's lock.
# A smaller YIELD_BATCHES would make the walk too slow.
# A yield costs up to 77 us, as much as hashing 1 MiB.
WINDOW_BYTES = 1 << 20  # this size fits into the caches of a core
YIELD_BATCHES = 32
# After a batch of at least this size, a walk without checksums reads only the next batch's header.
STRIDE_BYTES = 16 << 10
SEGMENT_OFFSETS_MAX = 2**32  # an index entry's offset has 32 bits

NOTHING = memoryview(b"")
Progress = Callable[[int], None]  # this is called with the number of bytes done since the last call


class Damage(NamedTuple):
    """Bytes in a segment that are not a whole, undamaged batch.

    Attributes:
        position, end_position: where the damaged bytes begin and end.
        offset, end_offset: the range of lost offsets; `end_offset` is None if no batch follows.
        max_timestamp: if a wrong `max_timestamp` is the only damage of a batch, the right value;
            otherwise None.
    """

    position: int
    end_position: int
    offset: int
    end_offset: int | None
    reason: str
    max_timestamp: int | None = None


class Scan:
    """The state of a walk over a segment; all bytes before `position` were checked.

    Attributes:
        position: the first byte that was not checked.
        good_end: where the last whole batch ends.
        offset: the base offset that the next batch must have.
        limit_offset: the next segment's base offset; all batches must end before this offset.
        index, time_index: the walk adds entries to these indexes; None if no index is needed.
        is_checked: whether checksums are verified, not only the sizes and offsets of batches.
        expansion_bytes_max: the most memory for a decoded batch; None if records are not checked.
    """

    def __init__(
        self,
        base_offset: int,
        *,
        index: OffsetIndex | None = None,
        time_index: TimeIndex | None = None,
        interval_bytes: int = 4096,
        limit_offset: int = 2**63,
        expansion_bytes_max: int | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.position = self.good_end = 0
        self.offset = base_offset
        self.limit_offset = limit_offset
        self._reach_offset = base_offset + SEGMENT_OFFSETS_MAX
        self.expansion_bytes_max = expansion_bytes_max
        self._refused: tuple[BatchHeader, Exception] | None = None
        self.index = index
        self.time_index = time_index
        self.interval_bytes = interval_bytes
        self.indexed_position = index.positions[-1] if index else -interval_bytes
        self.max_timestamp = -1
        self.last_epoch = -1
        self.epochs: list[tuple[int, int]] = []
        self.last_position = 0
        self.magic = 0  # the layout of the batches; 0 before the first batch
        self.is_checked = True
        self.batch_bytes = 0  # the size of the last batch
        self.batches = self.records = 0
        self.has_producers = False  # whether any batch has the id of a producer

    def run(
        self, fd: int, end: int, progress: Progress | None = None, pause_at: int = 2**63
    ) -> str | None:
        """Walk up to `end`; return None, or the reason if the walk stopped before `end`.

        Args:
            pause_at: stop after the window that reaches this position; call again to continue.

        Raises:
            OSError: the disk could not read the bytes.
        """
        while self.position < min(end, pause_at):
            started = self.position
            if self.is_checked or self.batch_bytes < STRIDE_BYTES or not self._stride(fd, end):
                data = files.read_up_to(fd, min(WINDOW_BYTES, end - started), started)
                reason = self._window(memoryview(data), fd)
            else:
                reason = None
            if reason is not None and self.position > started:
                # the next window begins with the batch that is cut by the end of this window
                reason = None
            elif reason is not None and started + PREFIX_BYTES <= end:
                reason = self._single(fd, end)  # the batch is longer than a window, or damaged
            if progress is not None:
                progress(self.position - started)
            if reason is None and self.position == started:
                reason = "the file is shorter than it was"
            if reason is not None:
                return reason
        return None

    def _stride(self, fd: int, end: int) -> bool:
        """Step over a batch by its header; return False if the batch needs a full check."""
        head = files.read_up_to(fd, layouts.HEADER_BYTES_MAX, self.position)
        header = framed_header(head, 0, end - self.position, self.offset)
        return header is not None and self._take(header, fd) is None

    def _single(self, fd: int, end: int) -> str | None:
        """Check a single batch, of any size."""
        started = self.position
        head = files.read_up_to(fd, PREFIX_BYTES, started)
        if len(head) < PREFIX_BYTES:
            return f"only {len(head)} bytes are left"
        size_bytes = unpack_prefix(head)[1] + LENGTH_OVERHEAD_BYTES
        size_bytes = min(max(size_bytes, columnar.OVERHEAD_BYTES), end - started)
        reason = self._window(memoryview(files.read_up_to(fd, size_bytes, started)), fd)
        return None if self.position > started else reason

    def _window(self, data: memoryview, fd: int) -> str | None:
        """Walk over the whole batches of a window; if the walk stops early, return the reason."""
        start, end, quiet = self.position, len(data), 0
        self._refused = None
        if self.is_checked:
            self._together(data)
        at = self.position - start
        sound_header = layouts.sound_header_of(data, at) if self.is_checked else framed_header
        while at < end:
            header = sound_header(data, at, end, self.offset)
            if header is None:
                return layouts.fault(data, at, self.offset) or "there is no whole batch here"
            if (reason := self._take(header, fd, data, at)) is not None:
                return reason
            at += header.size_bytes
            quiet += 1
            if quiet == YIELD_BATCHES:
                time.sleep(0)
                quiet = 0
        return None

    def _together(self, data: memoryview) -> None:
        """Walk over the small Kafka batches at the start of a window, many at a time."""
        start = self.position
        while (
            found := layouts.sound_headers(data, self.position - start, self.offset)
        ) is not None:
            limit_offset = min(self.limit_offset, self._reach_offset)
            count = int(np.searchsorted(found.last_offsets, limit_offset))
            # If the last batch follows a gap in the offsets, `_take` also reads the next batch.
            if count == len(found.last_offsets):
                before = found.last_offsets[-2] if count > 1 else self.offset - 1
                count -= int(found.base_offsets[-1]) != before + 1
            found = found.until(count)
            if count and self.expansion_bytes_max is not None:
                count = self._readable(found)
                found = found.until(count)
            if not count or not self._note_many(found, start):
                return
            if self.position > start:
                time.sleep(0)
            self.position = self.good_end = start + int(found.positions[-1])

    def _note_many(self, found: SoundHeaders, start: int) -> bool:
        """Take many batches at once. A subclass may return False; then each batch is checked alone.

        Args:
            start: where the window of the batches begins in the file.
        """
        latest = np.maximum.accumulate(found.max_timestamps)
        positions, base_offsets = found.positions[:-1] + start, found.base_offsets
        if self.index is not None:
            before = np.maximum(np.concatenate(([-1], latest[:-1])), self.max_timestamp)
            self._index_many(positions.tolist(), base_offsets.tolist(), before.tolist())
        self.max_timestamp = max(self.max_timestamp, int(latest[-1]))
        epochs = found.leader_epochs
        for number in np.flatnonzero(np.diff(epochs, prepend=self.last_epoch)).tolist():
            self.epochs.append((int(epochs[number]), int(base_offsets[number])))
        self.last_epoch, self.magic = int(epochs[-1]), layouts.KAFKA_MAGIC
        self.last_position = int(positions[-1])
        self.offset = int(found.last_offsets[-1]) + 1
        self.batches += len(epochs)
        self.records += int(found.record_counts.sum())
        self.has_producers |= int(found.producer_ids.max()) >= 0
        return True

    def _index_many(self, positions: list[int], offsets: list[int], times: list[int]) -> None:
        """Add index entries for batches; `times` has the largest timestamp before each batch."""
        assert self.index is not None
        for position, base_offset, time_before in zip(positions, offsets, times, strict=True):
            if position - self.indexed_position >= self.interval_bytes:
                self.index.append(base_offset - self.base_offset, position)
                if self.time_index is not None and position:
                    self.time_index.append(time_before, base_offset - self.base_offset)
                self.indexed_position = position

    def _readable(self, found: SoundHeaders) -> int:
        """Count the batches before the first batch whose records cannot be read."""
        data, starts = found.data, found.positions[:-1].tolist()
        run = [(at, layouts.read_header(data, at)) for at in starts]
        assert self.expansion_bytes_max is not None
        if layouts.records_fault(data, run, self.expansion_bytes_max) is None:
            return len(run)
        faults = (layouts.records_fault(data, [each], self.expansion_bytes_max) for each in run)
        return next((number for number, fault in enumerate(faults) if fault), len(run))

    def _take(
        self, header: BatchHeader, fd: int, data: memoryview = NOTHING, at: int = 0
    ) -> str | None:
        """Step over a whole batch; if the batch cannot be valid at this place, return the reason.

        Args:
            data: bytes with the batch at index `at`; if empty, the records are not checked.
        """
        position = self.position
        if header.base_offset != self.offset and not self._fits(header, position, fd):
            return f"the batch's base offset {header.base_offset} is not the expected offset"
        if self._is_beyond(header):
            return f"the batch reaches into the next segment, which begins at {self.limit_offset}"
        if self.expansion_bytes_max is not None and len(data):
            fault = layouts.records_fault(data, [(at, header)], self.expansion_bytes_max)
            if fault is not None:
                self._refused = header, fault
                return str(fault)
        self._note(header, position)
        self.position = self.good_end = position + header.size_bytes
        return None

    def _is_beyond(self, header: BatchHeader) -> bool:
        """Check whether the offsets of a batch are impossible in this segment.

        An index entry has 32 bits for an offset. So a columnar batch must begin less than 2^32
        offsets after the segment's base offset. A Kafka batch must also end before this limit,
        because no checksum covers the batch's base offset.
        """
        is_columnar = header.magic == columnar.MAGIC
        reach = header.base_offset if is_columnar else header.last_offset
        return header.last_offset >= self.limit_offset or reach >= self._reach_offset

    def _fits(self, header: BatchHeader, position: int, fd: int) -> bool:
        """Check whether a batch can follow a gap in the offsets; Kafka's compaction leaves gaps."""
        following = files.read_up_to(fd, PREFIX_BYTES, position + header.size_bytes)
        return layouts.comes_before(header.last_offset, following)

    def _note(self, header: BatchHeader, position: int) -> None:
        base_offset, self.magic = header.base_offset, header.magic
        if self.index is not None and position - self.indexed_position >= self.interval_bytes:
            relative_offset = base_offset - self.base_offset
            self.index.append(relative_offset, position)
            if self.time_index is not None and position:
                self.time_index.append(self.max_timestamp, relative_offset)
            self.indexed_position = position
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        if header.leader_epoch != self.last_epoch:
            self.epochs.append((header.leader_epoch, base_offset))
            self.last_epoch = header.leader_epoch
        self.last_position, self.batch_bytes = position, header.size_bytes
        self.offset = header.last_offset + 1
        self.batches += 1
        self.records += header.record_count
        self.has_producers |= header.producer_id >= 0

    def skip_damage(self, fd: int, end: int, reason: str) -> Damage:
        """Move past the damage that stopped the walk: to the next whole batch, or to the end."""
        refused, self._refused = self._refused, None
        if refused is not None:  # the damage is one whole batch with unreadable or wrong contents
            (header, fault), position = refused, self.position
            self.position, self.magic = position + header.size_bytes, header.magic
            self.offset, self.indexed_position = header.last_offset + 1, -self.interval_bytes
            right = fault.max_timestamp if isinstance(fault, WrongMaxTimestampError) else None
            place = position, self.position, header.base_offset, self.offset
            return Damage(*place, reason, right)
        if not self.magic:
            self.magic = magic_of(fd, end)
        found = find_batch(fd, self.position, end, self.magic)
        position, offset = self.position, self.offset
        if found is None:
            self.position = end
            return Damage(position, end, offset, None, reason)
        self.position, next_offset = found
        head = files.read_up_to(fd, layouts.HEADER_BYTES_MAX, self.position)
        header = layouts.read_header(head, 0)
        if offset <= next_offset and not self._is_beyond(header):
            self.offset = next_offset
            # Index the first batch after the damage, unless its base offset may be wrong.
            is_whole = whole_at(fd, position, end, layouts.layout_of(self.magic)) is not None
            is_doubtful = is_whole and self.magic == layouts.KAFKA_MAGIC
            self.indexed_position = self.position if is_doubtful else -self.interval_bytes
            return Damage(position, self.position, offset, next_offset, reason)
        # The offsets of this whole batch do not belong here: the batch is part of the damage.
        self.position += header.size_bytes
        return Damage(position, self.position, offset, offset, reason)
