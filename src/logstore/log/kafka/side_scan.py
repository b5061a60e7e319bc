"""Walk over a broker's segment, and compare its index files with the batches.

An entry of an offset index leads to the start of a batch. The entry's offset is the last offset of
the append that begins with this batch. Older brokers wrote the first offset of the append, not the
last offset. An entry of a time index has an offset, and the latest timestamp up to that offset.
Compaction removes batches. So if offsets are missing, fewer entries are expected.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from logstore.disk import files
from logstore.format import layouts
from logstore.format.batch_parts import BatchHeader
from logstore.format.kafka import files as kafka_files
from logstore.format.kafka.files import Fault, Numbers
from logstore.format.kafka.header import CONTROL, TRANSACTIONAL
from logstore.format.kafka.sound import SoundHeaders
from logstore.log.kafka.kafka_segment import KafkaSegment
from logstore.log.read.transactions import BEGIN, Event, marker_of
from logstore.log.recovery.report import Problem
from logstore.log.segments.scan import Damage, Scan

NEVER = 2**63 - 1
OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES = 8, 12


def read_if_there(path: str) -> bytes | None:
    """Read a whole file; return None if the file does not exist."""
    try:
        return files.read_file(path, files.LIST_BYTES_MAX)
    except FileNotFoundError:
        return None


def read_or_report(path: str, problems: list[Problem], offset: int) -> bytes | None:
    """Read a whole file; if it is not a regular file or is too large, report it, return None."""
    try:
        return read_if_there(path)
    except files.UnfitError as error:
        problems.append(Problem(path, 0, 0, error.reason, offset, offset))
        return None


class SideScan(Scan):
    """Walks over a segment, and compares each batch with the segment's indexes.

    Attributes:
        segment: a segment of a broker's log.
        found: the damage in the segment's index files.
        events: where the segment's transactions begin and end.
        is_damaged: whether the segment has batches that could not be read.
        is_compacted: whether offsets are missing in the segment.

    A broker may be writing to the segment, or may have been killed while it was writing. During or
    after such a write, the indexes may end in zeros, and may have entries for positions after the
    walked part.
    """

    def __init__(
        self, segment: KafkaSegment, limit_offset: int, is_growing: bool, expansion_bytes_max: int
    ) -> None:
        super().__init__(
            segment.base_offset, limit_offset=limit_offset, expansion_bytes_max=expansion_bytes_max
        )
        self.segment = segment
        self.found: list[Problem] = []
        self.events: list[Event] = []
        self.is_damaged = self.is_compacted = False
        self._open_ids: set[int] = set()
        self._fd = -1
        self._is_growing = is_growing
        self._offsets, self._positions = self._entries(
            segment.index_path, kafka_files.offset_entries
        )
        self._times, self._time_offsets = self._entries(
            segment.time_index_path, kafka_files.time_entries
        )
        self._latest_full = -1  # like `max_timestamp`, but batches without records do not count
        self._entry = self._time_entry = 0
        self._position_wanted = self._offset_wanted = self._time_offset_wanted = NEVER
        self._want()
        self._want_time()

    def _entries(
        self, path: str, read: Callable[[bytes, bool], tuple[Numbers, Numbers, Fault | None]]
    ) -> tuple[Numbers, Numbers]:
        one, other, fault = read(
            read_or_report(path, self.found, self.offset) or b"", self._is_growing
        )
        if fault is not None:
            self._tell(path, *fault)
        return one, other

    def _tell(self, path: str, position: int, reason: str) -> None:
        self.found.append(Problem(path, position, position, reason, self.offset, self.offset))

    def run(
        self,
        fd: int,
        end: int,
        progress: Callable[[int], None] | None = None,
        pause_at: int = 2**63,
    ) -> str | None:
        """Walk up to `end`; see `Scan.run`."""
        self._fd = fd
        return super().run(fd, end, progress, pause_at)

    # --- each batch -------------------------------------------------------------------------------

    def _note(self, header: BatchHeader, position: int) -> None:
        before = self.max_timestamp, self._latest_full
        if header.base_offset != self.offset:
            self.is_compacted = True
        if position >= self._position_wanted:
            self._meet(header, position)
        super()._note(header, position)
        span = header.last_offset - header.base_offset + 1
        self.is_compacted |= header.record_count != span
        if header.record_count:
            self._latest_full = max(self._latest_full, header.max_timestamp)
        if header.last_offset >= self._offset_wanted:
            self._end_entry(header, header.record_count == span)
        if header.last_offset >= self._time_offset_wanted:
            self._check_times(header, before)
        if header.attributes & (TRANSACTIONAL | CONTROL):
            self._note_transaction(header, position)

    def _note_transaction(self, header: BatchHeader, position: int) -> None:
        producer_id = header.producer_id
        if header.attributes & CONTROL:
            data = files.read_up_to(self._fd, header.size_bytes, position)
            kind = marker_of(data, 0, header)
            self._open_ids.discard(producer_id)
            if kind:
                self.events.append(Event(kind, producer_id, header.base_offset))
        elif producer_id not in self._open_ids:
            self._open_ids.add(producer_id)
            self.events.append(Event(BEGIN, producer_id, header.base_offset))

    # --- many batches at once ---------------------------------------------------------------------

    def _note_many(self, found: SoundHeaders, start: int) -> bool:
        """Remember batches if all their index entries are right; otherwise return False."""
        latest = np.maximum.accumulate(np.append(self.max_timestamp, found.max_timestamps))[1:]
        full_times = np.where(found.record_counts > 0, found.max_timestamps, -1)
        latest_full = np.maximum.accumulate(np.append(self._latest_full, full_times))[1:]
        positions = found.positions + start
        spans = found.last_offsets - found.base_offsets + 1
        is_full = found.record_counts == spans
        entries = self._good_entries(found, positions, is_full)
        times = self._good_times(found, latest, latest_full)
        if entries < 0 or times < 0:
            return False
        expected = np.append(self.offset, found.last_offsets[:-1] + 1)
        self.is_compacted |= not is_full.all() or bool((found.base_offsets != expected).any())
        self._latest_full = int(latest_full[-1])
        self._entry, self._time_entry = entries, times
        self._want()
        self._want_time()
        in_transactions = found.attributes & (TRANSACTIONAL | CONTROL)
        for number in np.flatnonzero(in_transactions).tolist():
            header = layouts.read_header(found.data, int(found.positions[number]))
            self._note_transaction(header, int(positions[number]))
        return super()._note_many(found, start)

    def _good_entries(
        self, found: SoundHeaders, positions: Numbers, is_full: NDArray[np.bool_]
    ) -> int:
        """Check the offset index's entries for some batches; return the number of the next entry.

        Returns -1 if any entry may be wrong.
        """
        if self._offset_wanted != NEVER:
            return -1
        end = int(np.searchsorted(self._positions, positions[-1]))
        led_to = self._positions[self._entry : end]
        first = np.searchsorted(positions, led_to)
        wanted = self._offsets[self._entry : end] + self.base_offset
        last = np.searchsorted(found.last_offsets, wanted)
        if not np.array_equal(positions[first], led_to) or bool((last >= len(is_full)).any()):
            return -1
        is_good = (last >= first) & (wanted >= found.base_offsets[last])
        is_good &= (wanted == found.last_offsets[last]) | ~is_full[last]
        return end if is_good.all() and bool((first[1:] > last[:-1]).all()) else -1

    def _good_times(self, found: SoundHeaders, latest: Numbers, latest_full: Numbers) -> int:
        """Check the time index's entries for some batches; return the number of the next entry.

        Returns -1 if any entry may be wrong.
        """
        last_relative = int(found.last_offsets[-1]) - self.base_offset
        end = int(np.searchsorted(self._time_offsets, last_relative, "right"))
        said = self._times[self._time_entry : end]
        wanted = self._time_offsets[self._time_entry : end] + self.base_offset
        at = np.searchsorted(found.last_offsets, wanted)
        is_good = (wanted >= found.base_offsets[at]) & (found.max_timestamps[at] == said)
        is_good &= (said == latest[at]) | (said == latest_full[at])
        return end if is_good.all() else -1

    # --- the offset index -------------------------------------------------------------------------

    def _want(self) -> None:
        is_there = self._entry < len(self._positions)
        self._position_wanted = int(self._positions[self._entry]) if is_there else NEVER

    def _tell_entry(self, number: int, reason: str) -> None:
        self._tell(self.segment.index_path, number * OFFSET_ENTRY_BYTES, reason)

    def _meet(self, header: BatchHeader, position: int) -> None:
        """Check the index entries up to a batch's position: each must point to a batch's start."""
        while self._position_wanted < position:
            reason = (
                f"the entry points to position {self._position_wanted}, but no batch begins there"
            )
            self._tell_entry(self._entry, reason)
            self._entry += 1
            self._want()
        if self._position_wanted > position:
            return
        number = self._entry
        if self._offset_wanted != NEVER:
            reason = (
                f"the entry has offset {self._offset_wanted}, but the batch at its position "
                "does not contain this offset"
            )
            self._tell_entry(number - 1, reason)
        self._offset_wanted = self.base_offset + int(self._offsets[number])
        if self._offset_wanted == header.base_offset:  # brokers before 2.0 wrote the first offset
            self._offset_wanted = NEVER
        self._entry += 1
        self._want()

    def _end_entry(self, header: BatchHeader, is_full: bool) -> None:
        """Check an entry's offset: it must be a batch's last offset, unless records are missing."""
        wanted, self._offset_wanted = self._offset_wanted, NEVER
        if wanted < header.base_offset or (is_full and wanted < header.last_offset):
            self._tell_entry(self._entry - 1, f"offset {wanted} is not the last offset of a batch")

    # --- the time index ---------------------------------------------------------------------------

    def _want_time(self) -> None:
        self._time_offset_wanted = NEVER
        if self._time_entry < len(self._time_offsets):
            relative_offset = int(self._time_offsets[self._time_entry])
            self._time_offset_wanted = self.base_offset + relative_offset

    def _check_times(self, header: BatchHeader, before: tuple[int, int]) -> None:
        while header.last_offset >= self._time_offset_wanted:
            wanted = self._time_offset_wanted
            now = (self.max_timestamp, self._latest_full)
            allowed = before if wanted < header.base_offset else now
            said = int(self._times[self._time_entry])
            is_here = header.max_timestamp == said or wanted < header.base_offset
            if not (said in allowed and is_here) and not self.is_damaged:
                reason = (
                    f"timestamp {said} is not the latest timestamp, or does not belong to "
                    f"offset {wanted}"
                )
                self._tell_time(self._time_entry, reason)
            self._time_entry += 1
            self._want_time()

    def _tell_time(self, number: int, reason: str) -> None:
        self._tell(self.segment.time_index_path, number * TIME_ENTRY_BYTES, reason)

    # --- damage, and the end ----------------------------------------------------------------------

    def skip_damage(self, fd: int, end: int, reason: str) -> Damage:
        """Continue after damage, and do not report index entries that point into the damage."""
        damage = super().skip_damage(fd, end, reason)
        self.is_damaged = True
        while self._position_wanted < self.position:
            self._entry += 1
            self._want()
        self._offset_wanted = NEVER
        return damage

    def finish(self) -> None:
        """Report index entries that point to positions after the walked part."""
        if self.is_damaged or self._is_growing:
            return
        if self._position_wanted != NEVER:
            reason = f"position {self._position_wanted} is after the segment's end"
            self._tell_entry(self._entry, reason)
        if self._offset_wanted != NEVER:
            reason = f"offset {self._offset_wanted} is after the segment's end"
            self._tell_entry(self._entry - 1, reason)
        if self._time_offset_wanted != NEVER:
            reason = f"offset {self._time_offset_wanted} is after the segment's end"
            self._tell_time(self._time_entry, reason)
        elif self.batches:
            self._check_last_time()

    def _check_last_time(self) -> None:
        """Check the last entry of the time index: a broker writes it when a segment is complete."""
        said = int(self._times[-1]) if len(self._times) else -1
        allowed = (self.max_timestamp, self._latest_full)
        is_there = files.exists(self.segment.time_index_path)
        if is_there and said not in allowed and not self.found:
            reason = f"the entry for the segment's latest timestamp, {allowed[0]}, is missing"
            self._tell_time(len(self._times), reason)
