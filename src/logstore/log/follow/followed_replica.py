"""Hold the state of a log that another process owns; no file is locked, mapped or written.

Every read first checks two things: whether the directory changed (by a roll, a truncation or
retention), and whether the last segment grew. An incomplete batch at the very end counts as not yet
written. If a file no longer exists, the directory is listed again, and the log dir does not count
as failed. If the new listing shows that the log no longer has the offset, OffsetOutOfRangeError is
raised.

Appended records are visible before they are flushed. So a reader may see a record whose offset the
owner later gives to another record. This happens in two cases: a power cut loses the record, or
Ctrl-C interrupts its append after the write of the batch, and the owner removes the batch.

A listing is not a snapshot: the names in the directory are read one after the other, and the owner
may change the directory meanwhile. So the end of a segment is taken from the next segment's base
offset only if the files of both segments existed at the same moment. If either file was replaced,
the segment is read again.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from logstore.disk import files
from logstore.disk.log_dir import LogDir
from logstore.errors import (
    CorruptIndexError,
    CorruptRecordBatchError,
    LogStoreError,
    ReadOnlyStoreError,
    ReplicaIncompleteError,
    UnknownPartitionError,
)
from logstore.log.environment import LogEnvironment
from logstore.log.follow.partition_files import PartitionFiles
from logstore.log.metadata import HIGH_WATERMARK, PartitionMetadata
from logstore.log.read.cut import Cut
from logstore.log.replica import Replica, View, view_of
from logstore.log.segments import trailer as trailers
from logstore.log.segments.listing import SegmentFiles
from logstore.log.segments.scan import Scan
from logstore.log.segments.segment import Segment
from logstore.names import TopicPartition

# Two changes of a directory within this time may leave the same mtime.
MTIME_DOUBT_NS = 20_000_000
LOOKS_MAX = 20
POLL_SECONDS_MIN, POLL_SECONDS_MAX = 0.005, 0.05


class Known(NamedTuple):
    """A segment of the view, and the row of the directory listing from which it was made."""

    row: SegmentFiles
    next_base: int | None
    segment: Segment


class FollowedReplica(Replica):
    """A replica whose owner is another process.

    A reading thread holds `_refreshing` when it writes a field of `Replica` or a private field.

    Attributes:
        files: the object that reads the files of the directory, in their layout; never changes.
        missing: why this copy may lack records; "" if the copy has all records.
        find_anew: a function that finds the partition's new state if the directory is gone. The
            field is set once.
    """

    __slots__ = (
        "_known",
        "_last",
        "_refreshing",
        "_scan",
        "_seen",
        "files",
        "find_anew",
        "missing",
    )

    cuts_are_unsure: ClassVar[bool] = True

    def __init__(
        self,
        log_dir: LogDir,
        directory: str,
        metadata: PartitionMetadata,
        environment: LogEnvironment,
        partition_files: PartitionFiles,
    ) -> None:
        super().__init__(log_dir, directory, metadata, environment)
        self.files = partition_files
        self.missing = ""
        self.find_anew: Callable[[], Replica | None] = lambda: None
        self.renew_locks()
        self._known: dict[int, Known] = {}
        self._seen: tuple[int, int] | None = None
        # The walk over the last segment, and the segment itself.
        self._scan: Scan | None = None
        self._last: Segment | None = None

    def renew_locks(self) -> None:
        """Replace the lock in a forked child: threads of the parent may hold it."""
        self._refreshing = threading.Lock()

    @property
    def high_watermark(self) -> int:
        """The high watermark that the owner last wrote to the disk, or else the log end."""
        key, topic_id = TopicPartition(self.topic, self.partition), self.metadata.topic_id
        flushed: int | None = self.metadata.extra.get(HIGH_WATERMARK)
        known = self.log_dir.checkpoints.high_watermark(key, topic_id)
        if known is None and flushed is None:
            return self.log_end_offset
        try:
            known = self.log_dir.checkpoints.high_watermark_now(key, topic_id)
        except OSError as error:
            raise self.failed(error) from error
        return self.within(max(known or 0, flushed or 0))

    def refusal(self) -> LogStoreError:
        """Make the error for a call that would write to the log."""
        if self.missing:
            return ReplicaIncompleteError(
                topic=self.topic, partition=self.partition, reason=self.missing
            )
        return ReadOnlyStoreError(path=self.directory)

    # --- following -------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Check the directory for changes; if a file vanishes during the check, check again.

        Raises:
            UnknownPartitionError: the directory is gone, or changed during every attempt.
            LogStoreError: the disk failed.
        """
        for _ in range(LOOKS_MAX):
            try:
                with self._refreshing:
                    self._look()
                return
            except FileNotFoundError as error:
                self._seen = None
                if not self._is_there() and not self._follow_move():
                    raise self._gone() from error
            except OSError as error:
                raise self.failed(error) from error
        raise self._gone()

    def wait_until(self, is_true: Callable[[], bool], timeout: float | None) -> bool:
        """Check the directory repeatedly until a condition is true or the time ends."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = POLL_SECONDS_MIN
        while True:
            self.check()
            self.refresh()
            if is_true():
                return True
            if deadline is not None:
                pause = min(pause, deadline - time.monotonic())
                if pause <= 0:
                    return False
            time.sleep(pause)
            pause = min(pause * 1.5, POLL_SECONDS_MAX)

    def _is_there(self) -> bool:
        try:
            return files.exists(self.directory)
        except OSError as error:
            raise self.failed(error) from error

    def _follow_move(self) -> bool:
        """Follow a moved replica to its new directory; return whether the replica was found."""
        found = self.find_anew()
        if found is None or found.metadata.topic_id != self.metadata.topic_id:
            return False
        with self._refreshing:
            if found.directory != self.directory:
                self.log_dir, self.directory = found.log_dir, found.directory
                self._forget_known([])
                self._known, self._seen, self._last = {}, None, None
        return True

    def look_twice(self, offset: int, seen: View, error: CorruptRecordBatchError) -> None:
        """Read the directory again: a change by the owner may have looked like damage."""
        before = self._facts_of(offset)
        self.look_anew()
        if not self.log_start_offset <= offset < self.log_end_offset:
            raise self.out_of_range(offset) from error
        if self.view is seen and self._facts_of(offset) == before:
            raise error

    def _facts_of(self, offset: int) -> tuple[int, int] | None:
        """Return the size and the end offset of the segment that contains an offset.

        This size and this offset can change while the view stays the same.
        """
        segments, bases = self.view
        number = bisect_right(bases, offset) - 1
        return None if number < 0 else (segments[number].size_bytes, segments[number].end_offset)

    def _look(self) -> None:
        facts = files.stat(self.directory)
        seen = (facts.st_mtime_ns, facts.st_ino)
        is_doubtful = time.time_ns() - facts.st_mtime_ns < MTIME_DOUBT_NS
        if seen != self._seen or is_doubtful:
            self.relist()
            self._seen = None if is_doubtful else seen
        elif self.segments:
            self._grow(self.segments[-1])

    def relist(self) -> None:
        """List the directory again, but keep the segments of unchanged files."""
        before, small = files.stat(self.directory), self.files.small_files(self)
        topic_id = self.files.topic_id(self, small)
        rows = self.files.rows(self.directory)
        self._check_topic(before, topic_id)
        old = {} if topic_id != self.metadata.topic_id else self._known
        if small is not None:
            self.metadata, self.recovery.warnings = small.metadata, small.warnings
        elif topic_id != self.metadata.topic_id:
            self.metadata = self.metadata._replace(topic_id=topic_id)
        if not rows:  # if the directory was renamed during the listing, `stat` raises
            files.stat(self.directory)
        known = {
            row.base_offset: self._take(row, old.get(row.base_offset), follower)
            for row, follower in zip(rows, [*rows[1:], None], strict=False)
        }
        segments = [one.segment for one in known.values()]
        self._forget_known(segments)
        end_offset = segments[-1].end_offset if segments else 0
        start = self.files.start_of(self, rows, small, end_offset)
        self._known, self.log_start_offset = known, start
        if segments != list(self.segments):
            cut, last_cut = self._cut_by(segments), self.cut
            self.view = view_of(segments)
            if cut is not None:
                self.cut = last_cut.later = cut

    def _check_topic(self, before: os.stat_result, topic_id: bytes) -> None:
        """If the directory changed since its small files were read, check its topic id again.

        Without this check, the segments of a topic that was created again could be listed with the
        id of the deleted topic.
        """
        facts = files.stat(self.directory)
        if (facts.st_ino, facts.st_mtime_ns) == (before.st_ino, before.st_mtime_ns):
            return
        if self.files.topic_id(self, self.files.small_files(self)) != topic_id:
            raise FileNotFoundError(errno.ENOENT, "of another topic now", self.directory)

    def _cut_by(self, segments: list[Segment]) -> Cut | None:
        """Make a `Cut` at the first replaced file; return None if no file was replaced.

        A truncation, a compaction, a move or a seal may have replaced files.
        """
        ids, first_base = set(map(id, segments)), segments[0].base_offset if segments else 0
        gone = [one.base_offset for one in self.segments if id(one) not in ids]
        replaced = [base for base in gone if base >= first_base]
        return Cut(replaced[0], is_sure=False) if replaced else None

    def _forget_known(self, stayed: list[Segment]) -> None:
        """Release the files of all known segments that are not in `stayed`."""
        ids = set(map(id, stayed))
        for one in self._known.values():
            if id(one.segment) not in ids:
                one.segment.is_dropped = True
                one.segment.forget(self.environment)

    def _take(self, row: SegmentFiles, known: Known | None, follower: SegmentFiles | None) -> Known:
        """Make the segment of a listed file, or keep the segment that is already known.

        The end of the segment comes from its trailer, from the next segment, or from a walk over
        its batches.
        """
        segment = None
        if known is not None and known.row.inode == row.inode:
            if follower is not None and known[:2] == (row, follower.base_offset):
                return known
            is_growing = known.segment is self._last and known.segment.index is not None
            if is_growing and row.log_bytes >= known.segment.size_bytes:
                segment = known.segment
        if segment is None:
            segment = self.files.new_segment(self, row)
            segment.inode = row.inode
            self.files.take_trailer(self, segment, row)
        if follower is None:
            self._grow(segment)
            return Known(row, None, segment)
        if segment.seal is None:
            self.files.settle(segment, row, follower)
        segment.modified_ns = row.mtime_ns
        return Known(row, follower.base_offset, segment)

    def _begin_scan(self, segment: Segment) -> None:
        """Begin to follow the last segment, after the part that its index files describe."""
        self._last, segment.tail = segment, None
        sealed_bytes, sealed_end = segment.size_bytes, segment.end_offset
        index, time_index = segment.begin_indexes()
        if segment.seal is not None:
            segment.seal = None
            try:
                index, trailer = trailers.read_index(segment.index_path, growing=True)
                time_index = trailers.read_time_index(
                    segment.time_index_path, trailer, growing=True
                )
                is_same = trailer.log_bytes == sealed_bytes
            except (CorruptIndexError, FileNotFoundError):
                is_same = False
            if not is_same:
                index, time_index = segment.begin_indexes()
                sealed_bytes, sealed_end = 0, segment.base_offset
            segment.index, segment.time_index = index, time_index
        self._scan = Scan(
            segment.base_offset,
            index=index,
            time_index=time_index,
            interval_bytes=self.config.index_interval_bytes,
        )
        self._scan.position = self._scan.good_end = sealed_bytes
        self._scan.offset = sealed_end
        self._scan.max_timestamp = segment.max_timestamp if sealed_bytes else -1
        self._scan.last_epoch = segment.last_epoch

    def _grow(self, segment: Segment) -> None:
        """Walk over the batches that were appended to the last segment since the last check."""
        if segment is not self._last or segment.index is None:
            self._begin_scan(segment)
        scan = self._scan
        assert scan is not None
        try:
            handle = segment.handle(self.environment)
            fd = handle.fd
            tail = segment.tail
            if tail is not None and trailers.stored_checksum(fd, *tail[:2]) != tail[2]:
                raise FileNotFoundError(errno.ENOENT, "cut and written anew", segment.log_path)
        except FileNotFoundError:
            self._last = None  # the next `refresh` makes a new segment
            raise
        end = files.fstat(fd).st_size
        if end > scan.position:
            before = scan.position
            scan.run(fd, end)
            if scan.position > before:
                self._note_tail(segment, fd, scan)
                segment.take(scan)
        if self.files.pass_damage(self, segment, scan):
            self._note_tail(segment, fd, scan)

    def _note_tail(self, segment: Segment, fd: int, scan: Scan) -> None:
        """Remember the place and the checksum of the last checked batch; they identify the file."""
        at, end = scan.last_position, scan.good_end
        segment.tail = (at, end, trailers.stored_checksum(fd, at, end))

    def look_anew(self) -> None:
        """List the directory again, even if it seems unchanged, because a file is gone."""
        self._seen = None
        self.refresh()

    def stale(self, segment: Segment) -> None:
        """List the directory again, to find the files that replace a dropped segment."""
        self.look_anew()

    def retry(self, segment: Segment, offset: int, error: FileNotFoundError) -> None:
        """Raise an error, unless the log still has the offset in another file."""
        self.look_anew()
        if not self.log_start_offset <= offset < self.log_end_offset:
            raise self.out_of_range(offset) from error
        if segment in self.segments and not segment.is_dropped:
            raise self.out_of_range(offset) from error

    def _gone(self) -> LogStoreError:
        return UnknownPartitionError(topic=self.topic, partition=self.partition)
