"""Describe one segment that a Kafka broker wrote, and list the segments of a directory.

Kafka's indexes are only hints for where to read. If a compaction was interrupted, this module
chooses the same segments that Kafka would choose at its next start.

    X.log                 a segment; X is its base offset
    X.log.swap            a compacted segment, about to replace the segments that have its offsets
    X.log.cleaned         an unfinished compacted segment; not read
    X.log.deleted         a segment that is about to be removed; not read
    X.index X.timeindex   hints
    X.txnindex X.snapshot leader-epoch-checkpoint    not needed
"""

from __future__ import annotations

import os

import numpy as np

from logstore.disk import files
from logstore.format import layouts
from logstore.format.prefix import PREFIX_BYTES, unpack_prefix
from logstore.log.environment import LogEnvironment
from logstore.log.segments.listing import SegmentFiles, check_is_file
from logstore.log.segments.offset_index import OffsetIndex
from logstore.log.segments.scan import Scan
from logstore.log.segments.segment import Segment
from logstore.log.segments.time_index import TimeIndex
from logstore.names import parse_segment_file_name

LOG, SWAP, CLEANED = ".log", ".log.swap", ".cleaned"
# In a segment below this size, a read uses no index, and walks from the segment's start.
HINTED_BYTES_MIN = 1 << 20
HINTS_MAX = 512


class KafkaSegment(Segment):
    """A segment that a broker wrote; its index in memory is made from Kafka's index entries."""

    __slots__ = ("suffix",)

    def __init__(self, directory: str, base_offset: int, suffix: str = LOG) -> None:
        super().__init__(directory, base_offset)
        self.suffix = suffix

    @property
    def log_path(self) -> str:
        """Path of the record batches."""
        return self._beside(LOG)

    def _beside(self, suffix: str) -> str:
        """Give the path of the segment's file with `suffix`; a `.swap` file has its own indexes."""
        return os.path.join(
            self.directory,
            f"{self.base_offset:020d}{suffix}{self.suffix.removeprefix(LOG)}",
        )

    @property
    def index_path(self) -> str:
        """Path of the offset index."""
        return self._beside(".index")

    @property
    def time_index_path(self) -> str:
        """Path of the time index."""
        return self._beside(".timeindex")

    @property
    def aborted_index_path(self) -> str:
        """Path of the list of aborted transactions."""
        return self._beside(".txnindex")

    def _load_indexes(self, environment: LogEnvironment) -> tuple[OffsetIndex, TimeIndex]:
        index = self._hinted(environment)
        if index is None:
            return self._keep_indexes(environment, *self.rebuild_indexes(environment))
        return self._keep_indexes(environment, index, TimeIndex())

    def _hinted(self, environment: LogEnvironment) -> OffsetIndex | None:
        """Make an index from some of Kafka's entries; return None if an entry is wrong."""
        index = OffsetIndex()
        if self.size_bytes < HINTED_BYTES_MIN:
            return index
        try:
            data = files.read_file(self.index_path, files.LIST_BYTES_MAX)
        except (FileNotFoundError, files.UnfitError):
            return None
        # An entry has two big-endian u32: the last relative offset of an append, and its position.
        entries = np.frombuffer(data, ">u4", len(data) // 8 * 2).reshape(-1, 2).astype(np.int64)
        entries = entries[: int(np.count_nonzero(entries[:, 1]))]
        handle = self.handle(environment)
        fd = handle.fd
        for relative_offset, position in entries[:: len(entries) // HINTS_MAX + 1].tolist():
            head = files.read_up_to(fd, PREFIX_BYTES, position)
            if len(head) < PREFIX_BYTES or head[layouts.MAGIC_AT] != layouts.KAFKA_MAGIC:
                return None
            relative = unpack_prefix(head)[0] - self.base_offset
            least = index.offsets[-1] if len(index) else 0
            if not least < relative <= relative_offset:
                return None
            if len(index) and position <= index.positions[-1]:
                return None
            index.append(relative, position)
        return index


def list_kafka_segments(directory: str) -> list[tuple[SegmentFiles, str]]:
    """List the segments that Kafka would open, in order, with their suffixes. Raises OSError."""
    rows: dict[str, dict[int, SegmentFiles]] = {LOG: {}, SWAP: {}}
    unfinished = 2**63
    for entry in files.entries(directory):
        if entry.name.endswith(CLEANED):
            parsed = parse_segment_file_name(entry.name.removesuffix(CLEANED))
            unfinished = min(unfinished, parsed[0] if parsed else unfinished)
        is_swap = entry.name.endswith(SWAP)
        name = entry.name.removesuffix(".swap") if is_swap else entry.name
        parsed = parse_segment_file_name(name)
        if parsed is not None and parsed[1] == LOG:
            check_is_file(directory, entry)
            row = SegmentFiles(parsed[0], entry.size_bytes, -1, -1, entry.inode, entry.mtime_ns)
            rows[SWAP if is_swap else LOG][row.base_offset] = row
    found = {base: (row, LOG) for base, row in rows[LOG].items()}
    for base, row in rows[SWAP].items():
        # Skip a later part of a split segment if the first part is unfinished (KAFKA-6264).
        if base >= unfinished:
            continue
        end = _end_offset(os.path.join(directory, f"{base:020d}{SWAP}"), row)
        for covered in [other for other in found if base <= other < end]:
            del found[covered]
        found[base] = (row, SWAP)
    return [found[base] for base in sorted(found)]


def _end_offset(path: str, row: SegmentFiles) -> int:
    """Walk a file to find the offset after its last record."""
    fd = files.open_regular(path, files.READ)
    try:
        scan = Scan(row.base_offset)
        scan.run(fd, row.log_bytes)
    finally:
        files.close(fd)
    return max(scan.offset, row.base_offset + 1)
