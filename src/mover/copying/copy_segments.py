"""Let the kernel copy one segment's batches to a file of the target, and check each batch.

The bytes have the same positions in the source file and in the target file. As soon as a chunk is
copied, it is read back from the page cache, and checked batch by batch. This walk from batch to
batch also makes the indexes. If `verify` is off and the batches are large, the walk reads only the
batches' headers. After the walk the kernel is asked to write the chunk to the disk. From time to
time, a thread makes the copied bytes durable while the copying continues, so that the sync at the
end is short. Nothing in this module holds a lock of the log.

Invariant: `scan.good_end <= position`. The bytes before `good_end` were checked.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from logstore.disk import bulk, files
from logstore.disk.log_dir import LogDir
from logstore.errors import CorruptRecordBatchError, LogStoreError
from logstore.log.metadata import PartitionMetadata
from logstore.log.segments.cache import Handle
from logstore.log.segments.index_files import index_files, write_index_files
from logstore.log.segments.scan import Scan
from logstore.log.segments.segment import Segment
from mover.copying.early_sync import EARLY_SYNC_BYTES, EarlySync

if TYPE_CHECKING:
    from mover.rates.throttle import MoveThrottle

WRITEBACK_BYTES = 8 << 20
COMPARE_BYTES = 1 << 20


class StoppedError(Exception):
    """Tell the move's thread that the move was paused or cancelled; no user sees this error."""


class SourceChangedError(Exception):
    """Report that a segment of the source was replaced; the caller must make another pass."""


class Ends:
    """Hold the source, the target, and the parts of the move that a copy uses.

    Attributes:
        is_stopped: returns whether the move must stop.
        progress: called with the number of bytes copied since the last call.
        is_verified: whether the batches' checksums are checked while copying. The headers are
            always checked, because the ends and the indexes of the new segments are derived from
            the headers.
    """

    def __init__(
        self,
        source: LogDir,
        target: LogDir,
        throttle: MoveThrottle,
        is_stopped: Callable[[], bool],
        progress: Callable[[int], None],
    ) -> None:
        self.source = source
        self.target = target
        self.throttle = throttle
        self.is_stopped = is_stopped
        self.progress = progress
        self.is_verified = True

    def check(self) -> None:
        """Raise an error if the move must stop, or if its source or target does not work."""
        if self.is_stopped():
            raise StoppedError
        self.source.check()
        self.target.check()


class SegmentCopy:
    """Copy one segment; after the swap, the log uses the object `segment`."""

    def __init__(self, directory: str, base_offset: int, interval_bytes: int) -> None:
        self.segment = Segment(directory, base_offset)
        self.interval_bytes = interval_bytes
        self.source: Segment | None = None
        self.position = 0
        self.is_sealed = False
        self.is_synced = True
        self._written_back = 0
        self._synced_early = 0
        self._early_sync: EarlySync | None = None
        self._handle: Handle | None = None
        self._begin_scan()

    def __repr__(self) -> str:
        return f"SegmentCopy({self.segment.base_offset}, {self.position} bytes)"

    def _begin_scan(self) -> None:
        index, time_index = self.segment.begin_indexes()
        self.scan = Scan(
            self.segment.base_offset,
            index=index,
            time_index=time_index,
            interval_bytes=self.interval_bytes,
        )

    @property
    def handle(self) -> Handle:
        """The file of the copy, opened when it is first used."""
        if self._handle is None:
            self._handle = Handle(files.open_regular(self.segment.log_path, files.READ_WRITE))
        return self._handle

    @property
    def fd(self) -> int:
        """The descriptor of the file."""
        return self.handle.fd

    def create(self) -> None:
        """Create the empty file."""
        self._handle = Handle(files.replace_file(self.segment.log_path))
        self.is_synced = False

    def let_go(self) -> None:
        """Close the file."""
        if self._early_sync is not None:
            self._early_sync.let_go()
        self._early_sync = self._handle = None

    # --- copying --------------------------------------------------------------------------------

    def copy_to(self, end: int, source_fd: int, ends: Ends, *, is_throttled: bool = True) -> None:
        """Copy up to a position where a batch ends, and check the copied batches.

        Raises:
            StoppedError: a caller paused or cancelled the move.
            SourceChangedError: the source's file was replaced.
            CorruptRecordBatchError: a batch of the source is damaged.
            LogStoreError: a disk failed or is full.
        """
        self.scan.is_checked = ends.is_verified
        while self.position < end:
            ends.check()
            assert self.source is not None
            if self.source.is_dropped:
                raise SourceChangedError
            size = end - self.position
            if is_throttled:
                size = min(ends.throttle.chunk_bytes, size)
                if not ends.throttle.take(size, ends.is_stopped):
                    raise StoppedError
            self._copy_chunk(size, source_fd, ends)
        self._judge(end, source_fd, ends)

    def _copy_chunk(self, size_bytes: int, source_fd: int, ends: Ends) -> None:
        self.is_synced = False
        end = self.position + size_bytes
        while self.position < end:
            try:
                copied = bulk.send(self.fd, source_fd, self.position, end - self.position)
            except OSError as error:
                raise self._blame(error, source_fd, ends) from error
            if copied == 0:
                self._source_ended(source_fd, ends)
            self.position += copied
            ends.progress(copied)
        try:
            self.scan.run(self.fd, self.position)
            if self.position - self._written_back >= WRITEBACK_BYTES:
                size_bytes = self.position - self._written_back
                bulk.start_writeback(self.fd, self._written_back, size_bytes)
                self._written_back = self.position
        except OSError as error:
            raise ends.target.failed(error, self.segment.log_path) from error
        self._sync_early(ends)

    def _blame(self, error: OSError, source_fd: int, ends: Ends) -> LogStoreError:
        """Find out which disk failed, because a call that copies uses two disks."""
        assert self.source is not None
        try:
            files.pread(source_fd, COMPARE_BYTES, self.position)
        except OSError as second:
            return ends.source.failed(second, self.source.log_path)
        return ends.target.failed(error, self.segment.log_path)

    def _source_ended(self, source_fd: int, ends: Ends) -> NoReturn:
        """Raise the error that explains why the source's file is shorter than its segment."""
        source = self.source
        assert source is not None
        if source.is_dropped:
            raise SourceChangedError
        raise CorruptRecordBatchError(
            path=source.log_path,
            position=self.position,
            reason=f"the file ends before position {source.size_bytes}, as if it had been cut",
        )

    def _judge(self, end: int, source_fd: int, ends: Ends) -> None:
        """Check that all bytes up to `end` are whole batches; if not, name the first bad batch."""
        source = self.source
        assert source is not None
        try:
            reason = self.scan.run(self.fd, end)
        except OSError as error:
            raise ends.target.failed(error, self.segment.log_path) from error
        if reason is None:
            return
        if source.is_dropped:
            raise SourceChangedError
        position = self.scan.position
        same = _common_bytes(source_fd, self.fd, position, end, ends, lambda: None)
        blamed = source if same >= end else self.segment
        raise CorruptRecordBatchError(
            path=blamed.log_path,
            position=position,
            reason=f"the batch at offset {self.scan.offset} cannot be moved: {reason}",
        )

    # --- following a source that changed ----------------------------------------------------------

    def follow(self, source: Segment, source_fd: int, ends: Ends) -> None:
        """Take another segment as the source.

        The copy keeps only the bytes that the new source has.

        A copy takes another segment as its source if the copy is resumed, or if its source was
        truncated, repaired or compacted. What is kept depends only on a comparison of the bytes. If
        an earlier run left the copy, the copy is read from the disk, not from the page cache. The
        reason: an earlier sync may have failed without a trace, and then the page cache differs
        from the disk.
        """
        was_left, self.source = self.source is None, source
        try:
            if was_left:
                bulk.drop_cache(self.segment.log_path)
            size_bytes = files.fstat(self.fd).st_size
            end = min(size_bytes, source.size_bytes)
            same = _common_bytes(source_fd, self.fd, 0, end, ends, ends.check)
            self._begin_scan()
            self.scan.is_checked = ends.is_verified
            self.scan.run(self.fd, same)
            position = self.scan.good_end
            # The old indexes may have entries for bytes that are cut off here.
            # `seal` makes new indexes.
            files.remove_if_there(self.segment.index_path)
            files.remove_if_there(self.segment.time_index_path)
            if position < size_bytes:
                self.is_synced = False
                files.ftruncate(self.fd, position)
        except OSError as error:
            raise ends.target.failed(error, self.segment.log_path) from error
        self.position = self._written_back = self._synced_early = position
        self.is_sealed, self.segment.seal = False, None

    # --- making it durable ------------------------------------------------------------------------

    def _sync_early(self, ends: Ends) -> None:
        """Start a sync while the copying continues, unless a sync runs or few bytes are new."""
        is_busy = self._early_sync is not None and not self._early_sync.is_over
        if is_busy or self.position - self._synced_early < EARLY_SYNC_BYTES:
            return
        self._finish_early_sync()
        self._synced_early = self.position
        # If no thread can be started, the sync at the end covers these bytes.
        with suppress(RuntimeError):
            self._early_sync = EarlySync(self.handle, ends.target, self.segment.log_path)

    def _finish_early_sync(self) -> None:
        if self._early_sync is not None:
            self._early_sync.finish()
            self._early_sync = None

    def sync(self, ends: Ends) -> None:
        """Sync the copied bytes, then probe the file: a sync of a dying disk can report success."""
        if not self.is_synced:
            self._finish_early_sync()
            try:
                files.sync_data(self.fd)
            except OSError as error:
                raise ends.target.failed(error, self.segment.log_path) from error
            self.is_synced = True
            self._synced_early = self.position

    def take(self) -> Segment:
        """Return the segment with the size, end offset and times that the walk has found."""
        self.segment.take(self.scan)
        return self.segment

    def seal(self, metadata: PartitionMetadata, ends: Ends) -> None:
        """Sync a segment that no longer grows, then write its index files, each with a trailer.

        The trailer of an index file says what the segment contains. So the segment's bytes are made
        durable before the trailer is written.

        Raises:
            CorruptRecordBatchError: the copy's file is shorter than the segment.
            LogStoreError: the target's disk failed.
        """
        assert self.source is not None
        self.sync(ends)
        segment = self.take()
        segment.end_offset = max(segment.end_offset, self.source.end_offset)
        try:
            snapshot = index_files(segment, self.fd, metadata, is_sealed=True)
            write_index_files(segment.index_path, segment.time_index_path, *snapshot)
        except OSError as error:
            raise ends.target.failed(error, segment.index_path) from error
        self.is_sealed = True
        self.let_go()

    def remove(self, ends: Ends) -> None:
        """Remove the files, because the source no longer has this segment."""
        self.let_go()
        try:
            for path in self.segment.paths:
                files.remove_if_there(path)
        except OSError as error:
            raise ends.target.failed(error, self.segment.log_path) from error


def _common_bytes(
    source_fd: int, target_fd: int, start: int, end: int, ends: Ends, check: Callable[[], None]
) -> int:
    """Find the position up to which two files agree.

    Raises:
        OSError: the target's file cannot be read.
        LogStoreError: the source's file cannot be read.
    """
    position = start
    while position < end:
        check()
        size = min(COMPARE_BYTES, end - position)
        try:
            expected = files.read_up_to(source_fd, size, position)
        except OSError as error:
            raise ends.source.failed(error) from error
        found = files.read_up_to(target_fd, size, position)
        if expected != found:
            return position + _same_bytes(expected, found)
        position += size
    return end


def _same_bytes(one: bytes, other: bytes) -> int:
    """Count how many of the first bytes are equal in `one` and `other`."""
    size = min(len(one), len(other))
    pairs = np.frombuffer(one, np.uint8, size) != np.frombuffer(other, np.uint8, size)
    return int(pairs.argmax()) if pairs.any() else size
