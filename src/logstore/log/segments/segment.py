"""Describe a segment of a log: a file of record batches, its range of offsets, and its indexes.

Invariants: `base_offset <= end_offset`; batches are contiguous; bytes below `size_bytes` never
change while the object is in use. Only the active segment grows: the appending thread writes the
batch, then the index entry, then `size_bytes`, then `end_offset`. So a reader that reads
`end_offset` first finds all batches before that offset. If a truncation replaces a segment or
retention removes it, the segment is marked `is_dropped` before its file is removed. If a reader
fails on a dropped segment, the reader takes the log's new view.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from typing import Any

from logstore.disk import files
from logstore.disk.spare import relieved
from logstore.errors import CorruptIndexError, CorruptRecordBatchError
from logstore.format import layouts
from logstore.format.batch import RecordBatch
from logstore.format.prefix import LENGTH_OVERHEAD_BYTES, unpack_prefix
from logstore.log.environment import LogEnvironment
from logstore.log.segments import trailer as trailers
from logstore.log.segments.cache import Cached, Handle
from logstore.log.segments.offset_index import OffsetIndex
from logstore.log.segments.scan import Scan
from logstore.log.segments.time_index import TimeIndex
from logstore.names import segment_file_name

NOT_WRITTEN_HERE = 2**63
SOUND_SPANS_MAX = 64  # if there are more spans, the span with the lowest position is forgotten
HANDLE, WRITER, INDEX, TIME_INDEX = "handle", "writer", "index", "time_index"


class Block:
    """The decoded batches between two index entries, for reads of single records."""

    __slots__ = ("bases", "batches", "end_offset", "plain")

    def __init__(self, batches: list[RecordBatch], end_offset: int) -> None:
        self.batches = batches
        self.bases = [batch.header.base_offset for batch in batches]
        self.end_offset = end_offset
        self.plain = batches[0].plain_cells() if len(batches) == 1 else None

    def batch_for(self, offset: int) -> RecordBatch:
        """Find the batch that contains an offset, among the batches of this block."""
        return self.batches[bisect_right(self.bases, offset) - 1]


class Segment:
    """A segment's offsets, sizes and indexes.

    A store has tens of thousands of segments, so this object is small.
    """

    __slots__ = (
        "_verified",
        "base_offset",
        "cached",
        "directory",
        "end_offset",
        "first_time_ms",
        "index",
        "inode",
        "is_checked",
        "is_dropped",
        "is_left",
        "is_sparse",
        "last_epoch",
        "last_position",
        "latest",
        "max_timestamp",
        "modified_ns",
        "seal",
        "size_bytes",
        "sound_from",
        "sound_spans",
        "tail",
        "time_index",
    )

    def __init__(self, directory: str, base_offset: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.size_bytes = 0
        self.last_position = 0
        self.max_timestamp = -1
        # The last result of `time_search`: the size of the segment then, and its latest record.
        # If no record had a time, the latest record is None.
        # Any thread may replace this pair.
        self.latest: tuple[int, tuple[int, int] | None] | None = None
        self.last_epoch = -1
        self.first_time_ms: int | None = None
        # The indexes to which appends add entries. None for a segment whose indexes are in files.
        self.index: OffsetIndex | None = None
        self.time_index: TimeIndex | None = None
        # The position and the checksums in the trailer of a sealed segment.
        self.seal: tuple[int, int, int] | None = (
            None  # first_checksum, last_position, last_checksum
        )
        # These fields identify the file of a segment that another process owns.
        # First the inode number, and the modification time, which is None while the file grows.
        # Then the position, the end and the checksum of the last known batch.
        # The inode number alone is not enough.
        # A file system may give the number of a deleted file to a new file.
        # `inode` is 0 if only this process creates files in the directory.
        self.inode = 0
        self.modified_ns: int | None = None
        self.tail: tuple[int, int, int] | None = None
        self.is_checked = False
        self.is_dropped = False
        # True if the log is closed or unavailable.
        # Then the cache keeps no file of the segment open.
        self.is_left = False
        # True if offsets may be missing in the segment, for example after Kafka's compaction.
        self.is_sparse = False
        # This process wrote the bytes at and after `sound_from`.
        # `sound_spans` has the verified ranges before `sound_from`, in ascending order.
        # Adjacent ranges are merged.
        # `sound_spans` is replaced as a whole.
        # If two threads replace `sound_spans` at once, some bytes are verified twice.
        self.sound_from = NOT_WRITTEN_HERE
        self.sound_spans: tuple[tuple[int, int], ...] = ()
        self.cached: dict[Any, Cached] = {}
        self._verified = bytearray()

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}..{self.end_offset}, {self.size_bytes} bytes)"

    @property
    def log_path(self) -> str:
        """Path of the record batches."""
        return f"{self.directory}/{segment_file_name(self.base_offset, '.log')}"

    @property
    def index_path(self) -> str:
        """Path of the offset index."""
        return f"{self.directory}/{segment_file_name(self.base_offset, '.index')}"

    @property
    def time_index_path(self) -> str:
        """Path of the time index."""
        return f"{self.directory}/{segment_file_name(self.base_offset, '.timeindex')}"

    @property
    def paths(self) -> tuple[str, str, str]:
        """Paths of the segment's files, in the order in which they have to be removed."""
        return self.index_path, self.time_index_path, self.log_path

    def begin_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Set empty indexes, to which appends can add entries; return the empty indexes."""
        index, time_index = OffsetIndex(), TimeIndex()
        self.index, self.time_index = index, time_index
        return index, time_index

    def take(self, scan: Scan) -> None:
        """Set the size and the offsets that a walk over the whole file found."""
        self.size_bytes = scan.good_end  # no whole batch follows, and no reader uses later bytes
        self.last_position = scan.last_position
        self.max_timestamp = scan.max_timestamp
        self.last_epoch = scan.last_epoch
        self.end_offset = scan.offset

    # --- a bit for each batch that was checked since the open -----------------------------------

    def is_verified(self, position: int) -> bool:
        """Check whether the batch at `position` was verified already."""
        at = position >> 8  # each bit is for 32 bytes, because a batch has at least 61 bytes
        bits = self._verified
        return at < len(bits) and bits[at] >> (position >> 5 & 7) & 1 == 1

    def verified_up_to(self, end_position: int) -> bytearray:
        """Return the bits of verified batches, with a bit for every place before `end_position`."""
        missing = (end_position >> 8) + 1 - len(self._verified)
        if missing > 0:
            self._verified.extend(bytes(missing + (end_position >> 11)))
        return self._verified

    def mark_verified(self, position: int) -> None:
        """Remember that the batch at `position` was verified.

        If two threads write at the same time, a bit may be lost. A lost bit does no other harm: a
        batch is verified twice.
        """
        at = position >> 8
        if at >= len(self._verified):
            self._verified.extend(bytes(at + 1 - len(self._verified) + (at >> 3)))
        self._verified[at] |= 1 << (position >> 5 & 7)

    def sound_until(self, position: int) -> int:
        """Return where the verified bytes at `position` end; 0 if the first byte is not verified.

        Bytes that this process wrote count as verified. The result may be after the end of the
        file.
        """
        if position >= self.sound_from:
            return NOT_WRITTEN_HERE
        spans = self.sound_spans
        number = bisect_right(spans, (position, NOT_WRITTEN_HERE)) - 1
        end = spans[number][1] if number >= 0 else 0
        return NOT_WRITTEN_HERE if end >= self.sound_from else end if end > position else 0

    def mark_sound(self, position: int, end_position: int) -> None:
        """Remember that all batches in a range of bytes were verified."""
        kept = []
        for start, end in self.sound_spans:
            if start <= end_position and position <= end:
                position, end_position = min(start, position), max(end, end_position)
            else:
                kept.append((start, end))
        self.sound_spans = tuple(sorted([*kept, (position, end_position)])[-SOUND_SPANS_MAX:])

    # --- files --------------------------------------------------------------------------------

    def handle(self, environment: LogEnvironment) -> Handle:
        """Return the handle of the `.log` for reading; open the file if it is not open.

        The descriptor stays open while the caller has a reference to the handle. So keep a
        reference to the handle, not the number of the descriptor. The descriptor may be closed, and
        another file may then get the same number.

        Raises:
            OSError: FileNotFoundError if the segment was dropped meanwhile.
            CorruptRecordBatchError: the file is not the file that was sealed under this name.
        """
        item = self.cached.get(HANDLE)
        known: Handle | None = None if item is None else item.value
        if item is not None and known is not None:  # an item that was dropped has no value
            item.is_used = True
            return known
        handle = relieved(lambda: Handle(files.open_regular(self.log_path, files.READ)))
        if self.is_dropped:  # another file may have this name now
            raise FileNotFoundError(errno.ENOENT, "the segment was dropped", self.log_path)
        if self.inode and not self._is_same_file(handle.fd):
            raise FileNotFoundError(errno.ENOENT, "another file has this name now", self.log_path)
        if self.seal is not None and not self.is_checked:
            self._check_seal(handle.fd, self.seal)
            self.is_checked = True
        given: Handle = environment.handles.put(self.cached, HANDLE, handle, 1)
        if self.is_dropped or self.is_left:  # without this, the file would stay open
            environment.handles.drop(self.cached, HANDLE)
        return given

    def _is_same_file(self, fd: int) -> bool:
        """Check whether an opened file is the file from which this segment was made."""
        facts = files.fstat(fd)
        if facts.st_ino != self.inode:
            return False
        if self.modified_ns is not None:
            return facts.st_mtime_ns == self.modified_ns
        tail = self.tail
        return tail is None or trailers.stored_checksum(fd, *tail[:2]) == tail[2]

    def writer(self, environment: LogEnvironment) -> Handle:
        """Return the handle of the `.log` for writing; open the file if needed. Raises OSError."""
        item = self.cached.get(WRITER)
        handle: Handle | None = None if item is None else item.value
        if item is not None and handle is not None:
            item.is_used = True
            return handle
        fresh = relieved(lambda: Handle(files.open_regular(self.log_path, files.READ_WRITE)))
        given: Handle = environment.handles.put(self.cached, WRITER, fresh, 1)
        if self.is_left:
            environment.handles.drop(self.cached, WRITER)
        return given

    def _check_seal(self, fd: int, seal: tuple[int, int, int]) -> None:
        """Refuse a file whose first or last batch is whole, but is not the batch that was sealed.

        A damaged batch does not show whether the file is the right file. So this check accepts a
        file with a damaged batch. The reader of the batch reports the damage.
        """
        first_checksum, last_position, last_checksum = seal
        if not self.size_bytes:
            return
        for position, expected in ((0, first_checksum), (last_position, last_checksum)):
            head = files.read_up_to(fd, trailers.CHECKSUM_HEAD_BYTES, position)
            if len(head) < trailers.CHECKSUM_HEAD_BYTES:
                continue
            size = unpack_prefix(head)[1] + LENGTH_OVERHEAD_BYTES
            if not trailers.CHECKSUM_HEAD_BYTES <= size <= self.size_bytes - position:
                continue
            if trailers.stored_checksum(fd, position, position + size) == expected:
                continue
            if layouts.fault(files.read_up_to(fd, size, position), 0, None) is None:
                raise CorruptRecordBatchError(
                    path=self.log_path,
                    position=position,
                    reason="the file's first or last batch is not the batch that was here when "
                    "the segment was sealed",
                )

    def leave(self, environment: LogEnvironment) -> None:
        """Release everything that is cached for this segment; from now on, keep no file open."""
        self.is_left = True
        self.forget(environment)

    def forget(self, environment: LogEnvironment) -> None:
        """Release everything that is cached for this segment."""
        environment.handles.drop(self.cached, HANDLE)
        environment.handles.drop(self.cached, WRITER)
        environment.indexes.drop(self.cached, INDEX)
        environment.indexes.drop(self.cached, TIME_INDEX)
        environment.blocks.drop_all(self.cached)

    # --- indexes ------------------------------------------------------------------------------

    def offset_index(self, environment: LogEnvironment) -> OffsetIndex:
        """Return the offset index: from memory, from its file, or rebuilt from the batches."""
        growing = self.index
        if growing is not None:
            return growing
        item = self.cached.get(INDEX)
        known: OffsetIndex | None = None if item is None else item.value
        if item is not None and known is not None:
            item.is_used = True
            return known
        return self._load_indexes(environment)[0]

    def offset_time_index(self, environment: LogEnvironment) -> TimeIndex:
        """Return the time index: from memory, from its file, or rebuilt from the batches."""
        growing = self.time_index
        if growing is not None:
            return growing
        item = self.cached.get(TIME_INDEX)
        known: TimeIndex | None = None if item is None else item.value
        if item is not None and known is not None:
            item.is_used = True
            return known
        return self._load_indexes(environment)[1]

    def _load_indexes(self, environment: LogEnvironment) -> tuple[OffsetIndex, TimeIndex]:
        try:
            index, trailer = relieved(lambda: trailers.read_index(self.index_path))
            if trailer.log_bytes != self.size_bytes or trailer.base_offset != self.base_offset:
                raise CorruptIndexError(
                    path=self.index_path,
                    position=0,
                    reason="the index file does not describe this segment",
                )
            time_index = trailers.read_time_index(self.time_index_path, trailer)
        except (CorruptIndexError, FileNotFoundError):
            index, time_index = self.rebuild_indexes(environment)
        return self._keep_indexes(environment, index, time_index)

    def _keep_indexes(
        self, environment: LogEnvironment, index: OffsetIndex, time_index: TimeIndex
    ) -> tuple[OffsetIndex, TimeIndex]:
        cache = environment.indexes
        return (
            cache.put(self.cached, INDEX, index, len(index) * 8 + 256),
            cache.put(self.cached, TIME_INDEX, time_index, len(time_index) * 12 + 256),
        )

    def rebuild_indexes(self, environment: LogEnvironment) -> tuple[OffsetIndex, TimeIndex]:
        """Rebuild both indexes from the batches; skip damage in the file."""
        index, time_index = OffsetIndex(), TimeIndex()
        scan = Scan(self.base_offset, index=index, time_index=time_index)
        handle, end = self.handle(environment), self.size_bytes
        fd = handle.fd
        while (reason := scan.run(fd, end)) is not None:
            scan.skip_damage(fd, end, reason)
        return index, time_index

    def replace_indexes(self, environment: LogEnvironment) -> None:
        """Drop both indexes because they are wrong, and rebuild them from the batches."""
        if self.index is not None:
            return
        for key in [key for key in self.cached if isinstance(key, int)]:
            # The number of a block is the number of its index entry.
            environment.blocks.drop(self.cached, key)
        environment.indexes.drop(self.cached, INDEX)
        environment.indexes.drop(self.cached, TIME_INDEX)
        self._keep_indexes(environment, *self.rebuild_indexes(environment))
