"""Read records from the segments of a log: one record by its offset, or a range as batches.

Readers take no lock. A read uses the tuple of segments that exists when the read begins. The read
takes a newer tuple only if a segment is dropped during the read (by a truncation, by retention or
by a move). The read then continues at the same offset. If the batch of a record is already decoded,
`ReadableLog.record_at` returns the record without calling this module.
"""

from __future__ import annotations

from collections.abc import Iterator

from logstore.arguments import whole
from logstore.errors import CorruptRecordBatchError
from logstore.format.batch import Record, RecordBatch
from logstore.log.read.cursor import batches, corrupt, load_block
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
    """Return the segment with an offset; if there is none, look again before raising an error."""
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
    start = state.log_start_offset if offset is None else whole(offset, "offset")
    end = state.log_end_offset if end_offset is None else whole(end_offset, "end_offset", 0)
    state.check_readable(start, max(start, end) if end_offset is not None else start)
    return _walk(state, start, end, window_bytes, zero_copy)


def newest_first(state: Replica) -> Iterator[Record]:
    """Yield all records that exist at the time of the call, the last record first."""
    state.check()
    state.refresh()
    return _backwards(state, state.log_start_offset, state.log_end_offset)


def _backwards(state: Replica, start: int, end: int) -> Iterator[Record]:
    while end > start:
        first = max(start, end - BACKWARDS_OFFSETS)
        records: list[Record] = []
        for batch in batches_of(state, first, end):
            records += batch.records(state.topic, state.partition)
        yield from reversed(records)
        end = first


def _walk(
    state: Replica, offset: int, end_offset: int, window_bytes: int | None, zero_copy: bool
) -> Iterator[RecordBatch]:
    while offset < end_offset:
        state.check()
        if offset < state.log_start_offset:
            raise state.out_of_range(offset)
        seen = state.view
        segment = segment_at(state, offset)
        try:
            for batch in batches(
                segment,
                offset,
                end_offset,
                state.environment,
                window_bytes=window_bytes,
                zero_copy=zero_copy,
            ):
                offset = batch.header.last_offset + 1
                yield batch
                del batch  # release its memory before the next read
                if state.unavailable is not None or state.log_dir.is_refusing:
                    state.check()
                if segment.is_dropped:
                    break
            is_short = segment.end_offset <= offset < end_offset and not segment.is_dropped
            if is_short and state.segment_for(offset) is segment:
                raise corrupt(segment, segment.size_bytes, f"offset {offset} is missing")
        except FileNotFoundError as error:
            state.retry(segment, offset, error)
            continue
        except CorruptRecordBatchError as error:
            state.look_twice(offset, seen, error)
            end_offset = min(end_offset, state.log_end_offset)
            continue
        except OSError as error:
            state.take_failure(segment, offset, error)
            continue
        if not segment.is_dropped:
            offset = max(offset, segment.end_offset)
        else:
            state.stale(segment)
            end_offset = min(end_offset, state.log_end_offset)
