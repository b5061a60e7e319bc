"""Build a `.move` directory: its metadata with the marks of the move, and copies of the segments.

The contents of a `.move` directory are used only in one case: the directory has the caught-up mark,
and the source no longer has its live name. The source is renamed under the log's lock, when the
copy is complete. If a `.move` directory exists already, its files are compared with the source byte
by byte. The copying continues after the part in which the copy and the source are equal.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from logstore.disk import bulk, files
from logstore.disk.log_dir import LogDir
from logstore.errors import CorruptCheckpointError, LogDirError
from logstore.format.producer_file import Snapshot
from logstore.log.epochs import LeaderEpochs, OfLog
from logstore.log.metadata import (
    CAUGHT_UP,
    COPYING,
    FILE_NAME,
    MoveRecord,
    PartitionMetadata,
    without_recovery_point_limit,
)
from logstore.log.producers import snapshot_files
from logstore.log.segments.listing import list_partition
from logstore.log.segments.segment import Segment
from logstore.names import NAME_BYTES_MAX, TopicPartition, dir_name, move_dir_name, parse_dir_name
from mover.copying.copy_segments import Ends, SegmentCopy

NOBODYS = "0" * 32  # a move id that no mark has, so that the copy is never resumed


class Target:
    """Manage the `.move` directory of one move.

    Attributes:
        copies: the copy of each segment; the key is the base offset.
        snapshot_offset: the offset of the directory's snapshot of producers; None if there is no
            snapshot.
    """

    def __init__(self, ends: Ends, key: TopicPartition, move_id: str, interval_bytes: int) -> None:
        self.ends = ends
        self.log_dir: LogDir = ends.target
        self.key = key
        self.move_id = move_id
        self.path = os.path.join(self.log_dir.path, move_dir_name(*key, move_id))
        self.live_path = os.path.join(self.log_dir.path, dir_name(*key))
        self.interval_bytes = interval_bytes
        self.copies: dict[int, SegmentCopy] = {}
        self.snapshot_offset: int | None = None
        self._log_start_offset = 0
        self._names_changed = True

    # --- beginning --------------------------------------------------------------------------------

    def check_vacant(self) -> None:
        """Raise LogDirError if the replica's future directory exists already."""
        try:
            is_vacant = not files.exists(self.live_path)
        except OSError as error:
            raise self.log_dir.failed(error, self.live_path, *self.key) from error
        if not is_vacant:
            reason = f"{self.live_path} exists already and is not this replica"
            raise LogDirError(path=self.log_dir.path, reason=reason)

    def begin(self, source: PartitionMetadata) -> None:
        """Create the directory durably, or take over the directory that an earlier run left."""
        metadata = self._metadata(source, COPYING, 0)
        try:
            self.log_dir.check_place()
            self._remove_strangers()
            if not files.exists(self.path):
                files.make_dir(self.path)
            elif self._is_ours(metadata):
                self._take_what_is_there()
            else:
                bulk.remove_tree(self.path)
                files.make_dir(self.path)
            self._write(metadata)
        except OSError as error:
            raise self.log_dir.failed(error, self.path) from error

    def _write(self, metadata: PartitionMetadata) -> None:
        metadata.write(self.path)
        self._log_start_offset = metadata.log_start_offset

    def _remove_strangers(self) -> None:
        """Remove copies of this replica that earlier moves failed to remove."""
        ours = os.path.basename(self.path)
        beginning, end = ours.split(self.move_id)
        # Compare the names of the directories first.
        # With thousands of replicas, a disk call for each name would take too long.
        for name in files.names(self.log_dir.path):
            if name.startswith(beginning) and name.endswith(end) and name != ours:
                path = os.path.join(self.log_dir.path, name)
                if parse_dir_name(name) is not None and self._is_of_this_topic(path):
                    try:
                        bulk.remove_tree(path)
                    except FileNotFoundError:  # the keeper has removed the directory meanwhile
                        files.sync_dir(self.log_dir.path)

    def _is_of_this_topic(self, path: str) -> bool:
        """Report whether a copy is of this replica; if its name is shortened, read its metadata."""
        if len(os.path.basename(path)) < NAME_BYTES_MAX:
            return True
        try:
            found = PartitionMetadata.read(path)
        except CorruptCheckpointError:
            return False  # the next start handles this copy
        return found is not None and found.topic == self.key.topic

    def _is_ours(self, expected: PartitionMetadata) -> bool:
        try:
            found = PartitionMetadata.read(self.path)
        except CorruptCheckpointError:
            return False
        return found is not None and (found.topic_id, found.generation) == (
            expected.topic_id,
            expected.generation,
        )

    def _take_what_is_there(self) -> None:
        listing = list_partition(self.path)
        for name in listing.temporary:
            files.remove_if_there(os.path.join(self.path, name))
        for row in listing.orphans:  # index files without a segment are useless
            for path in Segment(self.path, row.base_offset).paths:
                files.remove_if_there(path)
        snapshot_files.remove(self.path, listing.snapshots)  # the log may have been truncated
        files.sync_dir(self.path)
        for row in listing.segments:
            copy = SegmentCopy(self.path, row.base_offset, self.interval_bytes)
            copy.position, copy.is_synced = row.log_bytes, False
            self.copies[row.base_offset] = copy

    def _metadata(self, source: PartitionMetadata, state: str, end: int) -> PartitionMetadata:
        plain = without_recovery_point_limit(source)
        plain = plain._replace(moving=None, generation=source.generation + 1)
        record = MoveRecord(self.move_id, self.ends.source.directory_id, state, end)
        return plain.with_superseded_by(None).with_move_record(record)

    @property
    def copied_bytes(self) -> int:
        """Bytes copied so far."""
        return sum(copy.position for copy in list(self.copies.values()))

    # --- following the segments of the source -----------------------------------------------------

    def follow_start(self, source: PartitionMetadata) -> None:
        """If the source's log start rose, write the new log start durably.

        All records before the log start are deleted. If the source is lost, the copy becomes the
        log. If the copy becomes the log, the log begins at the recorded log start, and no deleted
        record comes back.
        """
        if source.log_start_offset > self._log_start_offset:
            try:
                self._write(self._metadata(source, COPYING, 0))
            except OSError as error:
                raise self.log_dir.failed(error, self.path) from error

    def drop_others(self, segments: Iterable[Segment]) -> None:
        """Remove the copies of segments that the source no longer has (retention, truncation)."""
        kept = {segment.base_offset for segment in segments}
        for base_offset in [base for base in self.copies if base not in kept]:
            self._remove_snapshot()
            self.copies.pop(base_offset).remove(self.ends)
            self._names_changed = True

    def copy_of(self, source: Segment, source_fd: int) -> SegmentCopy:
        """Return a segment's copy: a new copy, or the old copy, compared with the source."""
        copy = self.copies.get(source.base_offset)
        if copy is None:
            copy = SegmentCopy(self.path, source.base_offset, self.interval_bytes)
            copy.source = source
            try:
                copy.create()
            except OSError as error:
                raise self.log_dir.failed(error, self.path) from error
            self.copies[source.base_offset] = copy
            self._names_changed = True
        elif copy.source is not source:
            self._names_changed = True
            self._remove_snapshot()
            copy.follow(source, source_fd, self.ends)
        copy.segment.is_sparse = source.is_sparse
        return copy

    # --- making it durable ------------------------------------------------------------------------

    def sync(self) -> None:
        """Make the copied bytes durable, and after that the names of the files."""
        for base_offset in sorted(self.copies):
            self.copies[base_offset].sync(self.ends)
        if self._names_changed:
            try:
                files.sync_dir(self.path)
            except OSError as error:
                raise self.log_dir.failed(error, self.path) from error
            self._names_changed = False

    def write_epochs(self, entries: list[tuple[int, int]], of_log: OfLog) -> None:
        """Write the copy's leader epochs and its log start durably."""
        try:
            LeaderEpochs(self.path, entries).write(of_log)
        except OSError as error:
            raise self.log_dir.failed(error, self.path) from error

    def write_snapshot(self, snapshot: Snapshot, source: PartitionMetadata) -> None:
        """Write a snapshot of the producers durably; the copy must have all earlier records."""
        try:
            before = self.snapshot_offset
            snapshot_files.write(self.path, snapshot, source)
            self.snapshot_offset = snapshot.offset
            if before is not None and before != snapshot.offset:
                snapshot_files.remove(self.path, [before])
        except OSError as error:
            raise self.log_dir.failed(error, self.path) from error

    def _remove_snapshot(self) -> None:
        """Remove the snapshot durably before the copy is cut.

        The offset of the snapshot may be after the cut.
        """
        if self.snapshot_offset is None:
            return
        try:
            snapshot_files.remove(self.path, [self.snapshot_offset])
            files.sync_dir(self.path)
        except OSError as error:
            raise self.log_dir.failed(error, self.path) from error
        self.snapshot_offset = None

    def mark_caught_up(self, source: PartitionMetadata, end_offset: int) -> PartitionMetadata:
        """Mark the copy durably as complete up to `end_offset`, so that a swap can use the copy.

        All bytes before `end_offset` must be durable before this call.

        Returns:
            The metadata of the copy, without the move's marks.
        """
        metadata = self._metadata(source, CAUGHT_UP, end_offset)
        try:
            metadata.write(self.path)
        except OSError as error:
            raise self.log_dir.failed(error, self.path) from error
        return metadata.with_move_record(None)

    # --- the end ----------------------------------------------------------------------------------

    def segments(self, directory: str) -> list[Segment]:
        """Return the segments with the paths that they have after the rename to the live name."""
        found = []
        for base_offset in sorted(self.copies):
            copy = self.copies[base_offset]
            segment = copy.segment if copy.is_sealed else copy.take()
            segment.directory = directory
            if copy.is_sealed:
                segment.index = segment.time_index = None
                segment.is_checked = True
            found.append(segment)
        return found

    def let_go(self) -> None:
        """Close every file."""
        for copy in self.copies.values():
            copy.let_go()

    def disown(self) -> None:
        """Mark the copy durably, so that no move resumes it, even if the source's mark stays."""
        try:
            metadata = PartitionMetadata.read(self.path)
            if metadata is not None and metadata.move_record is not None:
                record = metadata.move_record._replace(move_id=NOBODYS)
                metadata.with_move_record(record).write(self.path)
        except OSError as error:
            raise self.log_dir.failed(error, self.path) from error

    def remove(self) -> None:
        """Remove the directory and free its space immediately; the marks are removed first."""
        self.let_go()
        try:
            if files.exists(self.path):
                files.remove_if_there(os.path.join(self.path, FILE_NAME))
                files.sync_dir(self.path)
                bulk.remove_tree(self.path)
        except FileNotFoundError:
            pass  # the thread of the log dir has removed the directory already
        except OSError as error:
            raise self.log_dir.failed(error, self.path) from error


def bytes_standing(log_dir: LogDir, key: TopicPartition, move_id: str) -> int:
    """Count the bytes of a copy that an earlier run left; return 0 if a disk call fails."""
    try:
        listing = list_partition(os.path.join(log_dir.path, move_dir_name(*key, move_id)))
    except OSError:  # no copy exists yet, or the disk fails and the move gets the error later
        return 0
    return sum(row.log_bytes for row in listing.segments)
