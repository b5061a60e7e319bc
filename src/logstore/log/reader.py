"""Read a log: by offset, by time, as records, as batches of columns, as raw bytes, as a tail.

Readers take no lock. `_segments` and `_bases` stand together in one tuple that the writer replaces
whole; everything a read needs hangs on the tuple it took at its start. A read that finds a segment
dropped under it (truncated, retained, moved) takes the new tuple and goes on by offset.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import index as as_index
from typing import overload

from logstore.config import LogConfig
from logstore.disk.log_dir import LogDir
from logstore.errors import CorruptRecordBatchError, LogStoreError, OffsetOutOfRangeError
from logstore.format.batch import Record, RecordBatch
from logstore.log.cursor import batches, corrupt, load_block
from logstore.log.environment import LogEnvironment
from logstore.log.metadata import PartitionMetadata
from logstore.log.segment import INDEX, Block, Segment
from logstore.log.slice import LogSlice, bound

View = tuple[tuple[Segment, ...], list[int]]

SCAN_WINDOW_BYTES = 1 << 20
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


def view_of(segments: list[Segment]) -> View:
    """Put segments, in order of offset, into the tuple that readers take."""
    return tuple(segments), [segment.base_offset for segment in segments]


class LogReader:
    """Give the reading half of a log; `Log` adds writing, `LogView` follows another process."""

    def __init__(
        self,
        log_dir: LogDir,
        directory: str,
        metadata: PartitionMetadata,
        environment: LogEnvironment,
    ) -> None:
        self.topic = metadata.topic
        self.partition = metadata.partition
        self._metadata = metadata
        self._log_dir = log_dir
        self._directory = directory
        self._environment = environment
        self._log_start_offset = metadata.log_start_offset
        self._view: View = ((), [])
        self._unavailable: Callable[[], LogStoreError] | None = None

    # --- what it is ---------------------------------------------------------------------------

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.topic}-{self.partition} offsets "
            f"{self.log_start_offset}..{self.log_end_offset}, {self.size_bytes} bytes, "
            f"in {self.log_dir}>"
        )

    @property
    def log_dir(self) -> str:
        """Path of the log dir that holds this replica."""
        return self._log_dir.path

    @property
    def directory(self) -> str:
        """Path of the replica's own directory."""
        return self._directory

    @property
    def config(self) -> LogConfig:
        """The configuration stored with the partition."""
        return self._metadata.config

    @property
    def topic_id(self) -> bytes:
        """16 bytes that tell this topic from a later one of the same name."""
        return self._metadata.topic_id

    @property
    def log_start_offset(self) -> int:
        """First readable offset."""
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get."""
        segments = self._view[0]
        return max(segments[-1].end_offset, self._log_start_offset) if segments else 0

    @property
    def high_watermark(self) -> int:
        """Below it records are on every replica; there is one, so it is the log end offset."""
        return self.log_end_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of record batches on disk."""
        return sum(segment.size_bytes for segment in self._view[0])

    def __len__(self) -> int:
        return self.log_end_offset - self.log_start_offset

    def __bool__(self) -> bool:
        return True

    def _check(self) -> None:
        """Refuse to work when closed, forked or offline."""
        if self._unavailable is not None:
            raise self._unavailable()
        if self._log_dir.is_offline:
            self._log_dir.check()

    def _failed(self, error: OSError) -> LogStoreError:
        return self._log_dir.failed(
            error, self._directory, topic=self.topic, partition=self.partition
        )

    def _refresh(self) -> None:
        """Look for what another process has changed; the owner knows already."""

    def _stale(self, segment: Segment) -> None:
        """Wait until the view no longer holds a dropped segment."""

    def wait_for(self, offset: int, timeout: float | None) -> bool:
        """Wait until the record at `offset` is there; False when the time is over first."""
        raise NotImplementedError

    # --- one record ---------------------------------------------------------------------------

    def record_at(self, offset: int) -> Record:
        """Give one record; raises OffsetOutOfRangeError where there is none."""
        if self._unavailable is not None or self._log_dir.is_offline:
            self._check()
        segments, bases = self._view
        if offset >= self._log_start_offset and segments:
            segment = segments[bisect_right(bases, offset) - 1]
            index = segment.index
            if index is None:
                item = segment.cached.get(INDEX)
                index = None if item is None else item.value
            if index is not None:
                entry = bisect_right(index.offsets, offset - segment.base_offset) - 1
                cached = segment.cached.get(entry if entry > 0 else 0)
                if cached is not None:
                    block: Block | None = cached.value
                    if block is not None and offset < block.end_offset:
                        cached.is_used = True
                        batch = block.batches[bisect_right(block.bases, offset) - 1]
                        deltas = offset - batch.header.base_offset
                        if batch._columns.offset_deltas is None and 0 <= deltas < batch.count:
                            return batch.record(deltas, self.topic, self.partition)
        return self._record_from_disk(offset)

    def _record_from_disk(self, offset: int) -> Record:
        self._refresh()
        self._check_readable(offset, offset + 1)
        while True:
            segment = self._segment_for(offset)
            try:
                entry = segment.offset_index(self._environment).lookup(offset - segment.base_offset)
                block = load_block(segment, entry, offset, self._environment)
            except FileNotFoundError as error:
                self._retry(segment, offset, error)
                continue
            except OSError as error:
                raise self._failed(error) from error
            if offset >= block.end_offset:
                raise self._out_of_range(offset)
            batch = block.batch_for(offset)
            at = batch.index_of(offset)
            if at >= batch.count or batch.offset_at(at) != offset:
                raise self._out_of_range(offset)
            return batch.record(at, self.topic, self.partition)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> LogSlice: ...
    def __getitem__(self, index: int | slice) -> Record | LogSlice:
        """Give the record at an offset, or a lazy range of offsets; negative: from the end."""
        if type(index) is int and index >= 0:
            return self.record_at(index)
        self._check()
        self._refresh()
        start, end = self.log_start_offset, self.log_end_offset
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise ValueError("a log has no steps: slice it with step 1")
            return LogSlice(
                self, bound(index.start, start, end, start), bound(index.stop, start, end, end)
            )
        offset = as_index(index)
        if offset < 0:
            if offset < start - end:
                raise self._out_of_range(offset)
            offset += end
        return self.record_at(offset)

    # --- many records -------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        *,
        max_records: int | None = None,
        max_bytes: int = 1 << 20,
        isolation_level: str = "read_uncommitted",
    ) -> list[Record]:
        """Read records from an offset on; none at the log's end.

        Args:
            max_bytes: stop before the batch that would pass it; one batch is always read.

        Raises:
            OffsetOutOfRangeError: the offset is before the log start or behind the log end.
            CorruptRecordBatchError: damage stands at `offset`; behind it, what is before is given.
        """
        if isolation_level not in ISOLATION_LEVELS:
            raise ValueError(f"isolation_level {isolation_level!r} is none of {ISOLATION_LEVELS}")
        if max_records is not None and max_records < 1:
            raise ValueError(f"max_records {max_records} is less than 1")
        records: list[Record] = []
        taken = 0
        window = min(max(max_bytes, 4096), SCAN_WINDOW_BYTES)
        if max_records is not None and max_records < 64:
            window = min(window, 16 * 1024)
        try:
            for batch in self._range(offset, None, window_bytes=window):
                taken += batch.header.size_bytes
                if records and taken > max_bytes:
                    break
                if max_records is not None:
                    batch = batch.slice(0, max_records - len(records))
                records += batch.records(self.topic, self.partition)
                if max_records is not None and len(records) >= max_records:
                    break
        except CorruptRecordBatchError:
            if not records:
                raise
        return records

    def read_batches(
        self, offset: int | None = None, *, end_offset: int | None = None, zero_copy: bool = False
    ) -> Iterator[RecordBatch]:
        """Yield `offset..end_offset` as batches of columns, each verified at its first read.

        Args:
            offset: where to begin; the log start by default.
            end_offset: where to stop, exclusive; the log end at the call by default.
            zero_copy: give views of the mapped file instead of bytes of their own. They stay valid
                when the log goes on; a disk that fails later kills the process that looks at them.
        """
        return self._range(offset, end_offset, zero_copy=zero_copy)

    def _range(
        self,
        offset: int | None,
        end_offset: int | None,
        *,
        window_bytes: int = SCAN_WINDOW_BYTES,
        zero_copy: bool = False,
    ) -> Iterator[RecordBatch]:
        self._check()
        self._refresh()
        start = self.log_start_offset if offset is None else as_index(offset)
        end = self.log_end_offset if end_offset is None else as_index(end_offset)
        self._check_readable(start, max(start, end) if end_offset is not None else start)
        return self._batches(start, end, window_bytes, zero_copy)

    def _batches(
        self, offset: int, end_offset: int, window_bytes: int, zero_copy: bool
    ) -> Iterator[RecordBatch]:
        while offset < end_offset:
            self._check()
            if offset < self._log_start_offset:
                raise self._out_of_range(offset)
            segment = self._segment_for(offset)
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
                    offset = batch.last_offset + 1
                    if self._unavailable is not None or self._log_dir.is_offline:
                        self._check()
                    if segment.is_dropped:
                        break
            except FileNotFoundError as error:
                self._retry(segment, offset, error)
                continue
            except OSError as error:
                raise self._failed(error) from error
            if not segment.is_dropped:
                if segment.end_offset <= offset < end_offset and (
                    self._segment_for(offset) is segment
                ):
                    raise corrupt(segment, segment.size_bytes, f"offset {offset} is missing")
                offset = max(offset, segment.end_offset)
            else:
                self._stale(segment)
                end_offset = min(end_offset, self.log_end_offset)

    def __iter__(self) -> Iterator[Record]:
        for batch in self._range(None, None):
            yield from batch.records(self.topic, self.partition)

    def read_raw(self, offset: int, max_bytes: int = 1 << 20) -> bytes:
        """Read whole encoded batches from the one that holds `offset` on, for a follower.

        Gives one batch at least, then as many as fit into `max_bytes`; nothing at the log's end.
        """
        from logstore.log.encoded import read_raw

        return read_raw(self, as_index(offset), max_bytes)

    def tail(self, offset: int | str = "end", timeout: float | None = None) -> Iterator[Record]:
        """Yield records as they come, from an offset, "start" or "end" on.

        Args:
            timeout: stop when nothing new came for so many seconds; None waits for ever.
        """
        self._check()
        self._refresh()
        if isinstance(offset, str):
            if offset not in ("start", "end"):
                raise ValueError(f'offset {offset!r} is neither a number, "start" nor "end"')
            offset = self.log_start_offset if offset == "start" else self.log_end_offset
        else:
            offset = as_index(offset)
            if offset < 0:
                offset += self.log_end_offset
            self._check_readable(offset, offset)
        return self._follow(offset, timeout)

    def _follow(self, offset: int, timeout: float | None) -> Iterator[Record]:
        while True:
            for batch in self._range(offset, None):
                yield from batch.records(self.topic, self.partition)
                offset = batch.last_offset + 1
            offset = max(offset, min(self.log_end_offset, offset))
            if not self.wait_for(offset, timeout):
                return

    def offset_for_timestamp(self, timestamp: int) -> int | None:
        """Give the first offset whose timestamp is at or after `timestamp`; None when none is."""
        from logstore.log.seeking import first_offset_at

        self._check()
        self._refresh()
        return first_offset_at(self, as_index(timestamp))

    # --- helpers --------------------------------------------------------------------------------

    def _segment_for(self, offset: int) -> Segment:
        """Give the segment that holds an offset; raises CorruptRecordBatchError in a gap."""
        segments, bases = self._view
        number = max(bisect_right(bases, offset) - 1, 0)
        segment = segments[number]
        if offset < segment.base_offset:
            raise corrupt(segment, 0, f"the segments before it, from {offset} on, are missing")
        if offset >= segment.end_offset and number + 1 < len(segments):
            reason = f"offsets {segment.end_offset} to {bases[number + 1]} are missing behind it"
            raise corrupt(segment, segment.size_bytes, reason)
        return segment

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            offset=offset,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
        )

    def _check_readable(self, offset: int, end_offset: int) -> None:
        end = self.log_end_offset
        if offset < self.log_start_offset or offset > end or end_offset > end:
            outside = end_offset if self.log_start_offset <= offset <= end else offset
            raise self._out_of_range(outside)

    def _retry(self, segment: Segment, offset: int, error: FileNotFoundError) -> None:
        """Go on after a file was gone: dropped by us it is looked up anew, else it is damage."""
        if not segment.is_dropped:
            time.sleep(0)
            if not segment.is_dropped:
                raise self._failed(error) from error
        self._stale(segment)
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self._out_of_range(offset) from error
