"""Read the small files of one log, and decide which of them to use.

Each file says to which log it belongs: `partition.metadata` and `leader-epoch-checkpoint` have the
topic, the partition and the topic id. Each row of the log dir's offsets checkpoints, and each index
file, has the topic id. If most of the other files contradict a file, that file is not used; it is
reported and rewritten. The decision is made before anything is deleted. This module only reads.
Other modules rewrite the files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from logstore.disk.documents.checkpoint import LOG_START_OFFSETS, RECOVERY_POINTS
from logstore.errors import CorruptCheckpointError, ReplicaOfflineError
from logstore.log.epochs import FILE_NAME as EPOCHS_NAME
from logstore.log.epochs import LeaderEpochs
from logstore.log.metadata import CONFIG_LOST, FILE_NAME, SPARSE_OFFSETS, PartitionMetadata
from logstore.log.recovery.log_start import (
    LogStart,
    Words,
    choose,
    choose_topic_id,
    topic_ids_of_segments,
)
from logstore.log.segments.listing import SegmentFiles
from logstore.names import ReplicaDirName, TopicPartition


class Checkpointed(NamedTuple):
    """The offsets of one log in its log dir's checkpoints, or None for each missing offset.

    Attributes:
        topic_ids: the topic ids in the rows of the two checkpoints.
    """

    recovery_point: int | None = None
    log_start_offset: int | None = None
    topic_ids: tuple[bytes | None, bytes | None] = (None, None)


class SmallFiles(NamedTuple):
    """The contents of the small files of a log, without the files that are not used.

    Attributes:
        metadata: the contents of `partition.metadata`, with the chosen log start; default contents
            if the file is not used.
        start: the log start that was chosen.
        words: the log start in each file.
        epochs: the contents of `leader-epoch-checkpoint`; None if it is missing or not used.
        recovery_point: the recovery point in the checkpoint; None if the checkpoint has none for
            this log.
        to_write: whether `partition.metadata` or `leader-epoch-checkpoint` is wrong. If one of the
            two files is wrong, both files are rewritten.
    """

    metadata: PartitionMetadata
    start: LogStart
    words: Words
    epochs: LeaderEpochs | None
    recovery_point: int | None
    to_write: bool
    warnings: list[str]

    def start_within(self, first_base: int, end_offset: int) -> int:
        """Return the log start; if the start is after the log end, two files must have it."""
        if self.start.offset <= end_offset or self.start.is_confirmed:
            return self.start.offset
        within = [word for word in self.words if word is not None and word <= end_offset]
        return max([first_base, *within])


def metadata_or_stand_in(directory: str, parsed: ReplicaDirName) -> PartitionMetadata:
    """Read the metadata in a directory; if the file is not usable, make default metadata."""
    metadata, _ = _read_metadata(directory)
    is_of_another = metadata is not None and metadata[:2] != parsed[:2]
    if metadata is None or (is_of_another and parsed.kind == "live"):
        return PartitionMetadata(*parsed[:2], bytes(16), extra={CONFIG_LOST: True})
    return metadata


def read_small_files(
    directory: str,
    topic: str,
    partition: int,
    checkpointed: Checkpointed,
    list_segments: Callable[[], list[SegmentFiles]],
    new_topic_id: Callable[[], bytes],
) -> SmallFiles:
    """Read the small files of the log in a directory.

    Args:
        list_segments: a function that lists the segments; called only if the small files disagree.
        new_topic_id: a function that makes a new topic id; called only if no file has a topic id.

    Raises:
        ReplicaOfflineError: the directory belongs to another partition.
        UnsupportedFormatError: a later version wrote one of the files.
        OSError: the disk failed.
    """
    rows = cache(list_segments)
    warnings: list[str] = []
    metadata, lost = _read_metadata(directory)
    epochs, reason = LeaderEpochs.read_or_reason(directory)
    if reason:
        warnings.append(f"{EPOCHS_NAME} is not used and is rewritten: {reason}")
    of_log = epochs.of_log if epochs is not None else None
    is_of_another = of_log is not None and of_log[:2] != (topic, partition)
    is_named = metadata is not None and metadata[:2] == (topic, partition)
    topic_id = choose_topic_id(
        metadata.topic_id if metadata is not None and is_named else None,
        (None if of_log is None or is_of_another else of_log.topic_id, *checkpointed.topic_ids),
        lambda: topic_ids_of_segments(directory, partition, rows()),
    )
    if metadata is not None:
        whose = _is_foreign(metadata, TopicPartition(topic, partition), topic_id, directory)
        metadata, lost = (None, whose) if whose else (metadata, "")
    if of_log is not None and (is_of_another or of_log.topic_id != topic_id):
        reason = f"belongs to {of_log.topic}-{of_log.partition}, topic id {of_log.topic_id.hex()}"
        warnings.append(f"{EPOCHS_NAME} {reason}: it is rewritten")
        epochs = None
    if metadata is None:
        made = f"{FILE_NAME} {lost}: it is rewritten, and its configuration is lost"
        warnings.append(made + ("" if topic_id else "; the log gets a new topic id"))
    recovery_point, start_offset = _of_topic(checkpointed, topic_id, warnings)
    # A checkpoint that an earlier version wrote has no topic id, so it confirms no other file.
    is_second = metadata is None or checkpointed.topic_ids[1] is not None
    words = Words(
        None if metadata is None else metadata.log_start_offset,
        None if epochs is None or of_log is None else of_log.log_start_offset,
        start_offset if is_second else None,
    )
    start = _choose_start(words, start_offset, rows, warnings)
    to_write = bool(reason or start.doubt or metadata is None)
    if metadata is None:
        topic_id = topic_id or new_topic_id()
        is_sparse = epochs is not None and of_log is not None and of_log.is_sparse
        extra = {CONFIG_LOST: True} | ({SPARSE_OFFSETS: True} if is_sparse else {})
        metadata = PartitionMetadata(topic, partition, topic_id, extra=extra)
    metadata = metadata._replace(log_start_offset=start.offset)
    return SmallFiles(metadata, start, words, epochs, recovery_point, to_write, warnings)


def _is_foreign(
    metadata: PartitionMetadata, key: TopicPartition, topic_id: bytes | None, directory: str
) -> str:
    """Describe the other log to which the metadata belongs; return "" if it belongs to this log.

    Raises:
        ReplicaOfflineError: all files belong to another log, so the whole directory belongs to that
            log.
    """
    whose = f"belongs to {metadata.topic}-{metadata.partition}"
    if metadata[:2] != key and topic_id in (None, metadata.topic_id):
        raise ReplicaOfflineError(
            topic=key.topic, partition=key.partition, reason=f"{directory} {whose}: {FILE_NAME}"
        )
    if metadata[:2] != key:
        return whose
    if metadata.topic_id != topic_id:
        other_id = metadata.topic_id.hex()
        return f"belongs to another topic with the same name, whose topic id is {other_id}"
    return ""


def _choose_start(
    words: Words,
    checkpointed: int | None,
    rows: Callable[[], list[SegmentFiles]],
    warnings: list[str],
) -> LogStart:
    """Choose the log start, and add a warning for each file that contradicts this start."""
    start = choose(words, lambda: rows()[0].base_offset if rows() else 0)
    if start.doubt:
        warnings.append(start.doubt)
    if checkpointed is not None and checkpointed > start.offset:
        warnings.append(
            f"the log start offset {checkpointed} in the checkpoint is not used: the log starts "
            f"at {start.offset}"
        )
    return start


def _read_metadata(directory: str) -> tuple[PartitionMetadata | None, str]:
    """Read `partition.metadata`; if it cannot be used, return the reason."""
    try:
        return PartitionMetadata.read(directory), "is missing"
    except CorruptCheckpointError as error:
        return None, f"is damaged ({error.reason})"


def _of_topic(
    checkpointed: Checkpointed, topic_id: bytes | None, warnings: list[str]
) -> tuple[int | None, int | None]:
    """Return the recovery point and the log start; each is None if its row has another topic id."""
    kept: list[int | None] = []
    kinds = (RECOVERY_POINTS, LOG_START_OFFSETS)
    for name, offset, whose in zip(kinds, checkpointed[:2], checkpointed.topic_ids, strict=True):
        is_other = offset is not None and whose is not None and whose != topic_id
        if is_other:
            warnings.append(f"{name} is not used: it belongs to another topic with the same name")
        kept.append(None if is_other else offset)
    return kept[0], kept[1]
