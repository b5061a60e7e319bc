"""Recover the leader epochs of a log: from their file if possible, otherwise from the batches.

If the file and the batches differ, the batches are right. Recovery compares the file with the last
epoch of each segment, and with the first batches of the latest epochs in the file. A file that is
old, or belongs to another log, is rewritten. If this file were used, a new batch could get a lower
epoch than an earlier batch, or the log could refuse the appends of the current leader.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from logstore.disk import files
from logstore.errors import CorruptRecordBatchError
from logstore.format.prefix import PREFIX_BYTES, unpack_prefix
from logstore.log.epochs import FILE_NAME, LeaderEpochs
from logstore.log.read.cursor import Cursor
from logstore.log.segments.scan import Scan
from logstore.log.segments.segment import Segment

if TYPE_CHECKING:
    from logstore.log.recovery.recovered import Recovered
    from logstore.log.state import LogState

# For this many of the latest epochs, recovery compares the first offset with the batches.
LOOKED_UP_MAX = 16
# No checksum covers the leader epoch of a Kafka batch.
# Each election raises the epoch by 1, and the log may lack batches of some epochs.
# If an epoch exceeds the previous epoch by more than this number, a bit is probably wrong.
LEAP_MAX = 1 << 16


def take_epochs(state: LogState, recovered: Recovered, found: LeaderEpochs | None) -> bool:
    """Set the log's leader epochs from the file or the batches; return whether the file is wrong.

    Raises:
        OSError: the disk failed.
    """
    doubt, segments, epochs, given = "", recovered.segments, found, -1
    stored = max((segment.last_epoch for segment in segments if segment.size_bytes), default=-1)
    if epochs is not None:
        state.recovery.warnings += _doubtful_epochs(recovered, epochs.latest)
        end, known = state.log_end_offset, len(epochs.entries)
        if any(start > end for _, start in epochs.entries):
            doubt = f"the file has an epoch that begins after the log end offset {end}"
        given = max((epoch for epoch, start in epochs.entries if start <= end), default=-1)
        epochs.truncate_to(end)
        for epoch, start_offset in recovered.epochs:
            if start_offset >= 0 and epoch >= 0:
                epochs.note(epoch, start_offset)
        epochs.truncate_to(end)
        # The file may have a new log start, and epochs that ended before this log start.
        epochs.start_at(state.log_start_offset)
        if state.log_start_offset == end and stored >= 0:
            # All records are deleted.
            # The next record may have the same leader epoch as the last deleted record.
            # Then the append does not record this epoch, so record the epoch here.
            epochs.note(stored, end)
        is_changed = known != len(epochs.entries)
        # If the log is damaged, the batches that would confirm the file may be unreadable.
        if not state.recovery.problems:
            wrong = _contradiction(state, segments, epochs)
            epochs = None if wrong else epochs
            doubt = "; ".join(filter(None, (doubt, wrong)))
    what = "rebuilt from the batches" if epochs is None else "corrected"
    if epochs is None:
        epochs = LeaderEpochs(state.directory)
        for segment in segments:
            if segment.size_bytes and segment.last_epoch > epochs.latest:
                _walk_epochs(state, segment, epochs)
        epochs.start_at(state.log_start_offset)
        is_changed = bool(epochs.entries)
    if doubt:
        state.recovery.warnings.append(f"{FILE_NAME} is wrong, so its epochs were {what}: {doubt}")
    # A file of an earlier version does not have the ids of its log.
    # The next flush rewrites a file that has no ids.
    state.replication.epochs_changed = int(is_changed or epochs.of_log is None)
    state.replication.epochs = epochs
    # New records must not get a lower epoch, even if all records of the latest epoch are deleted.
    state.replication.leader_epoch = max(epochs.latest, stored, 0, -1 if doubt else given)
    return bool(doubt)


def _doubtful_epochs(recovered: Recovered, latest: int) -> list[str]:
    """Describe the first epoch after `latest` that has a flushed batch, or is far too large.

    A flush writes the file before the recovery point rises. So an undamaged file has the epochs of
    all flushed batches, and a crash loses only the epochs of later batches.

    Args:
        latest: the latest epoch in the file.
    """
    for epoch, start_offset in recovered.epochs:
        if start_offset >= 0 and epoch > latest:
            what = f"the batch at offset {start_offset} has leader epoch {epoch}, but {FILE_NAME}"
            if start_offset < recovered.durable_offset:
                reason = f"{what} has only epochs up to {latest}, although the batch was flushed"
            elif epoch - latest > LEAP_MAX and latest >= 0:
                reason = f"{what} and the batches before it have only epochs up to {latest}"
            else:
                latest = epoch
                continue
            return [f"{reason}; a flipped bit may have changed it: compare it with other replicas"]
        latest = max(latest, epoch)
    return []


def _contradiction(state: LogState, segments: Sequence[Segment], epochs: LeaderEpochs) -> str:
    """Describe the first batch that contradicts the epochs; return "" if no batch does."""
    latest, start = -1, state.log_start_offset
    for segment in segments:
        if not segment.size_bytes or segment.end_offset <= start:
            continue
        latest = max(latest, segment.last_epoch)
        last = segment.end_offset - 1
        told = epochs.at(last)
        # In a compacted log, the first batches of an epoch may be gone.
        if told < latest or (told > latest and not segment.is_sparse):
            return (
                f"the file has epoch {told} at offset {last}, but the batches have epoch {latest}"
            )
    looked_up = [entry for entry in epochs.entries if entry[1] > start][-LOOKED_UP_MAX:]
    if epochs.entries and epochs.entries[0][1] > start:
        looked_up.append((-1, start))
    bases = [segment.base_offset for segment in segments]
    for epoch, offset in looked_up:
        number = bisect_right(bases, offset) - 1
        if number >= 0 and not segments[number].is_sparse:
            found = _batch_at(state, segments[number], offset)
            if found is not None and found != ((epoch, offset) if epoch >= 0 else (-1, found[1])):
                return f"epoch {epoch} does not begin at offset {offset} in the batches"
    return ""


def _batch_at(state: LogState, segment: Segment, offset: int) -> tuple[int, int] | None:
    """Read the epoch and base offset of the batch with `offset`; return None if unreadable."""
    try:
        for _, _, run in Cursor(segment, offset, state.environment).runs(PREFIX_BYTES):
            header = run[0][1]
            return header.leader_epoch, header.base_offset
    except CorruptRecordBatchError:
        pass  # a reader of this batch gets the error
    return None


def _walk_epochs(state: LogState, segment: Segment, epochs: LeaderEpochs) -> None:
    handle = segment.handle(state.environment)
    fd = handle.fd
    head = files.read_up_to(fd, PREFIX_BYTES, 0)
    if len(head) == PREFIX_BYTES and unpack_prefix(head)[2] == segment.last_epoch:
        epochs.note(segment.last_epoch, segment.base_offset)
        return
    scan = Scan(segment.base_offset)
    while (reason := scan.run(fd, segment.size_bytes)) is not None:
        scan.skip_damage(fd, segment.size_bytes, reason)
    for epoch, start_offset in scan.epochs:
        epochs.note(epoch, start_offset)
