"""Read a log that another process owns and may be writing: no lock, no map, no write.

Every read first checks whether the directory changed (rolled, truncated, retained) or the last
segment grew. A batch that is not whole at the very end is not yet written. If a file is gone, the
view lists the directory again, then raises OffsetOutOfRangeError; the log dir never counts as
failed. Appended records are visible before they are flushed: after a power cut the owner may give
their offsets to others. So it may after a Ctrl-C between the write of a batch and the return of its
append: the batch is removed, although a reader may have seen it.

A listing is no snapshot: its names are read one after the other while the owner works. So the end
of a segment is trusted only if its file and the next segment's existed at the same moment. A
segment whose file or successor was replaced is read again.
"""

from __future__ import annotations

import errno
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from os.path import join
from typing import NamedTuple, NoReturn

from logstore.arguments import callback, timeout_of, whole
from logstore.disk import files
from logstore.disk.log_dir import LogDir
from logstore.errors import (
    CorruptIndexError,
    CorruptRecordBatchError,
    LogClosedError,
    LogStoreError,
    ReadOnlyStoreError,
    UnknownPartitionError,
)
from logstore.format.batch import Record
from logstore.log import small_files
from logstore.log.environment import LogEnvironment
from logstore.log.metadata import SPARSE_OFFSETS, PartitionMetadata
from logstore.log.reader import LogReader
from logstore.log.recovery.report import Problem, RecoveryEntry
from logstore.log.replica import View, view_of
from logstore.log.segments import trailer as trailers
from logstore.log.segments.listing import SegmentFiles, list_partition
from logstore.log.segments.scan import Progress, Scan
from logstore.log.segments.segment import Segment
from logstore.log.write.encode import TIMESTAMP_MAX
from logstore.names import parse_dir_name, segment_file_name

POLL_SECONDS_MIN, POLL_SECONDS_MAX = 0.005, 0.05
# A directory that changed this recently may change again within the same tick of the clock.
MTIME_DOUBT_NS = 20_000_000
LOOKS_MAX = 20
Believed = small_files.SmallFiles | None


def open_view(
    log_dir: LogDir,
    name: str,
    environment: LogEnvironment,
    kind: type[LogView] | None = None,
    checkpointed: small_files.Checkpointed | None = None,
) -> LogView:
    """Open the log in the directory `name` for reading beside its owner; raises LogStoreError."""
    parsed = parse_dir_name(name)
    assert parsed is not None
    directory = join(log_dir.path, name)
    try:
        metadata = small_files.metadata_or_stand_in(directory, parsed)
        view = (kind or LogView)(log_dir, directory, metadata, environment)
        view.checkpointed = checkpointed or view.checkpointed
        view.relist()
    except FileNotFoundError as error:
        raise UnknownPartitionError(topic=parsed.topic, partition=parsed.partition) from error
    except OSError as error:
        raise log_dir.failed(
            error, directory, topic=parsed.topic, partition=parsed.partition
        ) from error
    return view


class Known(NamedTuple):
    """A segment of the view, and the files that its facts came from."""

    row: SegmentFiles
    next_base: int | None
    segment: Segment


class LogView(LogReader):
    """Follows a log that another process writes; it reads as a `Log` does and refuses to write."""

    def __init__(
        self,
        log_dir: LogDir,
        directory: str,
        metadata: PartitionMetadata,
        environment: LogEnvironment,
    ) -> None:
        super().__init__(log_dir, directory, metadata, environment)
        self.recovery = RecoveryEntry(self.topic, self.partition, log_dir.path)
        self._refreshing = threading.Lock()
        self._known: dict[int, Known] = {}
        self._seen: tuple[int, int] | None = None
        # The walk along the last segment, which segment that is, and the last bytes walked over.
        self._scan: Scan | None = None
        self._last: Segment | None = None
        self._last_checksum: int | None = None
        # Opens the store's current log of this partition; set by a store.
        self.find_anew: Callable[[], LogReader | None] = lambda: None
        self.checkpointed = small_files.Checkpointed()  # of the log dir, when the log was opened

    # --- following ------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Check the directory for changes; if a file vanishes meanwhile, check again."""
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
                raise self._failed(error) from error
        raise self._gone()

    def _is_there(self) -> bool:
        try:
            return files.exists(self._directory)
        except OSError as error:
            raise self._failed(error) from error

    def _follow_move(self) -> bool:
        """Continue where a move has put the replica; False if it is gone."""
        found = self.find_anew()
        if found is None or found.topic_id != self.topic_id:
            return False
        with self._refreshing:
            if found.directory != self._directory:
                self._log_dir, self._directory = found._log_dir, found.directory
                self._forget_known([])
                self._known, self._seen, self._last = {}, None, None
        return True

    def _look_twice(self, offset: int, seen: View, error: CorruptRecordBatchError) -> None:
        """Read the directory again: apparent damage may have been a change under way."""
        before = self._facts_of(offset)
        self._look_anew()
        if not self.log_start_offset <= offset < self.log_end_offset:
            raise self._out_of_range(offset) from error
        if self._view is seen and self._facts_of(offset) == before:
            raise error

    def _facts_of(self, offset: int) -> tuple[int, int] | None:
        """Give the facts of an offset's segment that may change while the view stays the same."""
        segments, bases = self._view
        number = bisect_right(bases, offset) - 1
        return None if number < 0 else (segments[number].size_bytes, segments[number].end_offset)

    def _look(self) -> None:
        facts = files.stat(self._directory)
        seen = (facts.st_mtime_ns, facts.st_ino)
        is_doubtful = time.time_ns() - facts.st_mtime_ns < MTIME_DOUBT_NS
        if seen != self._seen or is_doubtful:
            self.relist()
            self._seen = None if is_doubtful else seen
        elif self._view[0]:
            self._grow(self._view[0][-1])

    def relist(self) -> None:
        """List the directory again, keeping what is known of unchanged files."""
        old, small = self._known, self._read_small_files()
        if small is not None:
            old = {} if small.metadata.topic_id != self.topic_id else old
            self._metadata, self.recovery.warnings = small.metadata, small.warnings
        rows = self._rows()
        if not rows:  # this happens if a directory was renamed after it had given its names
            files.stat(self._directory)
        known = {
            row.base_offset: self._take(row, old.get(row.base_offset), follower)
            for row, follower in zip(rows, [*rows[1:], None], strict=False)
        }
        segments = [one.segment for one in known.values()]
        self._forget_known(segments)
        end_offset = segments[-1].end_offset if segments else 0
        self._known, self._log_start_offset = known, self._start_of(rows, small, end_offset)
        if segments != list(self._view[0]):
            self._view = view_of(segments)

    def _forget_known(self, stayed: list[Segment]) -> None:
        """Release the files of segments that are gone or were replaced."""
        ids = set(map(id, stayed))
        for one in self._known.values():
            if id(one.segment) not in ids:
                one.segment.is_dropped = True
                one.segment.forget(self._environment)

    def _read_small_files(self) -> Believed:
        """Read the small files; raises OSError, LogStoreError."""
        place, told = (self._directory, self.topic, self.partition), self.checkpointed
        return small_files.read_small_files(*place, told, self._rows, lambda: self.topic_id)

    def _rows(self) -> list[SegmentFiles]:
        """List the segments; raises OSError."""
        return list_partition(self._directory).segments

    def _start_of(
        self, rows: list[SegmentFiles], small: small_files.SmallFiles | None, end_offset: int
    ) -> int:
        """Give the log start from its small files, whatever its first segment is."""
        if small is None:
            return self._log_start_offset
        return small.start_within(rows[0].base_offset if rows else 0, end_offset)

    def _new_segment(self, row: SegmentFiles) -> Segment:
        segment = Segment(self._directory, row.base_offset)
        segment.is_sparse = bool(self._metadata.extra.get(SPARSE_OFFSETS))
        return segment

    def _take(self, row: SegmentFiles, known: Known | None, follower: SegmentFiles | None) -> Known:
        """Find where a segment ends: from its trailer, from the next segment, or by walking it."""
        segment = None
        if known is not None and known.row.inode == row.inode:
            if follower is not None and known[:2] == (row, follower.base_offset):
                return known
            is_growing = known.segment is self._last and known.segment.index is not None
            if is_growing and row.log_bytes >= known.segment.size_bytes:
                segment = known.segment
        if segment is None:
            segment = self._new_segment(row)
            segment.inode = row.inode
            self._take_trailer(segment, row)
        if follower is None:
            self._grow(segment)
            return Known(row, None, segment)
        if segment.seal is None:
            self._settle(segment, row, follower)
        return Known(row, follower.base_offset, segment)

    def _settle(self, segment: Segment, row: SegmentFiles, follower: SegmentFiles) -> None:
        """Let a segment end where the next one begins, which was begun after its last batch.

        Both existed at one moment if the listed file is still there after the next one was seen: a
        truncation removes the next one first.
        """
        files.stat(join(self._directory, segment_file_name(follower.base_offset, ".log")))
        facts = files.stat(segment.log_path)
        if facts.st_ino != row.inode or facts.st_size < segment.size_bytes:
            raise FileNotFoundError(errno.ENOENT, "replaced meanwhile", segment.log_path)
        if facts.st_size != segment.size_bytes or segment.max_timestamp < 0:
            segment.max_timestamp = TIMESTAMP_MAX  # it grew unseen: it may hold any timestamp
        segment.size_bytes, segment.end_offset = facts.st_size, follower.base_offset
        segment.index = segment.time_index = None

    def _take_trailer(self, segment: Segment, row: SegmentFiles) -> None:
        trailer = trailers.read_trailer(segment.index_path, row.index_bytes)
        ours = (self.topic_id, self.partition, row.base_offset, row.log_bytes)
        if trailer is None or ours != (
            trailer.topic_id,
            trailer.partition,
            trailer.base_offset,
            trailer.log_bytes,
        ):
            return
        segment.end_offset, segment.size_bytes = trailer.end_offset, trailer.log_bytes
        segment.last_position, segment.last_epoch = trailer.last_position, trailer.last_leader_epoch
        segment.max_timestamp = trailer.max_timestamp
        segment.seal = (trailer.first_checksum, trailer.last_position, trailer.last_checksum)

    def _begin_scan(self, segment: Segment) -> None:
        """Begin to follow the last segment, from what its index files record."""
        self._last, self._last_checksum = segment, None
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
        """Walk what was appended to the last segment since the last check."""
        if segment is not self._last or segment.index is None:
            self._begin_scan(segment)
        scan = self._scan
        assert scan is not None
        handle = segment.handle(self._environment)
        fd = handle.fd
        if self._last_checksum is not None and self._tail_of(fd, scan) != self._last_checksum:
            self._last = None  # a later file may get the same inode number
            raise FileNotFoundError(errno.ENOENT, "replaced by another file", segment.log_path)
        end = files.fstat(fd).st_size
        if end > scan.position:
            before = scan.position
            scan.run(fd, end)
            if scan.position > before:
                self._last_checksum = self._tail_of(fd, scan)
                segment.take(scan)

    def _tail_of(self, fd: int, scan: Scan) -> int:
        """Read the checksum of the last batch that was walked."""
        return trailers.stored_checksum(fd, scan.last_position, scan.good_end)

    def _look_anew(self) -> None:
        self._seen = None
        self._refresh()

    def _stale(self, segment: Segment) -> None:
        self._look_anew()

    def _retry(self, segment: Segment, offset: int, error: FileNotFoundError) -> None:
        self._look_anew()
        if not self.log_start_offset <= offset < self.log_end_offset:
            raise self._out_of_range(offset) from error
        if segment in self._view[0] and not segment.is_dropped:
            raise self._out_of_range(offset) from error

    def _gone(self) -> LogStoreError:
        return UnknownPartitionError(topic=self.topic, partition=self.partition)

    def record_at(self, offset: int) -> Record:
        """Give one record; raises OffsetOutOfRangeError if there is none."""
        self._refresh()
        return super().record_at(offset)

    def wait_for(self, offset: int, timeout: float | None) -> bool:
        """Wait until the record at `offset` exists; False if the time ends first."""
        offset, timeout = whole(offset, "offset"), timeout_of(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = POLL_SECONDS_MIN
        while True:
            self._check()
            self._refresh()
            if self.log_end_offset > offset:
                return True
            if deadline is not None:
                pause = min(pause, deadline - time.monotonic())
                if pause <= 0:
                    return False
            time.sleep(pause)
            pause = min(pause * 1.5, POLL_SECONDS_MAX)

    def verify(self, progress: Progress | None = None) -> list[Problem]:
        """Check every batch, and that the segments are contiguous; returns the damage."""
        from logstore.log.recovery.verification import verify_all

        return verify_all(self, callback(progress, "progress"), is_owner=False)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Refuse: another process owns this log."""
        raise ReadOnlyStoreError(path=self._directory)

    append = extend = append_arrow = appender = append_as_follower = append_encoded = _refuse
    flush = subscribe = truncate_to = delete_records_before = repair = _refuse
    apply_retention = _set_config = _refuse

    @property
    def recovery_point(self) -> int:
        """Raise ReadOnlyStoreError: only the owner knows what it has flushed."""
        reason = "only the process that owns the store knows what is flushed: ask it"
        raise ReadOnlyStoreError(reason, path=self._directory)

    def detach(self, reason: LogStoreError, of: LogDir | None = None) -> None:
        """Release every file; from now on every call raises a copy of `reason`. See `Log`."""
        if of is not None and of is not self._log_dir:
            return
        kind, message, facts = type(reason), str(reason), reason.facts
        self._unavailable = lambda: kind(message, **facts)
        for segment in self._view[0]:
            segment.leave(self._environment)

    def close(self, flush: bool = True) -> None:
        """Release every file; closing twice is allowed."""
        if self._unavailable is None:
            name = f"{self.topic}-{self.partition}"
            reason = f"the log {name} was closed: ask the store for it again"
            self.detach(LogClosedError(reason=reason))
