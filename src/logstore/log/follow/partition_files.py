"""Read the directory of a followed log: small files, segments, and where each segment ends.

This module reads this engine's own layout. `log/kafka` reads the layout of a Kafka broker.
"""

from __future__ import annotations

import errno
from os.path import join

from logstore.disk import files
from logstore.log import small_files
from logstore.log.metadata import SPARSE_OFFSETS
from logstore.log.recovery.report import Problem
from logstore.log.recovery.verification import verify_all
from logstore.log.replica import Replica
from logstore.log.segments import trailer as trailers
from logstore.log.segments.listing import SegmentFiles, list_partition
from logstore.log.segments.scan import Progress, Scan
from logstore.log.segments.segment import Segment
from logstore.log.small_files import Checkpointed, SmallFiles
from logstore.log.write.encode import TIMESTAMP_MAX
from logstore.names import segment_file_name


class PartitionFiles:
    """The files of one partition in this engine's layout; all methods raise OSError.

    Attributes:
        is_repairable: whether `logstore repair` can repair the log.
    """

    is_repairable = True

    def __init__(self, checkpointed: Checkpointed | None = None) -> None:
        """Create the object with the log dir's checkpoints, as read when the log was opened."""
        self._checkpointed = checkpointed or Checkpointed()

    def small_files(self, state: Replica) -> SmallFiles | None:
        """Read the small files; return None if there are none. Raises OSError or LogStoreError."""
        return small_files.read_small_files(
            state.directory,
            state.topic,
            state.partition,
            self._checkpointed,
            lambda: self.rows(state.directory),
            lambda: state.metadata.topic_id,
        )

    def topic_id(self, state: Replica, small: SmallFiles | None) -> bytes:
        """Return the topic id in the small files, as they were read. Raises OSError."""
        return state.metadata.topic_id if small is None else small.metadata.topic_id

    def rows(self, directory: str) -> list[SegmentFiles]:
        """List the segments."""
        return list_partition(directory).segments

    def start_of(
        self, state: Replica, rows: list[SegmentFiles], small: SmallFiles | None, end_offset: int
    ) -> int:
        """Return the log start that the small files record; the first segment may begin earlier."""
        if small is None:
            return state.log_start_offset
        return small.start_within(rows[0].base_offset if rows else 0, end_offset)

    def new_segment(self, state: Replica, row: SegmentFiles) -> Segment:
        """Make the segment of a listed file, without reading the segment's files."""
        segment = Segment(state.directory, row.base_offset)
        segment.is_sparse = bool(state.metadata.extra.get(SPARSE_OFFSETS))
        return segment

    def take_trailer(self, state: Replica, segment: Segment, row: SegmentFiles) -> None:
        """If a segment has a trailer that describes its file, set the segment's fields from it."""
        trailer = trailers.read_trailer(segment.index_path, row.index_bytes)
        ours = (state.metadata.topic_id, state.partition, row.base_offset, row.log_bytes)
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

    def settle(self, segment: Segment, row: SegmentFiles, follower: SegmentFiles) -> None:
        """Set the end of a segment to the base offset of the next segment.

        The next base offset is the right end only if the files of both segments existed at the same
        moment. A truncation removes the next segment first. So this method first looks for the next
        segment's file, and then checks that this segment's file is unchanged.
        """
        files.stat(join(segment.directory, segment_file_name(follower.base_offset, ".log")))
        facts = files.stat(segment.log_path)
        seen = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
        if seen != (row.inode, row.log_bytes, row.mtime_ns) or facts.st_size < segment.size_bytes:
            raise FileNotFoundError(errno.ENOENT, "replaced meanwhile", segment.log_path)
        if facts.st_size != segment.size_bytes or segment.max_timestamp < 0:
            segment.max_timestamp = TIMESTAMP_MAX  # unread batches may have any timestamp
        segment.size_bytes, segment.end_offset = facts.st_size, follower.base_offset
        segment.index = segment.time_index = None

    def pass_damage(self, state: Replica, segment: Segment, scan: Scan) -> bool:
        """If possible, continue a walk after damage at the end; return whether the segment changed.

        In this layout, an incomplete batch counts as not yet written, and the log ends before the
        batch. So this method does nothing.
        """
        return False

    def end_problems(self, state: Replica) -> list[Problem]:
        """Return the damage at the log end, as far as small files show it; read no batch."""
        return []

    def verify(self, state: Replica, progress: Progress | None) -> list[Problem]:
        """Check every batch, and that the segments are contiguous; return the damage."""
        return verify_all(state, progress, is_owner=False)
