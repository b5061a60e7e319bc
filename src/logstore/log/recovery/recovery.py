"""Recover a log from its files on the disk.

The part of a segment that a trailer describes was flushed before the trailer was written. So
recovery reads only the bytes after that part. After a clean stop, trailers describe all bytes.
Recovery distinguishes two kinds of damage in the bytes that it reads:

- a **torn tail**: no whole batch follows the damage, and the damage is after the recovery point. A
  crash leaves a torn tail. The tail is cut, and reported.
- **corruption**: any other damage. Nothing is cut, and the problem is reported. Until a `repair`,
  the log can be read, but not written.

Recovery may be interrupted at any point and run again. An OSError ends the recovery, because bytes
that the disk cannot read must not be cut.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from logstore.disk import bulk, files
from logstore.errors import CorruptIndexError
from logstore.log.environment import LogEnvironment
from logstore.log.metadata import SPARSE_OFFSETS, PartitionMetadata
from logstore.log.recovery.dense_scan import scan_class
from logstore.log.recovery.known_damage import falling_batches
from logstore.log.recovery.ownership import Owner, is_ours, owner_of
from logstore.log.recovery.recovered import Recovered
from logstore.log.recovery.replacements import list_settled
from logstore.log.recovery.report import DamageName, Problem, RecoveryEntry
from logstore.log.recovery.sparse_ends import lacks_end
from logstore.log.segments import trailer as trailers
from logstore.log.segments.listing import SegmentFiles
from logstore.log.segments.scan import Damage, Progress, Scan
from logstore.log.segments.segment import Segment

FIRST_BATCH_BYTES_MAX = 1 << 20
NEVER = 2**63
# If a recovery point is this far after the log end, the recovery point is wrong.
# The reason is that a disk does not lose this many flushed records.
MISSING_MAX = 2**40


class Recovery:
    """The recovery of one log."""

    def __init__(
        self,
        directory: str,
        metadata: PartitionMetadata,
        environment: LogEnvironment,
        entry: RecoveryEntry,
        *,
        recovery_point: int | None,
        progress: Progress | None = None,
        check: Callable[[], None] = lambda: None,
        from_disk: bool = False,
        is_start_confirmed: bool = True,
    ) -> None:
        # `check` is called before each change.
        # If the store gave up the log dir meanwhile, `check` raises an error.
        self._check = check
        self._from_disk = from_disk  # after a failed sync, the kernel's cache may be wrong
        # If only one file has this log start, earlier records are hidden, but not deleted.
        self._is_start_confirmed = is_start_confirmed
        self.directory = directory
        self.metadata = metadata
        self.environment = environment
        self.entry = entry
        self.recovery_point = recovery_point or 0
        self.progress = progress
        self.segments: list[Segment] = []
        self.damages: dict[int, list[Damage]] = {}
        self.scanned: dict[int, Scan] = {}
        self.epochs: list[tuple[int, int]] = []
        self.magic, self.indexed_bytes = 0, -1
        self._entries: bytes | memoryview = b""
        self._last_filled = -1

    def run(self) -> Recovered:
        """Recover the log. Raises OSError."""
        listing = list_settled(self.directory, self.entry.warnings, self._check)
        self.entry.warnings += listing.warnings
        for name in listing.temporary:
            self._check()
            files.remove_if_there(os.path.join(self.directory, name))
            self.entry.warnings.append(f"{name}: removed, because a crash left it incomplete")
        rows = self._drop_below_start(listing.segments)
        self._last_filled = max([row.base_offset for row in rows if row.log_bytes > 0], default=-1)
        for number, row in enumerate(rows):
            next_base = rows[number + 1].base_offset if number + 1 < len(rows) else NEVER
            self._take(row, next_base)
        self._cut_torn_tail()
        self._judge(listing.orphans)
        if self.scanned and self.entry.state == "clean":
            self.entry.state = "recovered"
        if self.entry.problems:
            self.entry.state = "corrupt"
        unflushed = [s for s in self.segments if s.base_offset in self.scanned]
        durable = unflushed[0].base_offset if unflushed else self._end_offset()
        of_producers = [base for base, scan in self.scanned.items() if scan.has_producers]
        return Recovered(
            self.segments,
            unflushed,
            max(durable, self.recovery_point),
            self.epochs,
            listing.snapshots,
            min(of_producers, default=None),
            self.magic,
            self.indexed_bytes,
        )

    def _drop_below_start(self, rows: list[SegmentFiles]) -> list[SegmentFiles]:
        """Finish an interrupted retention: remove segments before the log start.

        Segments of another topic are kept. If only one small file has this log start, all segments
        are kept.
        """
        start = self.metadata.log_start_offset
        if not self._is_start_confirmed:
            return rows
        if len(rows) > 1 and rows[1].base_offset <= start:
            # Sync the log start first, because a killed process may have written it without a sync.
            files.sync_dir(self.directory)
        while len(rows) > 1 and rows[1].base_offset <= start:
            segment = Segment(self.directory, rows[0].base_offset)
            trailer = self._trailer_of(segment, rows[0])
            if trailer is not None and not is_ours(self.metadata, segment, trailer):
                break
            for path in segment.paths:
                self._check()
                files.remove_if_there(path)
            rows = rows[1:]
        return rows

    def _end_offset(self) -> int:
        return self.segments[-1].end_offset if self.segments else 0

    # --- one segment --------------------------------------------------------------------------

    def _take(self, row: SegmentFiles, next_base: int) -> None:
        """Add a segment: use its trailer, and scan the bytes that the trailer does not describe."""
        is_last = next_base == NEVER
        segment = Segment(self.directory, row.base_offset)
        segment.is_sparse = bool(self.metadata.extra.get(SPARSE_OFFSETS))
        self.segments.append(segment)
        self.magic, self.indexed_bytes, self._entries = 0, -1, b""  # these describe `segment`
        trailer, is_foreign = self._own_trailer(segment, row, is_last)
        if is_foreign:
            return
        if trailer is not None and trailer.log_bytes <= row.log_bytes:
            segment.end_offset = trailer.end_offset
            segment.size_bytes = trailer.log_bytes
            segment.last_position = trailer.last_position
            segment.max_timestamp = trailer.max_timestamp
            segment.last_epoch = trailer.last_leader_epoch
            if trailer.log_bytes == row.log_bytes and not is_last:
                segment.seal = (
                    trailer.first_checksum,
                    trailer.last_position,
                    trailer.last_checksum,
                )
                return
            # More batches may follow the described part. The indexes must be able to grow.
            if not self._load_growing_indexes(segment, row, trailer):
                trailer = None
            elif trailer.log_bytes == row.log_bytes:
                self.indexed_bytes = trailer.log_bytes
                return
        elif trailer is None and row.index_bytes > 0:
            self.entry.rebuilt_indexes += 1
        self._scan(segment, row, trailer, next_base)
        if trailer is not None and trailer.end_offset > segment.end_offset:
            self._damage(
                segment,
                Damage(
                    row.log_bytes,
                    row.log_bytes,
                    segment.end_offset,
                    trailer.end_offset,
                    f"the file has {row.log_bytes} of its {trailer.log_bytes} bytes",
                ),
            )

    def _own_trailer(
        self, segment: Segment, row: SegmentFiles, is_last: bool
    ) -> tuple[trailers.Trailer | None, bool]:
        """Read a segment's trailer; also return whether the segment belongs to another log."""
        if is_last:  # this segment grows, so its indexes are needed now
            self._entries, trailer = trailers.read_growing(segment.index_path, row.index_bytes)
        else:
            trailer = self._trailer_of(segment, row)
        if trailer is None:
            return None, False
        owner, self.magic = owner_of(self.metadata, segment, row, trailer)
        if owner is Owner.ANOTHER:
            end_offset = max(trailer.end_offset, segment.base_offset)
            place = 0, row.log_bytes, segment.base_offset, end_offset
            self._damage(segment, Damage(*place, "this segment belongs to another log"))
            return None, True
        if owner is Owner.UNKNOWN:
            return None, False
        self.recovery_point = max(self.recovery_point, trailer.end_offset)
        self.epochs.append((trailer.last_leader_epoch, -1))
        return trailer, False

    def _trailer_of(self, segment: Segment, row: SegmentFiles) -> trailers.Trailer | None:
        return trailers.read_trailer(segment.index_path, row.index_bytes)

    def _load_growing_indexes(
        self, segment: Segment, row: SegmentFiles, trailer: trailers.Trailer
    ) -> bool:
        entries = self._entries
        try:
            if not entries:  # the segment is sealed, but is longer than its trailer says
                entries, _ = trailers.read_growing(segment.index_path, row.index_bytes)
            index = trailers.index_in(entries, trailer, segment.index_path, growing=True)
            segment.time_index = trailers.read_time_index(
                segment.time_index_path, trailer, growing=True, file_bytes=row.time_index_bytes
            )
        except (CorruptIndexError, FileNotFoundError):
            self.entry.rebuilt_indexes += 1
            return False
        segment.index = index
        return True

    def _scan(
        self,
        segment: Segment,
        row: SegmentFiles,
        trailer: trailers.Trailer | None,
        limit_offset: int,
    ) -> None:
        """Check and index the batches that no trailer describes."""
        if trailer is None or segment.index is None or segment.time_index is None:
            segment.begin_indexes()
            trailer = None
        scan = scan_class(self.metadata, segment)(
            segment.base_offset,
            index=segment.index,
            time_index=segment.time_index,
            interval_bytes=self.metadata.config.index_interval_bytes,
            limit_offset=limit_offset,
        )
        if trailer is not None:
            scan.position = scan.good_end = trailer.log_bytes
            scan.offset = trailer.end_offset
            scan.max_timestamp, scan.last_epoch = trailer.max_timestamp, trailer.last_leader_epoch
            scan.last_position = trailer.last_position
        if self._from_disk:
            bulk.forget_clean(segment.log_path)
        fd = files.open_regular(segment.log_path, files.READ)
        try:
            start = scan.position
            while (reason := scan.run(fd, row.log_bytes, self.progress)) is not None:
                self._damage(segment, scan.skip_damage(fd, row.log_bytes, reason))
        finally:
            files.close(fd)
        segment.take(scan)
        segment.seal = None
        may_lack = segment.is_sparse and row.log_bytes and limit_offset != NEVER
        if (
            may_lack
            and not self.damages.get(scan.base_offset)
            and lacks_end(self.metadata, limit_offset, self.recovery_point, self._last_filled)
        ):
            segment.end_offset = limit_offset
        self.scanned[segment.base_offset] = scan
        self.epochs += scan.epochs
        self.entry.scanned_bytes += row.log_bytes - start
        self.entry.scanned_batches += scan.batches

    def _damage(self, segment: Segment, damage: Damage) -> None:
        self.damages.setdefault(segment.base_offset, []).append(damage)

    # --- all segments -------------------------------------------------------------------------

    def _cut_torn_tail(self) -> None:
        """If the bytes after the last whole batch are only a torn tail, cut them off."""
        last = len(self.segments) - 1
        while last > 0 and self._holds_nothing(last):
            last -= 1
        if last < 0:
            return
        segment = self.segments[last]
        damages = self.damages.get(segment.base_offset, [])
        torn = damages[-1] if damages and damages[-1].end_offset is None else None
        follows = self.segments[last + 1 :]
        starts_right = bool(follows) and follows[0].base_offset == segment.end_offset
        if torn is not None:
            if torn.offset < self.recovery_point or segment.base_offset not in self.scanned:
                return
            self._cut(segment, torn.position)
            self.entry.cut_bytes += torn.end_position - torn.position
            self.entry.cut_reason = torn.reason
            damages.pop()
            starts_right = False
        if follows and segment.end_offset >= self.recovery_point:
            kept = 1 if starts_right and not self.damages.get(follows[0].base_offset) else 0
            for empty in follows[kept:]:
                self._remove_empty(empty)
            if kept and follows[0].size_bytes:
                self._cut(follows[0], 0)

    def _holds_nothing(self, number: int) -> bool:
        segment = self.segments[number]
        return (
            segment.end_offset == segment.base_offset
            and segment.last_position == 0
            and (segment.max_timestamp == -1)
        )

    def _cut(self, segment: Segment, position: int) -> None:
        fd = files.open_regular(segment.log_path, files.READ_WRITE)
        try:
            self._check()
            files.ftruncate(fd, position)
            files.sync_file(fd)
        finally:
            files.close(fd)
        segment.size_bytes = position
        self.magic, self.indexed_bytes = 0, -1

    def _remove_empty(self, segment: Segment) -> None:
        """Remove a segment without a whole batch: it was created just before the crash."""
        for damage in self.damages.pop(segment.base_offset, []):
            self.entry.cut_bytes += damage.end_position - damage.position
            self.entry.cut_reason = self.entry.cut_reason or damage.reason
        for path in segment.paths:
            self._check()
            files.remove_if_there(path)
        files.sync_dir(self.directory)
        self.magic, self.indexed_bytes = 0, -1
        self.segments.remove(segment)
        self.scanned.pop(segment.base_offset, None)

    def _judge(self, orphans: list[SegmentFiles]) -> None:
        """Report remaining damage, and every gap between segments, as problems."""
        expected = start = self.metadata.log_start_offset
        if self.segments:  # some segments may be before the log start
            expected = min(start, self.segments[0].base_offset)
        bases = [segment.base_offset for segment in self.segments[1:]]
        for segment, next_base in zip(self.segments, [*bases, -1], strict=False):
            base, path = segment.base_offset, segment.log_path
            if base > expected:
                reason = f"the segments before this one, offsets {expected} to {base}, are missing"
                self._report(path, 0, 0, reason, expected, base, DamageName.HOLE)
                expected = base
            elif base < expected and segment is not self.segments[0]:
                reason = (
                    f"the segment overlaps the previous segment, which ends at offset {expected}"
                )
                self._report(path, 0, 0, reason, base, base)
            for damage in self.damages.get(base, []):
                end_offset = damage.end_offset
                if end_offset is None:
                    end_offset = max(damage.offset, next_base)
                self._report(
                    path, damage.position, damage.end_position, damage.reason,
                    damage.offset, end_offset,
                )  # fmt: skip
                expected = max(expected, end_offset)
            expected = max(segment.end_offset, expected)
        self._judge_end(max(expected, start if self._is_start_confirmed else 0), orphans)
        self.entry.findings += falling_batches(self.segments, self.scanned)

    def _judge_end(self, expected: int, orphans: list[SegmentFiles]) -> None:
        """Report flushed records that are missing at the end of the log."""
        end = self.recovery_point
        for row in orphans:
            orphan = Segment(self.directory, row.base_offset)
            trailer = self._trailer_of(orphan, row)
            if trailer is not None and is_ours(self.metadata, orphan, trailer):
                end = max(end, trailer.end_offset)
        if end > expected + MISSING_MAX:
            self.entry.warnings.append(
                f"the recovery point {end} is ignored, because the log ends at offset {expected}"
            )
        elif end > expected:
            last = self.segments[-1] if self.segments else None
            path = self.directory if last is None else last.log_path
            position = 0 if last is None else last.size_bytes
            reason = f"flushed records are missing: offsets {expected} to {end}"
            self._report(path, position, position, reason, expected, end, DamageName.HOLE)

    def _report(self, *fields: Any) -> None:
        self.entry.problems.append(Problem(*fields))
