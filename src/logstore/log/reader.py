"""Read a log: by offset, by time, as records, as batches of columns, as raw bytes, as a tail.

This is the public face. `segment_reader` reads the segments, and `read/` has a module for each
other way to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, overload

from logstore.arguments import flag, known_as, text, timeout_of, timestamp_of, whole
from logstore.config import size_of
from logstore.errors import CorruptRecordBatchError, RecordExpansionError
from logstore.format import layouts
from logstore.format.batch import Record, RecordBatch
from logstore.log.read.slice import LogSlice, slice_of
from logstore.log.segment_reader import SegmentReader

if TYPE_CHECKING:
    from datetime import datetime

    from logstore.log.recovery.report import RecoveryEntry

HELD_BYTES_MAX = 64 << 20
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


@known_as("Log")
class LogReader(SegmentReader):
    """The reading half of a log; `Log` adds writing, `LogView` follows another process."""

    is_repairable = True  # by `logstore repair`
    recovery: RecoveryEntry  # the damage that the opening found

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> LogSlice: ...
    def __getitem__(self, index: int | slice) -> Record | LogSlice:
        """Give the record at an offset, or a lazy range of offsets; negative: from the end.

        A slice without a start begins at `log_start_offset`. A slice never leaves out records that
        its start asks for: a start below `log_start_offset` raises.

        Raises:
            OffsetOutOfRangeError: there is no record at the offset; or the slice has a start that
                is not negative and has no record in the log, either no longer or not yet
                (`slice_of`).
        """
        if type(index) is int and index >= 0:
            return self.record_at(index)
        self._check()
        self._refresh()
        if isinstance(index, slice):
            return slice_of(self, index)
        start, end = self.log_start_offset, self.log_end_offset
        offset = whole(index, "offset")
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
            isolation_level: "read_committed" leaves out the records of aborted transactions of
                Kafka's producers, and ends where the first open transaction begins.
            max_bytes: stop before the batch that would exceed it; at least one batch is read.
                Batches count as they are stored; of decompressed batches at most 64 MiB are
                returned, or this.

        Raises:
            OffsetOutOfRangeError: the offset is before the log start or after the log end.
            CorruptRecordBatchError: damage is at `offset`; if it is further on, the records before
                it are returned.
            RecordExpansionError: as for damage, if a batch needs more memory than the store allows.
        """
        offset = whole(offset, "offset")
        if max_records is not None:
            max_records = whole(max_records, "max_records", 1)
        max_bytes = size_of(max_bytes, "max_bytes")
        records: list[Record] = []
        taken = held = expanded = 0
        expanded_max = self._environment.record_expansion_bytes_max
        window = min(max(max_bytes, 4096), layouts.WINDOW_BYTES)
        if max_records is not None and max_records < 64:
            window = min(window, 16 * 1024)
        try:
            for batch in self._isolated(isolation_level, offset, None, window_bytes=window):
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
        """Yield `offset..end_offset` as batches of columns, each verified at its first read.

        Args:
            offset: where to begin; the log start by default.
            end_offset: where to stop, exclusive; the log end at the call by default.
            zero_copy: give views of the mapped file instead of copies of its bytes. They stay valid
                while the log grows; if the disk fails later, an access to them kills the process.
            isolation_level: as in `read`.
        """
        flag(zero_copy, "zero_copy")
        return self._isolated(isolation_level, offset, end_offset, zero_copy=zero_copy)

    def _isolated(
        self, isolation_level: str, offset: int | None, end_offset: int | None, **options: Any
    ) -> Iterator[RecordBatch]:
        if text(isolation_level, "isolation_level") not in ISOLATION_LEVELS:
            raise ValueError(f"isolation_level {isolation_level!r} is none of {ISOLATION_LEVELS}")
        if isolation_level == ISOLATION_LEVELS[0]:
            return self._range(offset, end_offset, **options)
        from logstore.log.read.transactions import committed

        return committed(self, offset, end_offset, options)

    def __iter__(self) -> Iterator[Record]:
        """Iterate over all records from `log_start_offset` to the current end.

        To detect that retention deleted records, name the offset: `log[offset:]` raises.
        """
        batches_now = self._range(None, None)  # its range is fixed at the call
        return (r for batch in batches_now for r in batch.records(self.topic, self.partition))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Give all records as an Arrow stream, as `log[:]` does (extra `arrow`)."""
        return self[:].__arrow_c_stream__(requested_schema)

    def read_raw(self, offset: int, max_bytes: int = 1 << 20) -> bytes:
        """Read whole encoded batches from the one that contains `offset` on, for a follower.

        Returns at least one batch, then as many as fit into `max_bytes`; nothing at the log's end.
        """
        from logstore.log.read.raw import read_raw

        return read_raw(self, whole(offset, "offset"), size_of(max_bytes, "max_bytes"))

    def tail(self, offset: int | str = "end", timeout: float | None = None) -> Iterator[Record]:
        """Yield records as they come, from an offset, "start" or "end" on.

        Args:
            timeout: stop if no new record came for this many seconds; None waits without limit.
        """
        timeout = timeout_of(timeout)
        self._check()
        self._refresh()
        if isinstance(offset, str):
            if offset not in ("start", "end"):
                raise ValueError(f'offset {offset!r} is neither a number, "start" nor "end"')
            offset = self.log_start_offset if offset == "start" else self.log_end_offset
        else:
            offset = whole(offset, "offset")
            if offset < 0:
                offset += self.log_end_offset
            self._check_readable(offset, offset)
        return self._follow(offset, timeout)

    def _follow(self, offset: int, timeout: float | None) -> Iterator[Record]:
        while True:
            self._refresh()
            end = self.log_end_offset
            for batch in self._range(offset, end):
                yield from batch.records(self.topic, self.partition)
            offset = max(offset, end)
            if not self.wait_for(offset, timeout):
                return

    def offset_for_timestamp(self, timestamp: int | datetime) -> int | None:
        """Give the first offset whose timestamp is at or after `timestamp`; None if there is none.

        Args:
            timestamp: ms since the epoch, or a datetime with a zone.
        """
        from logstore.log.read.time_search import first_offset_at

        self._check()
        self._refresh()
        return first_offset_at(self, timestamp_of(timestamp, "timestamp"))

    def wait_for(self, offset: int, timeout: float | None) -> bool:
        """Wait until the record at `offset` exists; False if the time ends first."""
        raise NotImplementedError
