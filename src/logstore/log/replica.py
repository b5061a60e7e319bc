"""Hold the state of every open log: its identity, range of offsets, and readable segments.

`LogState` adds the state that a writer needs. `FollowedReplica` adds the state with which another
process follows the writer. The public classes (`Log`, `LogView`) and the functions in `read/` use a
`Replica`.

Invariants: the segments of `view` are in order of offset, and `view[1]` has their base offsets.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

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
from logstore.log.read.cut import Cut
from logstore.log.segments.segment import Segment

if TYPE_CHECKING:
    from logstore.log.recovery.report import RecoveryEntry

View = tuple[tuple[Segment, ...], list[int]]
SWAP_PAUSE_SECONDS = 0.0005


def view_of(segments: list[Segment]) -> View:
    """Make the tuple that readers take; the given segments must be in order of offset."""
    return tuple(segments), [segment.base_offset for segment in segments]


class Replica:
    """One log in one log dir: the part of its state that readers use.

    Readers take no lock. To change a field, the writer makes a new object, and assigns it in one
    step. The objects themselves never change, except that the last segment grows (see `segment`). A
    reader takes `view` once, and uses that tuple to the end. If `view` is replaced meanwhile, the
    reader may find that a segment was dropped or that a file no longer exists. A reader that finds
    a dropped segment takes the new view.

    Attributes:
        topic, partition: never change.
        environment: the objects that the logs of the store share; this field never changes.
        log_dir, directory, metadata: where the log is, and the contents of `partition.metadata`. In
            the process that owns the log, a move writes these fields under both locks. Other
            changes of the metadata are made under `flush_lock`.
        log_start_offset: the first readable offset. The owner first writes this field, under
            `flush_lock`, and then removes the segments below this offset from the view.
        view: the segments, and their base offsets for a bisection. The owner writes this field
            under `lock`.
        cut: the last truncation of the end of the log; replaced together with `view`.
        cuts_are_unsure: whether another process writes the log, so that a cut may have dropped
            no record.
        unavailable: makes the error that every call on the log raises; None while the log can be
            used. The owner writes this field under `appended`; a forked child writes it in its only
            thread.
        recovery: the damage that was found when the log was opened or repaired.
        transaction_events: for each segment, the events of Kafka's transactions that were found in
            the segment so far (see `read/transactions`). If two threads write this field at once,
            the only harm is that batches are walked twice.
        aborted_index: the aborted transactions that were found so far (see `read/aborted_index`).
            The object is replaced as a whole.
    """

    __slots__ = (
        "aborted_index",
        "cut",
        "directory",
        "environment",
        "log_dir",
        "log_start_offset",
        "metadata",
        "partition",
        "recovery",
        "topic",
        "transaction_events",
        "unavailable",
        "view",
    )

    cuts_are_unsure: ClassVar[bool] = False

    def __init__(
        self,
        log_dir: LogDir,
        directory: str,
        metadata: PartitionMetadata,
        environment: LogEnvironment,
    ) -> None:
        self.topic = metadata.topic
        self.partition = metadata.partition
        self.environment = environment
        self.log_dir = log_dir
        self.directory = directory
        self.metadata = metadata
        self.log_start_offset = metadata.log_start_offset
        self.view: View = ((), [])
        self.cut = Cut(0)
        self.unavailable: Callable[[], LogStoreError] | None = None
        from logstore.log.recovery.report import RecoveryEntry

        self.recovery: RecoveryEntry = RecoveryEntry(self.topic, self.partition, log_dir.path)
        self.transaction_events: dict[Segment, Any] = {}
        self.aborted_index: Any = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.directory}>"

    # --- values derived from the fields ----------------------------------------------------------

    @property
    def keeps_deletions(self) -> bool:
        """Whether compaction must keep tombstones and markers, because a replica may lack them.

        If a replica never got the tombstones, it would keep the older records of the same keys.
        """
        return self.environment.keeps_deletions(self.topic, self.partition)

    @property
    def name(self) -> str:
        """The log's name in messages."""
        return f"{self.topic}-{self.partition}"

    @property
    def config(self) -> LogConfig:
        """The configuration stored with the partition."""
        return self.metadata.config

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments that readers see now; the last segment is active."""
        return self.view[0]

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get."""
        segments = self.view[0]
        if not segments:
            return 0
        end, start = segments[-1].end_offset, self.log_start_offset
        return end if end > start else start

    @property
    def high_watermark(self) -> int:
        """The offset below which all in-sync replicas have the records; if unknown, the log end."""
        return self.log_end_offset

    def within(self, offset: int) -> int:
        """Limit an offset to the range of the log."""
        return max(self.log_start_offset, min(offset, self.log_end_offset))

    # --- whether the log can be used -------------------------------------------------------------

    def check(self) -> None:
        """Raise if the log is closed, if its dir refuses calls, or if this process was forked."""
        if self.unavailable is not None:
            raise self.unavailable()
        if self.log_dir.is_refusing:
            self.log_dir.check()

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed, by itself or together with its store."""
        reason = None if self.unavailable is None else self.unavailable()
        return isinstance(reason, LogClosedError)

    def failed(self, error: OSError) -> LogStoreError:
        """Convert an OSError to an error of this library; this may take the log dir OFFLINE."""
        return self.log_dir.failed(
            error, self.directory, topic=self.topic, partition=self.partition
        )

    def detach(self, reason: LogStoreError, of: LogDir | None = None) -> None:
        """Release all files now; each later call to the log raises a copy of `reason`.

        Args:
            of: a log dir, or None. If a move has taken the log to another log dir, this call does
                nothing.
        """
        if of is not None and of is not self.log_dir:
            return
        kind, message, facts = type(reason), str(reason), reason.facts
        self.unavailable = lambda: kind(message, **facts)
        for segment in self.view[0]:
            segment.leave(self.environment)

    def tell_end(self) -> None:
        """Report once to subscribers that the log was detached; only the owner has subscribers."""

    def renew_locks(self) -> None:
        """Replace the locks in a forked child: threads of the parent may hold them."""

    # --- a range of offsets ----------------------------------------------------------------------

    def segment_for(self, offset: int) -> Segment:
        """Return the segment that has an offset; raise CorruptRecordBatchError if there is none."""
        segments, bases = self.view
        number = max(bisect_right(bases, offset) - 1, 0)
        segment = segments[number]
        if offset < segment.base_offset:
            reason = f"the segments from offset {offset} up to this segment are missing"
            raise corrupt(segment, 0, reason)
        if offset >= segment.end_offset and number + 1 < len(segments):
            missing = f"offsets {segment.end_offset} to {bases[number + 1]}"
            reason = f"{missing} after this segment are missing"
            raise corrupt(segment, segment.size_bytes, reason)
        return segment

    def out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        """Make the error for an offset that is not in the log."""
        return OffsetOutOfRangeError(
            offset=offset,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            topic=self.topic,
            partition=self.partition,
        )

    def check_readable(self, offset: int, end_offset: int) -> None:
        """Raise OffsetOutOfRangeError if a range of offsets is not within the range of the log."""
        end = self.log_end_offset
        if offset < self.log_start_offset or offset > end or end_offset > end:
            outside = end_offset if self.log_start_offset <= offset <= end else offset
            raise self.out_of_range(outside)

    def wait_until(self, is_true: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until a change of the log makes a condition true; return False after the timeout.

        Raises:
            LogStoreError: the log is closed or unavailable.
        """
        raise NotImplementedError

    # --- when a reader finds the files changed ---------------------------------------------------

    def refresh(self) -> None:
        """Read the changes that another process made; if this process owns the log, do nothing."""

    def look_anew(self) -> None:
        """Read the directory again even if it seems unchanged, because a file no longer exists."""

    def stale(self, segment: Segment) -> None:
        """If the view still has a dropped segment, wait a moment: a move is swapping the files."""
        if segment in self.view[0]:
            time.sleep(SWAP_PAUSE_SECONDS)

    def look_twice(self, offset: int, seen: View, error: CorruptRecordBatchError) -> None:
        """Return if the bytes looked damaged only because the log changed; otherwise raise.

        Args:
            seen: the view before the read.
        """
        if not self.log_start_offset <= offset < self.log_end_offset:
            raise self.out_of_range(offset) from error
        if self.view is seen:
            raise error

    def take_failure(self, segment: Segment, offset: int, error: OSError) -> None:
        """Raise the error that a segment's file caused, unless the log has dropped the segment.

        After a move, a reader may still read files in the old directory, on a disk that fails now.
        """
        if not segment.is_dropped:
            raise self.failed(error) from error
        self.stale(segment)
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self.out_of_range(offset) from error

    def retry(self, segment: Segment, offset: int, error: FileNotFoundError) -> None:
        """If a file is missing because the log dropped its segment, return; otherwise raise."""
        if not segment.is_dropped:
            time.sleep(0)
            if not segment.is_dropped:
                raise self.failed(error) from error
        self.stale(segment)
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self.out_of_range(offset) from error
