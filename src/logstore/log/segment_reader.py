"""Read a log's records from its segments: one by its offset, or batches of a range of offsets.

Readers take no lock: a read uses only the tuple of segments that it took at its start. If a segment
is dropped during a read (truncated, retained, moved), the read takes the new tuple and continues by
offset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from logstore.arguments import known_as, whole
from logstore.errors import CorruptRecordBatchError
from logstore.format.batch import Record, RecordBatch, new_tuple
from logstore.log.read.cursor import batches, corrupt, load_block
from logstore.log.replica import Replica
from logstore.log.segments.segment import INDEX, Block, Segment


@known_as("Log")
class SegmentReader(Replica):
    """Reads from the segments of a log; `LogReader` is the public face."""

    def record_at(self, offset: int) -> Record:
        """Give one record; raises OffsetOutOfRangeError if there is none, as at -1."""
        if type(offset) is not int:
            offset = whole(offset, "offset")
        segments, bases = self._view
        if offset >= self._log_start_offset and segments and not self._log_dir.is_refusing:
            segment = segments[bisect_right(bases, offset) - 1]
            index = segment.index
            if index is None:
                item = segment.cached.get(INDEX)
                index = None if item is None else item.value
            if index is not None:
                entry = bisect_right(index.offsets, offset - segment.base_offset) - 1
                cached = segment.cached.get(entry)
                block: Block | None = None if cached is None else cached.value
                if cached is not None and block is not None and offset < block.end_offset:
                    cached.is_used = True
                    plain = block.plain
                    if plain is None:
                        return self._record_in(block, offset)
                    base_offset, data, start, size, starts, timestamp = plain
                    at = offset - base_offset
                    if starts is None:
                        start += at * size
                        end = start + size
                    else:
                        start, end = start + starts[at], start + starts[at + 1]
                    # This is what NamedTuple's own constructor does, in half the time.
                    return new_tuple(
                        Record,
                        (
                            offset,
                            timestamp,
                            None,
                            data[start:end],
                            (),
                            self.topic,
                            self.partition,
                        ),
                    )
        self._check()
        return self._record_from_disk(offset)

    def _record_in(self, block: Block, offset: int) -> Record:
        batch = block.batch_for(offset)
        at = batch.index_of(offset)
        if at >= batch.count or batch.offset_at(at) != offset:
            raise self._out_of_range(offset)
        return batch.record(at, self.topic, self.partition)

    def _segment_at(self, offset: int) -> Segment:
        """Give the segment that contains an offset; an apparent gap is checked twice."""
        while True:
            seen = self._view
            try:
                return self._segment_for(offset)
            except CorruptRecordBatchError as error:
                self._look_twice(offset, seen, error)

    def _record_from_disk(self, offset: int) -> Record:
        self._refresh()
        if not self.log_start_offset <= offset < self.log_end_offset:
            raise self._out_of_range(offset)
        while True:
            self._check()
            seen = self._view
            segment = self._segment_at(offset)
            try:
                entry = segment.offset_index(self._environment).lookup(offset - segment.base_offset)
                block = load_block(segment, entry, offset, self._environment)
            except FileNotFoundError as error:
                self._retry(segment, offset, error)
                continue
            except CorruptRecordBatchError as error:
                self._look_twice(offset, seen, error)
                continue
            except OSError as error:
                self._take_failure(segment, offset, error)
                continue
            if offset >= block.end_offset:
                raise self._out_of_range(offset)
            return self._record_in(block, offset)

    def _range(
        self,
        offset: int | None,
        end_offset: int | None,
        *,
        window_bytes: int | None = None,
        zero_copy: bool = False,
    ) -> Iterator[RecordBatch]:
        self._check()
        self._refresh()
        start = self.log_start_offset if offset is None else whole(offset, "offset")
        end = self.log_end_offset if end_offset is None else whole(end_offset, "end_offset", 0)
        self._check_readable(start, max(start, end) if end_offset is not None else start)
        return self._batches(start, end, window_bytes, zero_copy)

    def _batches(
        self, offset: int, end_offset: int, window_bytes: int | None, zero_copy: bool
    ) -> Iterator[RecordBatch]:
        while offset < end_offset:
            self._check()
            if offset < self._log_start_offset:
                raise self._out_of_range(offset)
            seen = self._view
            segment = self._segment_at(offset)
            try:
                for batch in batches(
                    segment,
                    offset,
                    end_offset,
                    self._environment,
                    window_bytes=window_bytes,
                    zero_copy=zero_copy,
                ):
                    yield batch
                    offset = batch.header.last_offset + 1
                    if self._unavailable is not None or self._log_dir.is_refusing:
                        self._check()
                    if segment.is_dropped:
                        break
                is_short = segment.end_offset <= offset < end_offset and not segment.is_dropped
                if is_short and self._segment_for(offset) is segment:
                    raise corrupt(segment, segment.size_bytes, f"offset {offset} is missing")
            except FileNotFoundError as error:
                self._retry(segment, offset, error)
                continue
            except CorruptRecordBatchError as error:
                self._look_twice(offset, seen, error)
                end_offset = min(end_offset, self.log_end_offset)
                continue
            except OSError as error:
                self._take_failure(segment, offset, error)
                continue
            if not segment.is_dropped:
                offset = max(offset, segment.end_offset)
            else:
                self._stale(segment)
                end_offset = min(end_offset, self.log_end_offset)
