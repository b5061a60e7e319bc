"""Hold what a broker keeps beside its segments against the batches, in the walk that checks them.

An entry of an offset index leads to the start of a batch, and its offset is the last one of what
was appended there, or by older brokers the first. An entry of a time index is the latest timestamp
up to its offset. An aborted transaction has an entry where its marker stands. Compaction takes
batches and markers away, so where offsets are missing less is expected.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from logstore.disk import files
from logstore.format import kafka_files
from logstore.format.batch import BatchHeader
from logstore.format.kafka_files import AbortedEntry, Fault, Numbers
from logstore.format.kafka_header import CONTROL, TRANSACTIONAL
from logstore.log.report import Problem
from logstore.log.scan import Damage, Scan
from logstore.log.transactions import ABORT, BEGIN, Event, marker_of

if TYPE_CHECKING:
    from logstore.log.kafka_view import KafkaLogView, KafkaSegment

NEVER = 2**63 - 1
EPOCHS_NAME = "leader-epoch-checkpoint"
OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, ABORTED_ENTRY_BYTES = 8, 12, 34


def read_if_there(path: str) -> bytes | None:
    """Read a whole file; None when there is none."""
    try:
        return files.read_file(path)
    except FileNotFoundError:
        return None


class SideScan(Scan):
    """Walk a segment, and hold its indexes against each batch on the way.

    Attributes:
        segment: of a broker's log.
        found: what is wrong in files beside it.
        events: of its transactions.
        is_damaged, is_compacted: batches could not be read; offsets are missing.

    While a broker may write to a segment, or was killed while it did, its indexes may end in zeros,
    and lead behind what was walked over.
    """

    def __init__(self, segment: KafkaSegment, limit_offset: int, is_growing: bool) -> None:
        super().__init__(segment.base_offset, limit_offset=limit_offset)
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
        self._latest_full = -1  # as max_timestamp, without batches that compaction emptied
        self._entry = self._time_entry = 0
        self._position_wanted = self._offset_wanted = self._time_offset_wanted = NEVER
        self._want()
        self._want_time()

    def _entries(
        self, path: str, read: Callable[[bytes, bool], tuple[Numbers, Numbers, Fault | None]]
    ) -> tuple[Numbers, Numbers]:
        one, other, fault = read(read_if_there(path) or b"", self._is_growing)
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
        """Walk up to `end`, as any scan does."""
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

    # --- the offset index -------------------------------------------------------------------------

    def _want(self) -> None:
        is_there = self._entry < len(self._positions)
        self._position_wanted = int(self._positions[self._entry]) if is_there else NEVER

    def _tell_entry(self, number: int, reason: str) -> None:
        self._tell(self.segment.index_path, number * OFFSET_ENTRY_BYTES, reason)

    def _meet(self, header: BatchHeader, position: int) -> None:
        """Look at the entries that lead to a batch or to before it."""
        while self._position_wanted < position:
            reason = f"no batch begins at position {self._position_wanted}, where the entry leads"
            self._tell_entry(self._entry, reason)
            self._entry += 1
            self._want()
        if self._position_wanted > position:
            return
        number = self._entry
        if self._offset_wanted != NEVER:
            reason = f"offset {self._offset_wanted} does not stand where the entry leads"
            self._tell_entry(number - 1, reason)
        self._offset_wanted = self.base_offset + int(self._offsets[number])
        if self._offset_wanted == header.base_offset:  # as brokers before 2.0 wrote it
            self._offset_wanted = NEVER
        self._entry += 1
        self._want()

    def _end_entry(self, header: BatchHeader, is_full: bool) -> None:
        """Look at an entry's offset: it is the last one of a batch, if that lacks no records."""
        wanted, self._offset_wanted = self._offset_wanted, NEVER
        if wanted < header.base_offset or (is_full and wanted < header.last_offset):
            self._tell_entry(self._entry - 1, f"offset {wanted} is not the last one of a batch")

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
                reason = f"{said} is not the latest timestamp, or not of offset {wanted}"
                self._tell_time(self._time_entry, reason)
            self._time_entry += 1
            self._want_time()

    def _tell_time(self, number: int, reason: str) -> None:
        self._tell(self.segment.time_index_path, number * TIME_ENTRY_BYTES, reason)

    # --- damage, and the end ----------------------------------------------------------------------

    def skip_damage(self, fd: int, end: int, reason: str) -> Damage:
        """Go on behind damage; what leads into it is not held against the indexes."""
        damage = super().skip_damage(fd, end, reason)
        self.is_damaged = True
        while self._position_wanted < self.position:
            self._entry += 1
            self._want()
        self._offset_wanted = NEVER
        return damage

    def finish(self) -> None:
        """Look at the entries that lead behind what was walked over."""
        if self.is_damaged or self._is_growing:
            return
        if self._position_wanted != NEVER:
            reason = f"position {self._position_wanted} is behind the segment's end"
            self._tell_entry(self._entry, reason)
        if self._offset_wanted != NEVER:
            reason = f"offset {self._offset_wanted} is behind the segment's end"
            self._tell_entry(self._entry - 1, reason)
        if self._time_offset_wanted != NEVER:
            reason = f"offset {self._time_offset_wanted} is behind the segment's end"
            self._tell_time(self._time_entry, reason)
        elif self.batches:
            self._check_last_time()

    def _check_last_time(self) -> None:
        """Look for the entry that a broker writes when a segment grows no more."""
        said = int(self._times[-1]) if len(self._times) else -1
        allowed = (self.max_timestamp, self._latest_full)
        is_there = read_if_there(self.segment.time_index_path) is not None
        if is_there and said not in allowed and not self.found:
            reason = f"the entry of the segment's latest timestamp, {allowed[0]}, is missing"
            self._tell_time(len(self._times), reason)


# --- what stands beside all segments --------------------------------------------------------------


def check_aborted(scans: list[SideScan]) -> list[Problem]:
    """Hold each `.txnindex` against the markers in the log."""
    problems: list[Problem] = []
    begun: dict[int, int] = {}
    is_whole = bool(scans) and scans[0].base_offset == 0
    for scan in scans:
        path = scan.segment.aborted_index_path
        ended: dict[int, AbortedEntry | None] = {}
        for kind, producer_id, offset in scan.events:
            if kind == BEGIN:
                begun.setdefault(producer_id, offset)
                continue
            first = begun.pop(producer_id, None)
            stable = min([offset + 1, *begun.values()])
            is_aborted = kind == ABORT and first is not None
            entry = AbortedEntry(producer_id, first or 0, offset, stable)
            ended[offset] = entry if is_aborted else None
        is_whole = is_whole and not (scan.is_damaged or scan.is_compacted)
        data = read_if_there(path)
        expected = [entry for entry in ended.values() if entry is not None]
        if data is None:
            if expected and is_whole and read_if_there(scan.segment.index_path) is not None:
                reason = f"there is no such file, and {len(expected)} transactions were aborted"
                problems.append(_beside(path, 0, reason, scan))
            continue
        entries, fault = kafka_files.aborted_entries(data)
        if fault is not None:
            problems.append(_beside(path, fault.position, fault.reason, scan))
        for number, entry in enumerate(entries):
            reason = _disagrees(entry, ended, scan, is_whole)
            if reason:
                problems.append(_beside(path, number * ABORTED_ENTRY_BYTES, reason, scan))
        if is_whole and fault is None and len(entries) < len(expected):
            reason = f"{len(expected)} transactions were aborted, {len(entries)} are listed"
            problems.append(_beside(path, len(data), reason, scan))
    return problems


def _beside(path: str, position: int, reason: str, scan: SideScan) -> Problem:
    return Problem(path, position, position, reason, scan.base_offset, scan.base_offset)


def _disagrees(
    entry: AbortedEntry, ended: dict[int, AbortedEntry | None], scan: SideScan, is_whole: bool
) -> str:
    expected = ended.get(entry.last_offset)
    if not scan.base_offset <= entry.last_offset < scan.offset and not scan.is_damaged:
        return f"offset {entry.last_offset}, where the transaction ended, is not in the segment"
    if is_whole and expected is None:
        return f"no transaction was aborted at offset {entry.last_offset}"
    if expected is None or entry == expected:
        return ""
    if is_whole or entry.producer_id != expected.producer_id:
        return f"the log says {tuple(expected)}, not {tuple(entry)}"
    return ""


def check_epochs(log: KafkaLogView, scans: list[SideScan]) -> list[Problem]:
    """Hold the leader epochs of the batches, outside Kafka's checksum, against the checkpoint."""
    path = os.path.join(log.directory, EPOCHS_NAME)
    data = read_if_there(path)
    entries, reason = ([], "") if data is None else kafka_files.epoch_entries(data)
    size = len(data or b"")
    if reason:
        return [Problem(path, 0, size, reason, 0, 0)]
    problems, latest = [], -1
    for scan in scans:
        for epoch, offset in scan.epochs:
            reason = ""
            if epoch < latest and epoch != -1:
                reason = f"offset {offset} is of leader epoch {epoch}, behind one of {latest}"
                problems.append(Problem(scan.segment.log_path, 0, 0, reason, offset, offset))
            latest = epoch if epoch != -1 else latest
            known = [row[0] for row in entries if row[1] <= offset] or [-1]
            # The file is written soon after the first batch of an epoch, and loses what is deleted.
            is_late = not entries or (epoch > entries[-1][0] and not log.was_stopped)
            if epoch == -1 or reason or is_late or offset < log.log_start_offset:
                continue  # -1: of a broker that knew no leader epochs yet
            if known[-1] != epoch:
                reason = f"offset {offset} is of leader epoch {epoch} in the log, {known[-1]} here"
                problems.append(Problem(path, 0, size, reason, offset, offset))
    return problems


def check_snapshots(directory: str) -> list[Problem]:
    """Check each snapshot of the producers' state."""
    problems = []
    for entry in sorted(files.entries(directory)):
        stem, _, suffix = entry.name.partition(".")
        if suffix != "snapshot" or not (stem.isdigit() and len(stem) == 20):
            continue
        path = os.path.join(directory, entry.name)
        data = read_if_there(path)
        fault = None if data is None else kafka_files.snapshot_fault(data, int(stem))
        if fault is not None:
            position, reason = fault
            problems.append(Problem(path, position, position, reason, int(stem), int(stem)))
    return problems


def check_files(log: KafkaLogView, scans: list[SideScan]) -> list[Problem]:
    """Give what is wrong in the files beside a log's segments, which were all walked over."""
    for scan in scans:
        scan.finish()
    problems = [problem for scan in scans for problem in scan.found]
    problems += check_aborted(scans) + check_snapshots(log.directory)
    return problems + check_epochs(log, scans)
