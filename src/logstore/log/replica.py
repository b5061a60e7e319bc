"""Hold the identity of a log, and the segments that readers see.

`_view` is one tuple, the segments and their base offsets, that the writer replaces whole; a reader
takes it once and needs no lock.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from logstore.arguments import known_as
from logstore.config import LogConfig
from logstore.disk.log_dir import LogDir
from logstore.errors import (
    CorruptRecordBatchError,
    LogClosedError,
    LogStoreError,
    OffsetOutOfRangeError,
)
from logstore.log.environment import LogEnvironment
from logstore.log.metadata import PartitionMetadata
from logstore.log.read.cursor import corrupt
from logstore.log.segments.segment import Segment

View = tuple[tuple[Segment, ...], list[int]]
SWAP_PAUSE_SECONDS = 0.0005


def view_of(segments: list[Segment]) -> View:
    """Put segments, in order of offset, into the tuple that readers take."""
    return tuple(segments), [segment.base_offset for segment in segments]


@known_as("Log")
class Replica:
    """A log's identity, range and segments; `LogReader` adds reading."""

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
        # The known events of Kafka's transactions, by segment and its size
        # (`log/read/transactions`).
        self.transaction_events: dict[Segment, tuple[int, list[Any]]] = {}
        self._view: View = ((), [])
        self._unavailable: Callable[[], LogStoreError] | None = None

    # --- identity ----------------------------------------------------------------------------

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.topic}-{self.partition} offsets "
            f"{self.log_start_offset}..{self.log_end_offset}, {self.size_bytes} bytes, "
            f"in {self.log_dir}{', closed' if self._is_closed() else ''}>"
        )

    def _is_closed(self) -> bool:
        """Check whether the log was closed, by itself or with its store."""
        reason = None if self._unavailable is None else self._unavailable()
        return isinstance(reason, LogClosedError)

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
        """16 bytes that distinguish this topic from a later one of the same name."""
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
        """Below it records are on every replica; there is only one, so it is the log end offset."""
        return self.log_end_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of record batches on disk."""
        return sum(segment.size_bytes for segment in self._view[0])

    def __len__(self) -> int:
        """Count the offsets that the log spans; for a closed log, those that it had.

        There may be fewer records: a repair and Kafka's compaction leave gaps. To count the
        records: `sum(len(batch) for batch in log.read_batches())`.
        """
        return self.log_end_offset - self.log_start_offset

    def __bool__(self) -> bool:
        return True

    def _check(self) -> None:
        """Refuse to work if closed, forked, offline or SUSPECT."""
        if self._unavailable is not None:
            raise self._unavailable()
        if self._log_dir.is_refusing:
            self._log_dir.check()

    def _failed(self, error: OSError) -> LogStoreError:
        return self._log_dir.failed(
            error, self._directory, topic=self.topic, partition=self.partition
        )

    def _refresh(self) -> None:
        """Read what another process has changed; the owner knows it already."""

    def _look_anew(self) -> None:
        """Read the directory again, whatever is known: a file that was there is gone."""

    def _stale(self, segment: Segment) -> None:
        """Wait until the view no longer holds a dropped segment: a move is swapping its files."""
        if segment in self._view[0]:
            time.sleep(SWAP_PAUSE_SECONDS)

    def _look_twice(self, offset: int, seen: View, error: CorruptRecordBatchError) -> None:
        """Return if damage was only a change under way; raises `error` if it is damage.

        Args:
            seen: the view before the read.
        """
        if not self.log_start_offset <= offset < self.log_end_offset:
            raise self._out_of_range(offset) from error
        if self._view is seen:
            raise error

    # --- helpers --------------------------------------------------------------------------------

    def _segment_for(self, offset: int) -> Segment:
        """Give the segment that holds an offset; raises CorruptRecordBatchError in a gap."""
        segments, bases = self._view
        number = max(bisect_right(bases, offset) - 1, 0)
        segment = segments[number]
        if offset < segment.base_offset:
            raise corrupt(segment, 0, f"the segments before it, from {offset} on, are missing")
        if offset >= segment.end_offset and number + 1 < len(segments):
            reason = f"offsets {segment.end_offset} to {bases[number + 1]} are missing after it"
            raise corrupt(segment, segment.size_bytes, reason)
        return segment

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            offset=offset,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            topic=self.topic,
            partition=self.partition,
        )

    def _check_readable(self, offset: int, end_offset: int) -> None:
        end = self.log_end_offset
        if offset < self.log_start_offset or offset > end or end_offset > end:
            outside = end_offset if self.log_start_offset <= offset <= end else offset
            raise self._out_of_range(outside)

    def _take_failure(self, segment: Segment, offset: int, error: OSError) -> None:
        """Raise for a file of this log; for a file that it no longer has, the error is ignored.

        A reader may still read in the directory that a move left, on a disk that fails now.
        """
        if not segment.is_dropped:
            raise self._failed(error) from error
        self._stale(segment)
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self._out_of_range(offset) from error

    def _retry(self, segment: Segment, offset: int, error: FileNotFoundError) -> None:
        """Continue after a file was gone: if this log dropped it, read again, else it is damage."""
        if not segment.is_dropped:
            time.sleep(0)
            if not segment.is_dropped:
                raise self._failed(error) from error
        self._stale(segment)
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self._out_of_range(offset) from error
