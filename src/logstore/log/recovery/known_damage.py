"""Recognise damage that no checksum shows, and that an earlier version may have left.

    start beyond end        the log start in partition.metadata is after the last record
    falling epochs          in leader-epoch-checkpoint, or in the batches, an epoch is followed by
                            a lower epoch
    resurrected partition   version 0.1.0 wrote the files, and the log start is above 0, but there
                            is no record and no leader-epoch-checkpoint: a power cut has probably
                            undone a part of the partition's removal
    lost configuration      partition.metadata was lost, and no configuration was set since

No kind of damage in this list loses a record. A partition also looks resurrected if all its records
were deleted before any of them was flushed. So only the user can know whether a partition is
resurrected, and the opening of the log does not change the partition.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from logstore.disk import files
from logstore.disk.documents import checkpoint
from logstore.errors import CorruptCheckpointError, UnsupportedFormatError
from logstore.log.epochs import FILE_NAME as EPOCHS_NAME
from logstore.log.metadata import CONFIG_LOST, RECOVERY_POINT_LIMIT, PartitionMetadata
from logstore.log.metadata import FILE_NAME as METADATA_NAME
from logstore.log.recovery.report import DamageName, Problem
from logstore.log.segments.scan import Scan
from logstore.log.segments.segment import Segment

if TYPE_CHECKING:
    from logstore.log.replica import Replica


def in_files(state: Replica, findings: Sequence[Problem], *, is_owner: bool) -> list[Problem]:
    """Return the damage that the small files of a log show. Raises OSError.

    Args:
        findings: the damage that the opening of the log found.
        is_owner: whether this process writes the log. While a process writes the log,
            `leader-epoch-checkpoint` may lack the newest epochs. So a partition whose records were
            all deleted since it was opened may look resurrected.
    """
    try:
        metadata = PartitionMetadata.read(state.directory) or state.metadata
    except (CorruptCheckpointError, UnsupportedFormatError):
        metadata = state.metadata
    segments = state.segments
    found = [
        start_beyond_end(state.directory, segments, metadata.log_start_offset),
        falling_entries(state.directory),
        lost_configuration(state.directory, metadata),
    ]
    came_back = [one for one in findings if one.name is DamageName.RESURRECTED_PARTITION]
    if metadata.superseded_by is not None:
        found += came_back
    elif came_back or not is_owner:
        found.append(resurrected(state.directory, segments, metadata))
    return [problem for problem in found if problem is not None]


def in_epochs(state: Replica, findings: Sequence[Problem]) -> list[Problem]:
    """Return damage that may explain why `leader-epoch-checkpoint` is not usable."""
    found = [falling_entries(state.directory)]
    # The opening of a log corrects a log start that is after the log end.
    # After this correction, the log can be empty although its partition was never removed.
    if all(one.name is not DamageName.START_BEYOND_END for one in findings):
        found.append(resurrected(state.directory, state.segments, state.metadata))
    return [problem for problem in found if problem is not None]


def start_beyond_end(directory: str, segments: Sequence[Segment], start: int) -> Problem | None:
    """Report a log start that is after the last record."""
    end = segments[-1].end_offset if segments else start
    if end >= start:
        return None
    reason = f"the log start is {start}, but the records of the log end at {end}"
    path = os.path.join(directory, METADATA_NAME)
    return Problem(path, 0, 0, reason, start, start, DamageName.START_BEYOND_END)


def lost_configuration(directory: str, metadata: PartitionMetadata) -> Problem | None:
    """Report that the log has the default configuration because `partition.metadata` was lost."""
    if not metadata.extra.get(CONFIG_LOST):
        return None
    reason = "the log has the default configuration, because this file was missing or damaged"
    start = metadata.log_start_offset
    path = os.path.join(directory, METADATA_NAME)
    return Problem(path, 0, 0, reason, start, start, DamageName.LOST_CONFIGURATION)


def falling_entries(directory: str) -> Problem | None:
    """Report the first epoch in `leader-epoch-checkpoint` that is not in order. Raises OSError.

    From each entry of the file to the next entry, the epoch and the first offset must rise.
    """
    path = os.path.join(directory, EPOCHS_NAME)
    try:
        document = checkpoint.read_document(path) or {}
        entries = [(int(epoch), int(start)) for epoch, start in document.get("epochs", ())]
    except (CorruptCheckpointError, UnsupportedFormatError, TypeError, ValueError):
        return None  # a damaged file is rewritten in any case
    for one, two in pairwise(entries):
        if two[0] <= one[0] or two[1] <= one[1]:
            reason = (
                f"epoch {two[0]}, which begins at offset {two[1]}, follows epoch {one[0]}, "
                f"which begins at offset {one[1]}"
            )
            return Problem(path, 0, 0, reason, two[1], two[1], DamageName.FALLING_EPOCHS)
    return None


def falling_batches(segments: Iterable[Segment], scanned: Mapping[int, Scan]) -> list[Problem]:
    """Report the first leader epoch that is lower than an earlier epoch, without reading files.

    Recovery has read all epochs of each scanned segment. Of each other segment, recovery has read
    only the last epoch.

    Args:
        scanned: the walks over the scanned segments; the key is the base offset of the segment.
    """
    latest = -1
    for segment in segments:
        scan = scanned.get(segment.base_offset)
        known = [(segment.last_epoch, segment.base_offset)] if scan is None else scan.epochs
        found, latest = falling_batch(segment, known, latest)
        if found is not None:
            return [found]
    return []


def falling_batch(
    segment: Segment, epochs: Iterable[tuple[int, int]], latest: int
) -> tuple[Problem | None, int]:
    """Report the first batch of a segment that has a lower leader epoch than an earlier batch.

    Args:
        epochs: (epoch, first offset) in the order of the batches.
        latest: the largest epoch in the segments before this segment.

    Returns:
        A pair: the problem or None, and the largest epoch up to the end of this segment.
    """
    found = None
    for epoch, offset in epochs:
        if found is None and 0 <= epoch < latest:
            reason = f"a batch of leader epoch {epoch} follows a batch of leader epoch {latest}"
            name = DamageName.FALLING_EPOCHS
            found = Problem(segment.log_path, 0, 0, reason, offset, offset, name)
        latest = max(latest, epoch)
    return found, latest


def resurrected(
    directory: str, segments: Sequence[Segment], metadata: PartitionMetadata
) -> Problem | None:
    """Report a partition that was probably deleted, and came back without its records.

    Raises:
        OSError: the disk failed.
    """
    start = metadata.log_start_offset
    has_records = any(segment.size_bytes for segment in segments)
    # A truncation may also have removed leader-epoch-checkpoint.
    was_truncated = RECOVERY_POINT_LIMIT in metadata.extra
    if start == 0 or has_records or was_truncated:
        return None
    if files.exists(os.path.join(directory, EPOCHS_NAME)):
        return None
    end = segments[-1].end_offset if segments else start
    if end < start:
        return None  # the log lost records, but not its files
    if not is_of_0_1_0(directory):
        return None  # later versions may also leave a log in this state after a crash
    path = os.path.join(directory, METADATA_NAME)
    reason = f"the log starts at {start}, but it has no record and no {EPOCHS_NAME}"
    return Problem(path, 0, 0, reason, start, start, DamageName.RESURRECTED_PARTITION)


def is_of_0_1_0(directory: str) -> bool:
    """Check whether version 0.1.0 wrote a log's metadata; return False if the file is damaged.

    Raises:
        OSError: the disk failed.
    """
    try:
        document = checkpoint.read_document(os.path.join(directory, METADATA_NAME))
    except (CorruptCheckpointError, UnsupportedFormatError):
        return False  # the opening of the log reports and replaces a damaged file
    return "kind" not in (document or {})
