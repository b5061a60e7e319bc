"""Read a partition's log from a directory that a Kafka broker wrote; change nothing there.

Reads rely only on the contents of the segments, not on other files (`kafka_segment`). The log ends
before a torn tail. `verify` compares all other files with the segments (see `side_scan`).
"""

from __future__ import annotations

import base64
import binascii
import os

from logstore.disk import files
from logstore.disk.log_dir import LogDir
from logstore.errors import UnsupportedFormatError
from logstore.format import layouts
from logstore.format.prefix import PREFIX_BYTES
from logstore.log.environment import LogEnvironment
from logstore.log.follow.followed_replica import FollowedReplica
from logstore.log.follow.partition_files import PartitionFiles
from logstore.log.kafka import side_files as kafka_checking
from logstore.log.kafka.kafka_segment import KafkaSegment, list_kafka_segments
from logstore.log.kafka.side_scan import SideScan, read_if_there, read_or_report
from logstore.log.metadata import PartitionMetadata
from logstore.log.recovery.report import Problem
from logstore.log.recovery.verification import verify
from logstore.log.replica import Replica
from logstore.log.segments.listing import SegmentFiles
from logstore.log.segments.scan import Progress, Scan
from logstore.log.segments.search import find_batch
from logstore.log.segments.segment import Segment
from logstore.log.small_files import SmallFiles
from logstore.log.view import LogView
from logstore.log.write.encode import TIMESTAMP_MAX

METADATA_NAME = "partition.metadata"
# If a broker stops cleanly, it writes the end of each log into these checkpoints.
END_CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")


def read_topic_id(directory: str) -> bytes:
    """Read the topic id in Kafka's `partition.metadata`; return zeros if no file is usable.

    Brokers before Kafka 2.8 wrote no `partition.metadata`.
    """
    try:
        data = read_if_there(os.path.join(directory, METADATA_NAME))
    except files.UnfitError:
        data = None  # `verify` reports this error
    return bytes(16) if data is None else parse_topic_id(data) or bytes(16)


def parse_topic_id(data: bytes) -> bytes | None:
    """Parse the topic id in a `partition.metadata`; return None if there is no valid topic id."""
    version, _, line = data.decode("utf-8", "replace").rstrip("\n").partition("\n")
    key, _, text = line.partition(": ")
    if (version, key) != ("version: 0", "topic_id"):
        return None
    try:
        topic_id = base64.b64decode(text + "==", b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    is_id = base64.urlsafe_b64encode(topic_id).decode() == text + "=="
    return topic_id if is_id and len(topic_id) == 16 else None


def open_kafka_view(
    log_dir: LogDir,
    directory: str,
    metadata: PartitionMetadata,
    environment: LogEnvironment,
    *,
    was_stopped: bool,
    known_start: int,
    known_end: tuple[int, str],
) -> LogView:
    """Follow the log of a partition, even while its broker runs. Raises OSError, LogStoreError.

    Args:
        was_stopped: whether the broker stopped cleanly. After a clean stop, no broker writes here
            now, and the last broker was not killed during a write.
        known_start: the log start in the broker's checkpoint.
        known_end: the log end in a checkpoint of the broker, and the path of that checkpoint.
    """
    kafka_files = KafkaFiles()
    state = FollowedReplica(log_dir, directory, metadata, environment, kafka_files)
    state.relist()
    kafka_files.was_stopped, kafka_files.known_end = was_stopped, known_end
    if state.log_start_offset < known_start <= state.log_end_offset:
        state.log_start_offset = kafka_files.known_start = known_start
    return LogView(state)


class KafkaFiles(PartitionFiles):
    """The files of one partition in a Kafka broker's layout; see `open_kafka_view`."""

    is_repairable = False  # the files belong to the broker

    def __init__(self) -> None:
        super().__init__()
        self.was_stopped = False
        self.known_start = 0
        self.known_end = (0, "")
        self._suffixes: dict[int, str] = {}
        self._ended: tuple[int, int, int] | None = None

    def small_files(self, state: Replica) -> SmallFiles | None:
        """Return None, because a broker's directory has no small files of this engine."""

    def topic_id(self, state: Replica, small: SmallFiles | None) -> bytes:
        """Return the topic id that the broker's file has now, or zeros if there is none."""
        return read_topic_id(state.directory)

    def rows(self, directory: str) -> list[SegmentFiles]:
        """List the segments, and remember the suffix of each."""
        pairs = list_kafka_segments(directory)
        self._suffixes = {row.base_offset: suffix for row, suffix in pairs}
        return [row for row, _ in pairs]

    def start_of(
        self, state: Replica, rows: list[SegmentFiles], small: SmallFiles | None, end_offset: int
    ) -> int:
        """Give the first segment's base offset, or the checkpoint's log start if it is later."""
        return max(self.known_start, rows[0].base_offset) if rows else self.known_start

    def new_segment(self, state: Replica, row: SegmentFiles) -> Segment:
        """Make a segment in which offsets may be missing.

        Raises:
            UnsupportedFormatError: the segment's format is older than Kafka 0.11.
        """
        segment = KafkaSegment(state.directory, row.base_offset, self._suffixes[row.base_offset])
        segment.is_sparse = True
        self._refuse_old(state, segment)
        return segment

    def _refuse_old(self, state: Replica, segment: Segment) -> None:
        """Raise UnsupportedFormatError for message sets older than Kafka 0.11."""
        handle = segment.handle(state.environment)
        head = files.read_up_to(handle.fd, PREFIX_BYTES, 0)
        if len(head) == PREFIX_BYTES and head[layouts.MAGIC_AT] in (0, 1):
            reason = layouts.old_message_set(head)
            if reason:
                raise UnsupportedFormatError(
                    path=segment.log_path, version=head[layouts.MAGIC_AT], reason=reason
                )

    def take_trailer(self, state: Replica, segment: Segment, row: SegmentFiles) -> None:
        """Do nothing: Kafka's index files have no trailer."""

    def settle(self, segment: Segment, row: SegmentFiles, follower: SegmentFiles) -> None:
        """Set a segment's end to the next segment's base offset, even if offsets are missing."""
        segment.size_bytes, segment.end_offset = row.log_bytes, follower.base_offset
        segment.max_timestamp = TIMESTAMP_MAX
        segment.index = segment.time_index = None

    def pass_damage(self, state: Replica, segment: Segment, scan: Scan) -> bool:
        """If a whole batch follows damage, continue the walk there."""
        handle = segment.handle(state.environment)
        fd = handle.fd
        facts = files.fstat(fd)
        seen = (scan.position, facts.st_size, facts.st_mtime_ns)
        if scan.position >= facts.st_size or seen == self._ended:
            return False
        scan.magic = layouts.KAFKA_MAGIC  # the first batch of the segment may be damaged
        while find_batch(fd, scan.position, facts.st_size, layouts.KAFKA_MAGIC) is not None:
            reason = _fault(fd, scan)
            scan.skip_damage(fd, facts.st_size, reason)
            if scan.run(fd, facts.st_size) is None:
                break
        segment.take(scan)
        self._ended = (scan.position, facts.st_size, facts.st_mtime_ns)
        state.recovery.cut_bytes = facts.st_size - scan.good_end
        if state.recovery.cut_bytes:
            state.recovery.cut_reason = (
                "a broker that did not stop cleanly left these bytes; they are not read"
            )
        return True

    def verify(self, state: Replica, progress: Progress | None) -> list[Problem]:
        """Check every batch, and the files that the broker keeps beside the segments."""
        scans: list[SideScan] = []

        def begin(segment: Segment, next_base: int | None) -> Scan:
            assert isinstance(segment, KafkaSegment)
            is_growing = next_base is None and not self.was_stopped
            limit_offset = 2**63 if next_base is None else next_base
            bound = state.environment.record_expansion_bytes_max
            scans.append(SideScan(segment, limit_offset, is_growing, bound))
            scans[-1].magic = layouts.KAFKA_MAGIC  # the first batch may be damaged
            return scans[-1]

        problems = verify(state, progress, begin) + self.end_problems(state)
        try:
            problems += kafka_checking.check_files(
                state.directory, scans, state.log_start_offset, was_stopped=self.was_stopped
            )
            path = os.path.join(state.directory, METADATA_NAME)
            data = read_or_report(path, problems, 0)
        except OSError as error:
            raise state.failed(error) from error
        if data is not None and parse_topic_id(data) is None:
            problems.append(Problem(path, 0, len(data), "the file has no topic id", 0, 0))
        return problems

    def end_problems(self, state: Replica) -> list[Problem]:
        """Report missing records, and bytes that a broker never leaves if it stops cleanly."""
        known, path = self.known_end
        end, segments = state.log_end_offset, state.segments
        torn = state.recovery.cut_bytes
        is_longer = 0 < known < end and self.was_stopped and path.endswith(END_CHECKPOINTS)
        if known <= end and not is_longer and not (torn and self.was_stopped):
            return []
        reason = f"the last whole batch ends before offset {end}"
        if known > end or is_longer:
            reason += f"; {path} says that the log reached {known}"
        if not segments:
            return [Problem(state.directory, 0, 0, reason, end, known)]
        good_end = segments[-1].size_bytes
        log_path = segments[-1].log_path
        return [Problem(log_path, good_end, good_end + torn, reason, end, max(known, end))]


def _fault(fd: int, scan: Scan) -> str:
    """Describe the fault at which a walk stopped."""
    head = files.read_up_to(fd, layouts.HEADER_BYTES_MAX, scan.position)
    return layouts.fault(head, 0, scan.offset) or "there is no whole batch here"
