"""Compact a log: find the latest offset of each key, then write segments without older records.

The segments are divided into groups, beginning at the start of the log. For each group, a new
segment is written, and replaces the group. The next group is handled only after this replacement.
So a tombstone is removed only after all older records of its key were removed durably. If a group's
new segment cannot be written, or cannot replace the group, the compaction ends.

Only flushed records are compacted. The active segment is never compacted. A repair ends a
compaction. A truncation also ends a compaction if it drops records whose keys were read. The
reason: if the newest record of a key is dropped, an older record of the key must stay.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logstore.disk import bulk, files
from logstore.disk.calls import SYNCING, call
from logstore.disk.documents.fields import OFFSET_MAX
from logstore.errors import LogStoreError
from logstore.format import layouts, steps
from logstore.format.columnar.columns import Buffer
from logstore.log.compaction.cleaner import Cleaner, LastBatch, note
from logstore.log.compaction.latest_offsets import LatestOffsets
from logstore.log.compaction.replacement import Replacement, put_in_place
from logstore.log.compaction.rules import IsAborted, Rules
from logstore.log.compaction.schedule import Plan, Policy, SegmentFacts, groups, plan
from logstore.log.compaction.segment_windows import last_header, windows
from logstore.log.compaction.window import Window
from logstore.log.metadata import Cleaned
from logstore.log.producers.stability import kept_last_stable_offset
from logstore.log.read.cursor import corrupt
from logstore.log.read.transactions import Decided, decided, is_aborted
from logstore.log.segments.cache import Handle
from logstore.log.segments.listing import CLEANED_SUFFIX
from logstore.log.segments.scan import Scan
from logstore.log.segments.search import magic_of
from logstore.log.segments.segment import Segment
from logstore.log.write.flush import hidden_failure, set_metadata
from logstore.log.write.hung_locks import held
from logstore.log.write.rules import NEVER

if TYPE_CHECKING:
    from logstore.log.state import LogState

TABLE_BYTES = 64 << 20
WRITEBACK_BYTES = 8 << 20
LOCK_SECONDS = 0.1
HORIZON_MS_MAX = OFFSET_MAX  # the largest number allowed in `partition.metadata`

# A function that is called after each part of the work, with the number of bytes read and written.
# The function may sleep, and may raise an error.
Pace = Callable[[int], None]


class CompactionReport(NamedTuple):
    """The result of a compaction.

    Attributes:
        records_read, bytes_read: the records and bytes of the segments that were read.
        records_kept, bytes_kept: the records and bytes in the new segments.
        segments_replaced, segments_made: how many segments were replaced, and how many new segments
            replaced them.
        clean_end_offset: all records before this offset are compacted.
        is_complete: False if a truncation, a repair, a move or a change of `cleanup_policy` ended
            the compaction early, so that the log must be compacted again.
    """

    topic: str
    partition: int
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    segments_replaced: int = 0
    segments_made: int = 0
    clean_end_offset: int = 0
    is_complete: bool = True

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition}: {self.records_kept} of {self.records_read} records "
            f"and {self.bytes_kept} of {self.bytes_read} bytes are left; {self.segments_made} new "
            f"segments replace {self.segments_replaced}; compacted up to offset "
            f"{self.clean_end_offset}{'' if self.is_complete else ', then interrupted'}"
        )


class _ChangedError(Exception):
    """Signal that a compaction ended because of a truncation, a repair, a move or a new policy.

    This exception never reaches a user.
    """


def plan_of(state: LogState, stable_offset: int | None = None) -> Plan:
    """Plan the next compaction of a log.

    Args:
        stable_offset: no record at or after this offset is compacted. The default is the smallest
            of the recovery point, the high watermark and the last stable offset.

    Raises:
        LogStoreError: the log is closed or unavailable.
        OSError: the disk could not read the time of a segment's first batch.
    """
    end = stable_offset
    if end is None:
        kept = kept_last_stable_offset(state)
        end = min(state.recovery_point, state.high_watermark)
        end = end if kept is None else min(end, kept)
    config, segments, cleaned = state.config, state.segments, state.metadata.cleaned
    asks_age = config.max_compaction_lag_ms is not None
    facts = [
        SegmentFacts(
            one.base_offset,
            one.end_offset,
            one.size_bytes,
            0,
            0,
            _oldest_ms(state, one) if asks_age and one.end_offset > cleaned.end_offset else None,
            one.max_timestamp,
        )
        for one in segments
    ]
    return plan(
        facts,
        clean_end_offset=cleaned.end_offset,
        stable_offset=end,
        policy=Policy(
            config.min_cleanable_dirty_ratio,
            config.min_compaction_lag_ms,
            config.max_compaction_lag_ms,
        ),
        now_ms=state.now_ms(),
        horizon_ms=None if state.keeps_deletions else cleaned.horizon_ms,
    )


def _oldest_ms(state: LogState, segment: Segment) -> int | None:
    try:
        handle = segment.handle(state.environment) if segment.size_bytes else None
    except FileNotFoundError:
        if not segment.is_dropped:
            raise
        return None  # retention or a move has just removed the segment
    if handle is None:
        return None
    head = files.read_up_to(handle.fd, layouts.HEADER_BYTES_MAX, 0)
    return layouts.read_header(head, 0).max_timestamp if layouts.has_header(head) else None


def compact(
    state: LogState, pace: Pace = lambda _: None, table_bytes: int = TABLE_BYTES
) -> CompactionReport:
    """Compact a log now, within the limits of its configuration; see `Log.compact`."""
    if not state.config.is_compacted:
        raise ValueError(
            f"cleanup_policy of {state.name} is {state.config.cleanup_policy!r}: set it to "
            "'compact' or 'compact,delete' first"
        )
    while not state.compacting.acquire(timeout=LOCK_SECONDS):
        state.check()
    try:
        return Compaction(state, pace, table_bytes).run()
    finally:
        state.compacting.release()


class Compaction:
    """One compaction of a log; the caller must hold `state.compacting`."""

    def __init__(self, state: LogState, pace: Pace, table_bytes: int) -> None:
        self._state, self._pace, self._table_bytes = state, pace, table_bytes
        self._noted_end = 0  # the records before this offset decide which records are removed
        with state.lock:
            state.cut_offset = NEVER
        self._log_dir, self._directory = state.log_dir, state.directory
        self._segments = {one.base_offset: one for one in state.segments}
        self._report = CompactionReport(state.topic, state.partition)
        self._horizon_ms: int | None = None

    def run(self) -> CompactionReport:
        """Compact the log. Raises LogStoreError, and any error that the `pace` function raises."""
        try:
            self._run()
        except _ChangedError:
            self._report = self._report._replace(is_complete=False)
        except OSError as error:
            is_gone = isinstance(error, FileNotFoundError) and self._is_removed()
            if not is_gone:
                raise self._failed(error) from error
            self._report = self._report._replace(is_complete=False)
        return self._report._replace(clean_end_offset=self._state.metadata.cleaned.end_offset)

    def _run(self) -> None:
        state = self._state
        state.check_writable()
        transactions = decided(state)
        stable = min(state.recovery_point, state.high_watermark, transactions.last_stable_offset)
        damage = transactions.damage
        if damage is None or damage[0] >= plan_of(state).end_offset:
            self._compact_until(stable, transactions)
            return
        self._compact_until(min(stable, damage[0]), transactions)
        raise damage[1]

    def _compact_until(self, stable: int, transactions: Decided) -> None:
        """Compact the segments before an offset."""
        state = self._state
        planned, keeps = plan_of(state, stable), state.keeps_deletions
        horizon_ms = state.metadata.cleaned.horizon_ms
        has_expired = horizon_ms is not None and horizon_ms <= state.now_ms() and not keeps
        if not planned.segments or not (planned.dirty_bytes or has_expired):
            return
        # Make a copy, because readers change the dict.
        has_events = any(one.events for one in list(state.transaction_events.values()))
        self._noted_end = state.log_end_offset if has_events else planned.end_offset
        if any(one.base_offset not in self._segments for one in planned.segments):
            raise _ChangedError
        aborted = partial(is_aborted, transactions.aborted)
        latest, kept_empty = self._note(planned, aborted)
        rules = Rules(
            latest,
            now_ms=state.now_ms(),
            delete_retention_ms=state.config.delete_retention_ms,
            is_aborted=aborted,
            kept_empty=kept_empty,
            keeps_deletions=keeps,
        )
        for group in self._groups(planned, latest.end_offset):
            kept_empty |= self._ends_of(group)
            self._replace(group, rules)
        self._note_cleaned(latest.end_offset)

    def _note(self, planned: Plan, aborted: IsAborted) -> tuple[LatestOffsets, set[int]]:
        """Find the latest offset of each key; also return the end of each producer's last batch."""
        first = planned.first_dirty_offset
        spans = (one.end_offset - max(one.base_offset, first) for one in planned.segments)
        count = sum(span for span in spans if span > 0)
        latest = LatestOffsets(first, self._table_bytes, keys_expected=count)
        producers: dict[int, LastBatch] = {}
        for facts in planned.segments:
            for window in self._windows(self._segments[facts.base_offset]):
                if not steps.run(note(latest, window, aborted, producers)):
                    latest.seal()
                    return latest, {last.last_offset for last in producers.values()}
                self._pace(len(window.data))
        latest.end_offset = planned.end_offset  # the table has the keys of all planned segments
        latest.seal()
        return latest, {last.last_offset for last in producers.values()}

    def _groups(self, planned: Plan, end_offset: int) -> Iterator[list[Segment]]:
        """Divide the segments before an offset into groups; each group becomes one segment."""
        config = self._state.config
        found = groups(
            (self._weighed(one) for one in planned.segments if one.base_offset < end_offset),
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
        )
        for group in found:
            yield [self._segments[one.base_offset] for one in group]

    def _weighed(self, facts: SegmentFacts) -> SegmentFacts:
        """Read a segment's layout and index size from its files, and add them to its facts."""
        segment = self._segments[facts.base_offset]
        magic = magic_of(self._open(segment).fd) if segment.size_bytes else 0
        index_bytes = 0
        with suppress(FileNotFoundError):  # no index was written, because the disk was full
            index_bytes = files.stat(segment.index_path).st_size
        return facts._replace(magic=magic, index_bytes=index_bytes)

    def _ends_of(self, group: Sequence[Segment]) -> set[int]:
        """In Kafka's layout, return a group's last offset: the batch at this offset has to stay."""
        filled = [segment for segment in group if segment.size_bytes]
        if not filled:
            return set()
        last = last_header(filled[-1], self._open(filled[-1]))
        return {last.last_offset} if last.magic == layouts.KAFKA_MAGIC else set()

    # --- one group --------------------------------------------------------------------------------

    def _replace(self, group: list[Segment], rules: Rules) -> None:
        """Write the kept records of a group to a new segment, which then replaces the group."""
        outer = sys.exc_info()[1]
        new, cleaner = Segment(self._directory, group[0].base_offset), Cleaner(rules)
        try:
            handle = Handle(files.replace_file(new.log_path + CLEANED_SUFFIX))
            magic = self._write(group, new, handle, cleaner)
            is_wanted = cleaner.is_changed or len(group) > 1
            self._check()
            replacement = Replacement(group, new, handle, magic, self._noted_end)
            if is_wanted and not put_in_place(self._state, replacement):
                raise _ChangedError
        except BaseException as error:
            hidden = None if isinstance(error, Exception) else hidden_failure(error, outer)
            if hidden is not None:  # the thread was interrupted while it raised a disk error
                self._log_dir.failed(hidden, self._directory)
            raise
        finally:
            with suppress(OSError):  # if the disk fails, the next open of the log removes the file
                files.remove_if_there(new.log_path + CLEANED_SUFFIX)
        self._count(group, cleaner)

    def _write(self, group: list[Segment], new: Segment, handle: Handle, cleaner: Cleaner) -> int:
        """Write the new segment durably, and verify it by reading; return its layout."""
        position = written_back = 0
        for segment in group:
            for window in self._windows(segment):
                parts = steps.run(cleaner.clean(window))
                size_bytes = self._append(handle, parts, position)
                position += size_bytes
                if position - written_back >= WRITEBACK_BYTES:
                    bulk.start_writeback(handle.fd, written_back, position - written_back)
                    written_back = position
                self._pace(len(window.data) + size_bytes)
        position += self._append(handle, cleaner.finish(), position)
        with call(self._directory, SYNCING):
            files.sync_data(handle.fd)
        index, time_index = new.begin_indexes()
        scan = Scan(
            new.base_offset,
            index=index,
            time_index=time_index,
            interval_bytes=self._state.config.index_interval_bytes,
        )
        reason = scan.run(handle.fd, position)
        if reason is not None:
            raise corrupt(
                new, scan.position, f"the new segment of a compaction is damaged: {reason}"
            )
        new.take(scan)
        new.end_offset = max(new.end_offset, group[-1].end_offset)
        return scan.magic

    def _append(self, handle: Handle, parts: list[Buffer], position: int) -> int:
        if not parts:
            return 0
        with call(self._directory):
            return files.write_fully(handle.fd, parts, position)

    def _count(self, group: Sequence[Segment], cleaner: Cleaner) -> None:
        report, horizon_ms = self._report, cleaner.horizon_ms
        self._report = report._replace(
            records_read=report.records_read + cleaner.records_read,
            records_kept=report.records_kept + cleaner.records_kept,
            bytes_read=report.bytes_read + cleaner.bytes_read,
            bytes_kept=report.bytes_kept + cleaner.bytes_written,
            segments_replaced=report.segments_replaced + len(group),
            segments_made=report.segments_made + 1,
        )
        if horizon_ms is not None:
            self._horizon_ms = min(horizon_ms, self._horizon_ms or horizon_ms, HORIZON_MS_MAX)

    def _note_cleaned(self, end_offset: int) -> None:
        """Durably write the offset up to which the log is compacted."""
        state = self._state
        with state.flush_lock, held(state, "flush_lock"):
            state.check_current()
            if self._is_changed():
                raise _ChangedError
            metadata = state.metadata.with_cleaned(Cleaned(end_offset, self._horizon_ms))
            if metadata != state.metadata:
                set_metadata(state, extra=metadata.extra)

    # --- changes of the log during a compaction ---------------------------------------------------

    def _windows(self, segment: Segment) -> Iterator[Window]:
        bound = self._state.environment.record_expansion_bytes_max
        for window in windows(segment, self._open(segment), bound):
            self._check()
            yield window

    def _open(self, segment: Segment) -> Handle:
        return segment.handle(self._state.environment)

    def _is_changed(self) -> bool:
        """Check whether the log moved, need not be compacted, or lost records that were read."""
        state = self._state
        is_elsewhere = state.directory != self._directory
        return state.cut_offset < self._noted_end or is_elsewhere or not state.config.is_compacted

    def _is_removed(self) -> bool:
        return self._is_changed() or any(one.is_dropped for one in self._segments.values())

    def _check(self) -> None:
        if self._is_changed():
            raise _ChangedError
        self._state.check()

    def _failed(self, error: OSError) -> LogStoreError:
        state = self._state
        return self._log_dir.failed(error, self._directory, state.topic, state.partition)
