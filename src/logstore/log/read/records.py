"""Read records from the segments of a log: one record by its offset, or a range as batches.

Readers take no lock. A read uses the tuple of segments that exists when the read begins. The read
takes a newer tuple only if a segment is dropped during the read (by a truncation, by retention or
by a move). The read then continues at the same offset. If the batch of a record is already decoded,
`ReadableLog.record_at` returns the record without calling this module.
"""

from __future__ import annotations

from collections.abc import Iterator

from logstore.arguments import whole
from logstore.errors import (
    CorruptRecordBatchError,
    OffsetOutOfRangeError,
    RecordExpansionError,
)
from logstore.format.batch import Record, RecordBatch
from logstore.log.read.cursor import batches, corrupt, load_block
from logstore.log.read.cut import Cut
from logstore.log.replica import Replica
from logstore.log.segments.segment import Block, Segment

BACKWARDS_OFFSETS = 1024  # how many offsets a backward walk decodes at once


def record_in(state: Replica, block: Block, offset: int) -> Record:
    """Give the record at an offset of a decoded block."""
    batch = block.batch_for(offset)
    at = batch.index_of(offset)
    if at >= batch.count or batch.offset_at(at) != offset:
        raise state.out_of_range(offset)
    return batch.record(at, state.topic, state.partition)


def segment_at(state: Replica, offset: int) -> Segment:
    """Return the segment with an offset; look a second time before an error is raised."""
    while True:
        seen = state.view
        try:
            return state.segment_for(offset)
        except CorruptRecordBatchError as error:
            state.look_twice(offset, seen, error)


def record_from_disk(state: Replica, offset: int) -> Record:
    """Read one record, and cache its block. Raises OffsetOutOfRangeError if it does not exist."""
    state.refresh()
    if not state.log_start_offset <= offset < state.log_end_offset:
        raise state.out_of_range(offset)
    while True:
        state.check()
        seen = state.view
        segment = segment_at(state, offset)
        try:
            entry = segment.offset_index(state.environment).lookup(offset - segment.base_offset)
            block = load_block(segment, entry, offset, state.environment)
        except FileNotFoundError as error:
            state.retry(segment, offset, error)
            continue
        except CorruptRecordBatchError as error:
            state.look_twice(offset, seen, error)
            continue
        except OSError as error:
            state.take_failure(segment, offset, error)
            continue
        if offset >= block.end_offset:
            raise state.out_of_range(offset)
        return record_in(state, block, offset)


def batches_of(
    state: Replica,
    offset: int | None,
    end_offset: int | None,
    *,
    window_bytes: int | None = None,
    zero_copy: bool = False,
) -> Iterator[RecordBatch]:
    """Check a range of offsets immediately, and then yield its records as batches.

    Records that are appended after the call are left out.

    Args:
        offset: the first offset of the range; None means the log start.
        end_offset: the offset after the range; None means the log end at the call.
        window_bytes: how many bytes are read at once; None means the size that suits a scan.
    """
    state.check()
    state.refresh()
    cut = state.cut
    start = state.log_start_offset if offset is None else whole(offset, "offset")
    end = state.log_end_offset if end_offset is None else whole(end_offset, "end_offset", 0)
    state.check_readable(start, max(start, end) if end_offset is not None else start)
    return _Walk(state, start, end, cut).run(window_bytes, zero_copy=zero_copy)


def newest_first(state: Replica) -> Iterator[Record]:
    """Yield all records that exist at the time of the call, the last record first."""
    state.check()
    state.refresh()
    return _backwards(state, state.log_start_offset, state.log_end_offset)


def _backwards(state: Replica, start: int, end: int) -> Iterator[Record]:
    topic_id = state.metadata.topic_id
    while end > start:
        first = max(start, end - BACKWARDS_OFFSETS)
        records: list[Record] = []
        for batch in batches_of(state, first, end):
            records += batch.records(state.topic, state.partition)
        if state.metadata.topic_id != topic_id:  # the partition was deleted and created again
            raise state.out_of_range(first)
        yield from reversed(records)
        end = first


class _Walk:
    """A walk over a range of offsets; it continues in the new files if files are replaced.

    If a cut drops records that were yielded, the rest of the range does not follow these records,
    and the walk raises OffsetOutOfRangeError.

    Attributes:
        start, offset, end_offset: the first, the next and the last offset (exclusive) of the range.
        cut: the last cut that the walk has taken into account.
        last: the last batch with records that was yielded, if cuts are unsure.
    """

    def __init__(self, state: Replica, start: int, end_offset: int, cut: Cut) -> None:
        self.state, self.cut = state, cut
        self.start = self.offset = start
        self.end_offset = end_offset
        self.last: RecordBatch | None = None
        self.topic_id = state.metadata.topic_id

    def run(self, window_bytes: int | None, *, zero_copy: bool) -> Iterator[RecordBatch]:
        """Yield the batches of the range."""
        state = self.state
        while self.offset < self.end_offset:
            state.check()
            if self.cut.later is not None:
                self._pass_cut()
            if self.offset < state.log_start_offset:
                raise state.out_of_range(self.offset)
            seen = state.view
            segment = segment_at(state, self.offset)
            try:
                yield from self._within(segment, window_bytes, zero_copy)
                if self.cut.later is None:
                    self._leave(segment)
            except FileNotFoundError as error:
                state.retry(segment, self.offset, error)
            except CorruptRecordBatchError as error:
                state.look_twice(self.offset, seen, error)
                self.end_offset = min(self.end_offset, state.log_end_offset)
            except OSError as error:
                state.take_failure(segment, self.offset, error)

    def _pass_cut(self) -> None:
        """Take new cuts into account; raise if they dropped records that were yielded."""
        state, topic_id = self.state, self.state.metadata.topic_id
        if self.offset == self.start:
            self.cut, self.topic_id = self.cut.last, topic_id
        else:
            self.cut = check_cuts(state, self.cut, self.offset, self.last)
        if topic_id != self.topic_id:  # the partition was deleted and created again
            raise state.out_of_range(self.offset)
        self.end_offset = min(self.end_offset, state.log_end_offset)

    def _within(
        self, segment: Segment, window_bytes: int | None, zero_copy: bool
    ) -> Iterator[RecordBatch]:
        """Yield the batches of one segment, until the segment is dropped or a cut comes."""
        state, cut, start = self.state, self.cut, self.start
        is_kept = state.cuts_are_unsure
        for batch in batches(
            segment,
            self.offset,
            self.end_offset,
            state.environment,
            window_bytes=window_bytes,
            zero_copy=zero_copy,
        ):
            if cut.later is not None and self.offset > start:
                return
            if is_kept and batch.count:
                self.last = batch
            self.offset = batch.header.last_offset + 1
            yield batch
            del batch  # release its memory before the next read
            if state.unavailable is not None or state.log_dir.is_refusing:
                state.check()
            if segment.is_dropped:
                return

    def _leave(self, segment: Segment) -> None:
        """Continue with the next segment, or with the new files if the segment was dropped."""
        state = self.state
        if segment.is_dropped:
            state.stale(segment)
            self.end_offset = min(self.end_offset, state.log_end_offset)
            return
        is_short = segment.end_offset <= self.offset < self.end_offset
        if is_short and state.segment_for(self.offset) is segment:
            raise corrupt(segment, segment.size_bytes, f"offset {self.offset} is missing")
        self.offset = max(self.offset, segment.end_offset)


def check_cuts(state: Replica, cut: Cut, offset: int, last: RecordBatch | None) -> Cut:
    """Return the last cut; raise if a cut after `cut` dropped records that a reader has got.

    Args:
        offset: the next offset that the reader will get.
        last: the last batch with records that the reader has got; None if it has got no record.
    """
    lowest: Cut | None = None
    while cut.later is not None:
        cut = cut.later
        is_before = cut.offset < offset and (lowest is None or cut.offset < lowest.offset)
        if is_before and (cut.is_sure or not _has_still(state, offset, last)):
            lowest = cut
    if lowest is None:
        return cut
    where = f"to {lowest.offset}" if lowest.is_sure else "by its owner"
    message = (
        f"the log {state.name} was truncated {where}, but a reader had already read up to "
        f"offset {offset}: records that it got are gone, and other records get their offsets; "
        "begin to read again"
    )
    raise OffsetOutOfRangeError(message, **state.out_of_range(offset).facts)


def _has_still(state: Replica, offset: int, batch: RecordBatch | None) -> bool:
    """In a log that another process writes, check that the last yielded record still exists.

    A record that compaction has removed, or that has become unreadable, counts as present.
    """
    if offset > state.log_end_offset:
        return False
    if batch is None:
        return True
    last = batch.record(batch.count - 1, state.topic, state.partition)
    if last.offset < state.log_start_offset:
        return True
    try:
        return record_from_disk(state, last.offset) == last
    except OffsetOutOfRangeError:
        return last.offset < state.log_end_offset
    except (CorruptRecordBatchError, RecordExpansionError):
        return True
