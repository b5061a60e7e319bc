"""Create or open a log: metadata, recovery, epochs, the active segment."""

from __future__ import annotations

import os
from functools import partial

from logstore.disk import files
from logstore.disk.log_dir import LogDir
from logstore.errors import PartitionExistsError
from logstore.log.environment import LogEnvironment
from logstore.log.epochs import FILE_NAME as EPOCHS_NAME
from logstore.log.epochs import LeaderEpochs
from logstore.log.metadata import (
    HIGH_WATERMARK,
    RECOVERY_POINT_LIMIT,
    PartitionMetadata,
    without_recovery_point_limit,
)
from logstore.log.producers import rebuild
from logstore.log.recovery import known_damage
from logstore.log.recovery.epoch_recovery import take_epochs
from logstore.log.recovery.recovered import Recovered
from logstore.log.recovery.recovery import Recovery
from logstore.log.recovery.report import RecoveryEntry
from logstore.log.segments.cache import Handle
from logstore.log.segments.listing import list_partition
from logstore.log.segments.scan import Progress
from logstore.log.segments.segment import Segment
from logstore.log.small_files import Checkpointed, SmallFiles, read_small_files
from logstore.log.state import LogState
from logstore.log.write import flush
from logstore.names import TopicPartition, dir_name, parse_dir_name


def create(log_dir: LogDir, metadata: PartitionMetadata, environment: LogEnvironment) -> LogState:
    """Create an empty log; on return, its directory, metadata and first segment are durable."""
    directory = os.path.join(log_dir.path, dir_name(metadata.topic, metadata.partition))
    metadata = metadata.with_lowered_end(log_dir.directory_id, log_dir.generation.current)
    try:
        files.make_dir(directory)
        metadata.write(directory)
    except FileExistsError as error:
        raise PartitionExistsError(topic=metadata.topic, partition=metadata.partition) from error
    except OSError as error:
        raise log_dir.failed(
            error, directory, topic=metadata.topic, partition=metadata.partition
        ) from error
    state = LogState(log_dir, directory, metadata, environment)
    begin(state, metadata.log_start_offset)
    return state


def begin(state: LogState, base_offset: int, *, is_durable: bool = True) -> None:
    """Create the first segment of a log.

    Args:
        is_durable: whether to sync the file and its name now. If False, the next flush syncs the
            file and its name before any record in the segment is durable.
    """
    segment = Segment(state.directory, base_offset)
    segment.begin_indexes()
    try:
        writer = Handle(files.open_regular(segment.log_path, files.REPLACE))
        if is_durable:
            files.sync_file(writer.fd)
            files.sync_dir(state.directory)
    except OSError as error:
        raise state.failed(error) from error
    state.names_changed |= not is_durable
    state.activate([segment])
    state.note_flushed(base_offset)


def open_log(
    log_dir: LogDir,
    name: str,
    environment: LogEnvironment,
    recovery_point: int | None,
    log_start_offset: int | None,
    is_clean: bool,
    progress: Progress | None = None,
    topic_ids: tuple[bytes | None, bytes | None] = (None, None),
) -> LogState:
    """Open and recover the log in the directory `name`.

    Args:
        recovery_point, log_start_offset: the offsets in the log dir's checkpoints; None if unknown.
        topic_ids: the topic ids in the log's rows in these two checkpoints.
        is_clean: whether the log dir was closed cleanly.
        progress: called with the number of bytes that were scanned since the last call.

    Raises:
        LogStoreError: the disk failed, or the directory cannot be opened as a log at all.
    """
    parsed = parse_dir_name(name)
    assert parsed is not None
    directory = os.path.join(log_dir.path, name)
    entry = RecoveryEntry(parsed.topic, parsed.partition, log_dir.path)
    try:
        small = read_small_files(
            directory,
            parsed.topic,
            parsed.partition,
            Checkpointed(recovery_point, log_start_offset, topic_ids),
            lambda: list_partition(directory).segments,
            partial(os.urandom, 16),
        )
        entry.warnings += small.warnings
        metadata, recovery_point = small.metadata, small.recovery_point
        limit = metadata.extra.get(RECOVERY_POINT_LIMIT)
        limited = recovery_point
        if limit is not None and recovery_point is not None:
            limited = min(recovery_point, limit)
        state = LogState(log_dir, directory, metadata, environment)
        state.recovery = entry
        is_wrong = load(state, entry, limited, progress, small)
        lost = known_damage.lost_configuration(directory, state.metadata)
        entry.findings += [lost] if lost is not None else []
        if is_clean or (recovery_point is not None and limited == recovery_point):
            # A truncation has set a limit on the recovery point.
            # If the checkpoint is newer, or not above the limit, the limit is removed.
            # The log end offset does not show whether the checkpoint is older than the truncation.
            # The reason is that a killed process may have appended records without a flush.
            state.metadata = without_recovery_point_limit(state.metadata)
        if is_wrong or small.to_write:
            _write_small_files(state)
    except OSError as error:
        raise log_dir.failed(
            error, directory, topic=parsed.topic, partition=parsed.partition
        ) from error
    if not is_clean and entry.state == "clean":
        entry.state = "recovered"
    return state


def load(
    state: LogState,
    entry: RecoveryEntry,
    recovery_point: int | None,
    progress: Progress | None = None,
    small: SmallFiles | None = None,
) -> bool:
    """Recover a log's segments and use them; return whether a small file is wrong.

    Args:
        small: the contents of the log's small files; None if the log is already open.

    Raises:
        OSError: the disk failed.
    """
    is_confirmed, is_wrong = small is None or small.start.is_confirmed, False
    state.replication.confirmed_start = state.log_start_offset if is_confirmed else None
    recovery = Recovery(
        state.directory,
        state.metadata,
        state.environment,
        entry,
        recovery_point=recovery_point,
        progress=progress,
        check=partial(_check_awaited, state.log_dir),
        from_disk=state.log_dir.is_back,
        is_start_confirmed=is_confirmed,
    )
    recovered = recovery.run()
    entry.flushed_end = recovered.durable_offset
    _check_awaited(state.log_dir)
    start = state.log_start_offset
    if not recovered.segments:
        begin(state, max(start, recovery_point or 0))
    elif recovered.segments[-1].end_offset < start and is_confirmed and not entry.problems:
        # A user had deleted records that were not flushed, and a crash lost these records.
        # The log begins again at its recorded log start, so that no offset is used twice.
        # If a crash interrupts this step, the next recovery completes it.
        found = known_damage.start_beyond_end(state.directory, recovered.segments, start)
        entry.findings += [found] if found is not None else []
        begin(state, start)
        for segment in recovered.segments:
            for path in segment.paths:
                _check_awaited(state.log_dir)
                files.remove_if_there(path)
        recovered = recovered._replace(segments=[], unflushed=[], epochs=[])
    else:
        is_wrong = small is not None and _start_within(state, small, recovered)
        state.unflushed = [(segment, None) for segment in recovered.unflushed]
        # The next flush writes the indexes of the unflushed segments. This is true even if the
        # segments end before the recovery point.
        state.names_changed = int(bool(recovered.unflushed))
        _activate(state, recovered)
        state.recovery_point = min(recovered.durable_offset, state.log_end_offset)
    is_wrong |= take_epochs(state, recovered, _epochs_of(state, small, entry))
    _check_awaited(state.log_dir)
    rebuild.take_recovered(state, recovered, entry)
    state.count_from_flushed()
    state.refusal = _refusal_of(state, entry)
    return _take_high_watermark(state, is_known=small is None) or is_wrong


def _activate(state: LogState, recovered: Recovered) -> None:
    """Use the recovered segments.

    If recovery has found the layout of the last segment, the layout is not read again. If the index
    files describe the whole segment, the index files are not written again.
    """
    magic = recovered.magic
    foreign_magic = None if not magic else 0 if magic == state.rules.magic else magic
    state.activate(recovered.segments, foreign_magic)
    state.checkpointed_bytes = recovered.indexed_bytes


def _refusal_of(state: LogState, entry: RecoveryEntry) -> str:
    """Explain why a corrupt log refuses appends, and what to do; return "" for a good log."""
    if not entry.problems:
        return ""
    return (
        f"the log is corrupt, so nothing can be appended: {entry.problems[0]}. Undamaged batches "
        f"stay readable; `logstore repair {state.topic} {state.partition}` makes the log writable"
    )


def _epochs_of(
    state: LogState, small: SmallFiles | None, entry: RecoveryEntry
) -> LeaderEpochs | None:
    """Return the leader epochs in their file; add the damage of an unusable file to `entry`."""
    epochs = _read_epochs(state) if small is None else small.epochs
    if epochs is None:
        entry.findings += known_damage.in_epochs(state, entry.findings)
    return epochs


def _read_epochs(state: LogState) -> LeaderEpochs | None:
    epochs, reason = LeaderEpochs.read_or_reason(state.directory)
    if reason:
        state.recovery.warnings.append(f"{EPOCHS_NAME} is not used: {reason}")
    return epochs


def _take_high_watermark(state: LogState, *, is_known: bool) -> bool:
    """Set the high watermark from the small files; return whether `partition.metadata` is wrong.

    A crash may have lost replicated records. If records were lost, the high watermark on the disk
    is lowered before new records get the offsets of the lost records.

    Args:
        is_known: True if the log is already open, so that its high watermark is in memory.

    Raises:
        OSError: the disk failed.
    """
    key = TopicPartition(state.topic, state.partition)
    checkpoints, metadata = state.log_dir.checkpoints, state.metadata
    checkpointed = checkpoints.high_watermark(key, metadata.topic_id)
    flushed: int | None = metadata.extra.get(HIGH_WATERMARK)
    if not is_known and (checkpointed is not None or flushed is not None):
        state.replication.replicated_to = max(checkpointed or 0, flushed or 0)
    state.replication.lower_to(state.log_end_offset)
    if state.replication.replicated_to is None:
        return False
    if checkpointed is not None and checkpointed > state.log_end_offset:
        checkpoints.lower_high_watermark(key, state.log_end_offset)
    if flushed is not None and flushed <= state.log_end_offset:
        return False
    state.metadata = metadata.with_high_watermark(min(state.high_watermark, state.recovery_point))
    return True


def _start_within(state: LogState, small: SmallFiles, recovered: Recovered) -> bool:
    """If the log start is after the log end and not confirmed, move the start to existing records.

    A log start is confirmed if two small files have it. Returns whether the log start was moved.
    """
    start, end = state.log_start_offset, recovered.segments[-1].end_offset
    state.log_start_offset = small.start_within(recovered.segments[0].base_offset, end)
    told = start if small.words.metadata is None else small.words.metadata
    found = known_damage.start_beyond_end(state.directory, recovered.segments, told)
    if found is not None:
        start_used = state.log_start_offset
        reason = f"{found.reason}. This start is ignored; the log starts at {start_used}"
        state.recovery.findings.append(found._replace(reason=reason))
    if state.log_start_offset == start:
        return False
    state.metadata = state.metadata._replace(log_start_offset=state.log_start_offset)
    return True


def _write_small_files(state: LogState) -> None:
    """Rewrite the log's small files, because a file is wrong. Raises OSError, LogStoreError."""
    _check_awaited(state.log_dir)
    # Write the file of the epochs first.
    # Its log start must never be before the log start in `partition.metadata`.
    flush.write_epochs(state)
    state.metadata.write(state.directory, state.log_dir.replacing)


def _check_awaited(log_dir: LogDir) -> None:
    """If the store gave up the log dir while this thread hung, raise an error.

    After the store has given up the log dir, another process may own the log dir.
    """
    if log_dir.is_offline:
        raise log_dir.offline_error()


def reopen(state: LogState) -> RecoveryEntry:
    """Recover an open log again after its files were changed. Raises LogStoreError."""
    entry = RecoveryEntry(state.topic, state.partition, state.log_dir.path)
    state.cut_offset = 0
    for segment in state.segments:
        segment.is_dropped = True
        segment.forget(state.environment)
    try:
        load(state, entry, state.recovery_point)
    except OSError as error:
        raise state.failed(error) from error
    state.recovery = entry
    return entry
