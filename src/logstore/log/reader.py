"""Define the reading methods that the public classes `Log` and `LogView` share.

`Log` adds the methods that write. `LogView` reads a log that another process writes. `read/` has a
module for each way to read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, overload

from logstore.arguments import flag, known_as, timeout_of, timestamp_of, whole
from logstore.config import LogConfig, size_of
from logstore.disk.log_dir import LogDir
from logstore.errors import CorruptRecordBatchError, LogStoreError, RecordExpansionError
from logstore.format import layouts
from logstore.format.batch import Record, RecordBatch, new_tuple
from logstore.log.read.isolation import READ_COMMITTED, READ_UNCOMMITTED, end_of, isolated
from logstore.log.read.records import batches_of, newest_first, record_from_disk, record_in
from logstore.log.read.slice import LogSlice, bounds_of
from logstore.log.replica import Replica
from logstore.log.segments.segment import INDEX, Block

if TYPE_CHECKING:
    from datetime import datetime

    from logstore.disk.documents.facts import Facts
    from logstore.log.read.file_range import FileRange
    from logstore.log.recovery.report import RecoveryEntry

HELD_BYTES_MAX = 64 << 20


@known_as("Log")  # users know both classes by the name `Log`
class ReadableLog:
    """Reads a log: its identity, its range of offsets, and its records."""

    _state: Replica

    def __init__(self, state: Replica) -> None:
        self._state = state
        self.topic = state.topic
        self.partition = state.partition

    # --- identity --------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.topic}-{self.partition} offsets "
            f"{self.log_start_offset}..{self.log_end_offset}, {self.size_bytes} bytes, "
            f"in {self.log_dir}{', closed' if self._state.is_closed else ''}>"
        )

    @property
    def log_dir(self) -> str:
        """Path of the log dir that holds this replica."""
        return self._state.log_dir.path

    @property
    def directory(self) -> str:
        """Path of the replica's own directory."""
        return self._state.directory

    @property
    def config(self) -> LogConfig:
        """The configuration stored with the partition."""
        return self._state.config

    @property
    def topic_id(self) -> bytes:
        """16 bytes that distinguish this topic from a later topic of the same name."""
        return self._state.metadata.topic_id

    @property
    def facts(self) -> Facts:
        """Small facts that a program stores durably with this log; a move of the log keeps them.

        These facts are used in the same way as `store.facts`, the facts of a log dir. If
        `partition.metadata` was lost, `facts.damage` reports this until a fact is changed.
        """
        from logstore.log.log_facts import facts_of

        return facts_of(self._state)

    @property
    def recovery(self) -> RecoveryEntry:
        """The report about the opening of the log: the damage that was found, and the changes."""
        return self._state.recovery

    @property
    def is_repairable(self) -> bool:
        """Whether `logstore repair` can repair this log."""
        return True

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get."""
        return self._state.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The offset below which all in-sync replicas have the records.

        If the log is not replicated, the high watermark is the log end. If another process owns the
        log, this is the value that the owner last wrote to the disk.
        """
        return self._state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which all records are replicated, and all transactions have ended."""
        return end_of(self._state, READ_COMMITTED)

    @property
    def size_bytes(self) -> int:
        """The size of all record batches on the disk, in bytes."""
        return sum(segment.size_bytes for segment in self._state.segments)

    def __len__(self) -> int:
        """Count the offsets from the log start to the log end; this also works for a closed log.

        There may be fewer records than offsets, because a repair and Kafka's compaction leave gaps.
        `sum(len(batch) for batch in log.read_batches())` counts the records.
        """
        return self.log_end_offset - self.log_start_offset

    def __bool__(self) -> bool:
        return True

    # --- one record ------------------------------------------------------------------------------

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> LogSlice: ...
    def __getitem__(self, index: int | slice) -> Record | LogSlice:
        """Return the record at an offset, or a lazy range of offsets.

        A negative number counts from the end. A slice without a start begins at `log_start_offset`.
        A start below `log_start_offset` raises an error, because the slice would lack records.

        Raises:
            OffsetOutOfRangeError: there is no record at the offset. A slice raises this error if
                its start is 0 or more, and is before the log start or after the log end
                (`slice.bounds_of`).
        """
        if type(index) is int and index >= 0:
            return self.record_at(index)
        state = self._state
        state.check()
        state.refresh()
        if isinstance(index, slice):
            return LogSlice(self, *bounds_of(state, index))
        start, end = self.log_start_offset, self.log_end_offset
        offset = whole(index, "offset")
        if offset < 0:
            if offset < start - end:
                raise state.out_of_range(offset)
            offset += end
        return self.record_at(offset)

    def record_at(self, offset: int) -> Record:
        """Return one record. Raises OffsetOutOfRangeError, even for a negative offset."""
        if type(offset) is not int:
            offset = whole(offset, "offset")
        state = self._state
        segments, bases = state.view
        if offset >= state.log_start_offset and segments and not state.log_dir.is_refusing:
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
                        return record_in(state, block, offset)
                    base_offset, data, start, size, starts, timestamp = plain
                    at = offset - base_offset
                    if starts is None:
                        start += at * size
                        end = start + size
                    else:
                        start, end = start + starts[at], start + starts[at + 1]
                    # This does the same as NamedTuple's own constructor, in half the time.
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
        state.check()
        return record_from_disk(state, offset)

    # --- many records -------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        *,
        max_records: int | None = None,
        max_bytes: int = 1 << 20,
        isolation_level: str = "read_uncommitted",
    ) -> list[Record]:
        """Read records beginning at an offset; return an empty list at the log's end.

        Args:
            isolation_level: "read_uncommitted" reads up to the log end, "read_replicated" up to the
                high watermark. "read_committed" reads up to the last stable offset, at which the
                first open transaction begins, and leaves out aborted transactions.
            max_bytes: the most bytes of stored batches to read; the first batch may be larger.
                Decompressed batches have at most 64 MiB, or `max_bytes` if that is more.

        Raises:
            OffsetOutOfRangeError: the offset is before the log start or after the log end.
            CorruptRecordBatchError, RecordExpansionError: the batch at `offset` is damaged, or
                needs more memory than the store allows. If only a later batch has this fault, the
                records before the later batch are returned.
        """
        offset = whole(offset, "offset")
        if max_records is not None:
            max_records = whole(max_records, "max_records", 1)
        max_bytes = size_of(max_bytes, "max_bytes")
        records: list[Record] = []
        taken = held = expanded = 0
        expanded_max = self._state.environment.record_expansion_bytes_max
        window = min(max(max_bytes, 4096), layouts.WINDOW_BYTES)
        if max_records is not None and max_records < 64:
            window = min(window, 16 * 1024)
        try:
            batches = isolated(self._state, isolation_level, offset, None, window_bytes=window)
            for batch in batches:
                taken += batch.header.size_bytes
                held += batch.held_bytes
                expanded += batch.expansion_bytes
                is_much = held > max(max_bytes, HELD_BYTES_MAX) or expanded > expanded_max
                if records and (taken > max_bytes or is_much):
                    break
                if max_records is not None:
                    batch = batch.slice(0, max_records - len(records))
                records += batch.records(self.topic, self.partition)
                if max_records is not None and len(records) >= max_records:
                    break
        except (CorruptRecordBatchError, RecordExpansionError):
            if not records:
                raise
        return records

    def read_batches(
        self,
        offset: int | None = None,
        *,
        end_offset: int | None = None,
        zero_copy: bool = False,
        isolation_level: str = "read_uncommitted",
    ) -> Iterator[RecordBatch]:
        """Yield `offset..end_offset` as batches of columns; each batch is verified once.

        Args:
            offset: the first offset to read; the log start by default.
            end_offset: the offset after the last record to read. By default, the range ends where
                readers of the isolation level stop at the time of the call.
            zero_copy: yield views of the mapped file instead of copies of the bytes. The views stay
                valid while the log grows. If the disk fails, an access to a view kills the process.
            isolation_level: as in `read`.
        """
        flag(zero_copy, "zero_copy")
        return isolated(self._state, isolation_level, offset, end_offset, zero_copy=zero_copy)

    def __iter__(self) -> Iterator[Record]:
        """Iterate over all records from `log_start_offset` to the current end.

        If retention deletes unread records, the iterator raises OffsetOutOfRangeError.
        """
        batches_now = batches_of(self._state, None, None)  # this call sets the end of the range
        return (r for batch in batches_now for r in batch.records(self.topic, self.partition))

    def __reversed__(self) -> Iterator[Record]:
        """Iterate backward over the records that exist at the call, down to `log_start_offset`.

        If retention deletes records that the iterator has not reached yet, the iterator raises
        OffsetOutOfRangeError.
        """
        return newest_first(self._state)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return all records as an Arrow stream, as `log[:]` does (extra `arrow`)."""
        return self[:].__arrow_c_stream__(requested_schema)

    def read_raw(self, offset: int, max_bytes: int = 1 << 20) -> bytes:
        """Read whole encoded batches for a follower; the first batch contains `offset`.

        Returns as many batches as fit into `max_bytes`, but at least one. At the log's end, the
        result is empty.
        """
        from logstore.log.read.raw import read_raw

        return read_raw(self._state, whole(offset, "offset"), size_of(max_bytes, "max_bytes"))

    def read_range(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        *,
        end_offset: int | None = None,
        isolation_level: str = READ_UNCOMMITTED,
    ) -> FileRange:
        """Return whole batches as a range of an open file; the first batch contains `offset`.

        The range is for `os.sendfile`. The range has as many batches of one segment as fit into
        `max_bytes`, but at least one. A large range may have up to `index_interval_bytes` less. If
        there is no batch to read yet, the range is empty. The bytes of a range stay readable until
        the range is closed, even if the log is deleted. All batches are verified: batches that this
        process appended count as verified, and other batches are read once.

        Args:
            end_offset: all records of the range are before this offset; no limit by default.
            isolation_level: the range ends where `read` would end, but includes aborted records.

        Raises:
            OffsetOutOfRangeError: the offset is before the log start or after the log end.
            CorruptRecordBatchError: the first batch is damaged. If a later batch is damaged, the
                range ends before the damaged batch.
        """
        from logstore.log.read.file_range import read_range

        if end_offset is not None:
            end_offset = whole(end_offset, "end_offset", 0)
        if type(offset) is not int or type(max_bytes) is not int or max_bytes < 1:
            offset, max_bytes = whole(offset, "offset"), size_of(max_bytes, "max_bytes")
        return read_range(self._state, offset, max_bytes, end_offset, isolation_level)

    def tail(
        self,
        offset: int | str = "end",
        timeout: float | None = None,
        *,
        isolation_level: str = READ_UNCOMMITTED,
    ) -> Iterator[Record]:
        """Yield the records from `offset` (a number, "start" or "end") on, then wait for more.

        Args:
            isolation_level: as in `read`; a record is yielded as soon as this level allows it.
            timeout: in s; if no record comes for this time, the iteration ends. None: no limit.

        Raises:
            OffsetOutOfRangeError: the offset is not in the log, or yielded records were dropped.
        """
        from logstore.log.read.tail import tail

        return tail(self._state, offset, timeout_of(timeout), isolation_level)

    def offset_for_timestamp(self, timestamp: int | datetime) -> int | None:
        """Return the first offset with a timestamp at or after `timestamp`; None if there is none.

        `timestamp` is in ms since the epoch, or a datetime with a zone.
        """
        from logstore.log.read.time_search import first_offset_at

        state = self._state
        state.check()
        state.refresh()
        return first_offset_at(state, timestamp_of(timestamp, "timestamp"))

    def wait_for(
        self, offset: int, timeout: float | None, isolation_level: str = READ_UNCOMMITTED
    ) -> bool:
        """Wait until the record at `offset` can be read; return False if the timeout ends first."""
        state, at, seconds = self._state, whole(offset, "offset"), timeout_of(timeout)
        return state.wait_until(lambda: end_of(state, isolation_level) > at, seconds)

    # --- its end ---------------------------------------------------------------------------------

    def detach(self, reason: LogStoreError, of: LogDir | None = None) -> None:
        """Release all files now; each later call to the log raises a copy of `reason`.

        This call does not notify subscribers: call `host.tell_end` later, without a lock.

        Args:
            of: a log dir, or None. If a move has taken the log to another log dir, this call does
                nothing.
        """
        self._state.detach(reason, of)
