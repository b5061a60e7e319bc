"""Make a log, or bring one up: metadata, recovery, epochs, the active segment."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from logstore.disk import files
from logstore.disk.log_dir import LogDir
from logstore.errors import (
    CorruptCheckpointError,
    PartitionExistsError,
    ReplicaOfflineError,
)
from logstore.format.prefix import PREFIX_BYTES, unpack_prefix
from logstore.log.cache import Handle
from logstore.log.environment import LogEnvironment
from logstore.log.epochs import LeaderEpochs
from logstore.log.listing import list_partition
from logstore.log.metadata import (
    FILE_NAME,
    RECOVERY_POINT_LIMIT,
    PartitionMetadata,
    without_recovery_point_limit,
)
from logstore.log.recovery import Recovered, Recovery
from logstore.log.report import RecoveryEntry
from logstore.log.scan import Progress, Scan
from logstore.log.segment import Segment
from logstore.log.trailer import read_trailer
from logstore.names import dir_name, parse_dir_name

if TYPE_CHECKING:
    from logstore.log.log import Log


def create(
    kind: type[Log], log_dir: LogDir, metadata: PartitionMetadata, environment: LogEnvironment
) -> Log:
    """Make an empty log: directory, metadata and first segment, all durable on return."""
    directory = os.path.join(log_dir.path, dir_name(metadata.topic, metadata.partition))
    try:
        files.make_dir(directory)
        metadata.write(directory)
    except FileExistsError as error:
        raise PartitionExistsError(topic=metadata.topic, partition=metadata.partition) from error
    except OSError as error:
        raise log_dir.failed(
            error, directory, topic=metadata.topic, partition=metadata.partition
        ) from error
    log = kind(log_dir, directory, metadata, environment)
    _begin(log, metadata.log_start_offset)
    return log


def _begin(log: Log, base_offset: int) -> None:
    """Make the first segment of a log, durably."""
    segment = Segment(log.directory, base_offset)
    segment.begin_indexes()
    try:
        writer = Handle(files.open_regular(segment.log_path, files.REPLACE))
        files.sync_file(writer.fd)
        files.sync_dir(log.directory)
    except OSError as error:
        raise log._failed(error) from error
    log._activate([segment])
    log._recovery_point = base_offset
    log._count_from_flushed()


def open_log(
    kind: type[Log],
    log_dir: LogDir,
    name: str,
    environment: LogEnvironment,
    recovery_point: int | None,
    log_start_offset: int | None,
    is_clean: bool,
    progress: Progress | None,
) -> Log:
    """Open the log in the directory `name`, recovering it.

    Args:
        recovery_point, log_start_offset: as the log dir's checkpoints have them; None: unknown.
        is_clean: whether the log dir was closed in order.
        progress: called with the bytes scanned since its last call.

    Raises:
        LogStoreError: the disk failed, or what stands there cannot be opened at all.
    """
    parsed = parse_dir_name(name)
    assert parsed is not None
    directory = os.path.join(log_dir.path, name)
    entry = RecoveryEntry(parsed.topic, parsed.partition, log_dir.path)
    try:
        metadata = _read_metadata(log_dir, directory, entry, log_start_offset)
        limit = metadata.extra.get(RECOVERY_POINT_LIMIT)
        limited = recovery_point
        if limit is not None and recovery_point is not None:
            limited = min(recovery_point, int(limit))
        log = kind(log_dir, directory, metadata, environment)
        log.recovery = entry
        load(log, entry, limited, progress)
        if is_clean or (recovery_point is not None and limited == recovery_point):
            # The checkpoint was written after the truncation, or says nothing that it cut off. How
            # far the log reaches proves neither: a killed process may have appended unflushed.
            log._metadata = without_recovery_point_limit(log._metadata)
    except OSError as error:
        raise log_dir.failed(
            error, directory, topic=parsed.topic, partition=parsed.partition
        ) from error
    _take_log_start(log, log_start_offset)
    if not is_clean and entry.state == "clean":
        entry.state = "recovered"
    return log


def load(
    log: Log, entry: RecoveryEntry, recovery_point: int | None, progress: Progress | None = None
) -> None:
    """Recover a log's segments and take them into use; raises OSError."""
    recovery = Recovery(
        log.directory,
        log._metadata,
        log._environment,
        entry,
        recovery_point=recovery_point,
        progress=progress,
        check=partial(_check_awaited, log._log_dir),
        from_disk=log._log_dir.is_back,
    )
    recovered = recovery.run()
    _check_awaited(log._log_dir)
    start = log.log_start_offset
    if not recovered.segments:
        _begin(log, max(start, recovery_point or 0))
    elif recovered.segments[-1].end_offset < start and not entry.problems:
        # Deleted before it was flushed, and lost: the log begins anew where it was said to begin,
        # so that no offset is given twice. A crash in between is finished by the next recovery.
        _begin(log, start)
        for segment in recovered.segments:
            for path in segment.paths:
                _check_awaited(log._log_dir)
                files.remove_if_there(path)
        recovered = recovered._replace(segments=[], unflushed=[], epochs=[])
    else:
        log._unflushed = [(segment, None) for segment in recovered.unflushed]
        # The next flush writes their indexes down, also where the recovery point is behind them.
        log._names_changed = bool(recovered.unflushed)
        log._activate(recovered.segments)
        log._recovery_point = min(recovered.durable_offset, log.log_end_offset)
    _take_epochs(log, recovered)
    log._count_from_flushed()
    log._refusal = ""
    if entry.problems:
        log._refusal = (
            f"it is corrupt, so nothing can be appended: {entry.problems[0]}. What is whole stays "
            f"readable; `logstore repair {log.topic} {log.partition}` makes it writable"
        )


def _check_awaited(log_dir: LogDir) -> None:
    """Raise in a thread that hung until its dir was given up: another one may have it by now."""
    if log_dir.is_offline:
        raise log_dir.offline_error()


def _read_metadata(
    log_dir: LogDir, directory: str, entry: RecoveryEntry, log_start_offset: int | None
) -> PartitionMetadata:
    """Read `partition.metadata`; when it is lost, make it anew from the indexes' trailers."""
    try:
        metadata = PartitionMetadata.read(directory)
        reason = "is not there"
    except CorruptCheckpointError as error:
        metadata, reason = None, error.reason
    if metadata is not None:
        if (metadata.topic, metadata.partition) != (entry.topic, entry.partition):
            raise ReplicaOfflineError(
                topic=entry.topic,
                partition=entry.partition,
                reason=f"{directory} is of {metadata.topic}-{metadata.partition}: {FILE_NAME}",
            )
        return metadata
    listing = list_partition(directory)
    topic_id = b""
    for row in reversed(listing.segments):
        path = Segment(directory, row.base_offset).index_path
        trailer = read_trailer(path, row.index_bytes)
        if trailer is not None and trailer.partition == entry.partition:
            topic_id = trailer.topic_id
            break
    first = listing.segments[0].base_offset if listing.segments else 0
    metadata = PartitionMetadata(
        entry.topic,
        entry.partition,
        topic_id or os.urandom(16),
        log_start_offset=max(log_start_offset or 0, first),
    )
    _check_awaited(log_dir)
    metadata.write(directory, log_dir.replacing)
    entry.warnings.append(
        f"{FILE_NAME} {reason}: made anew with the default configuration"
        + ("" if topic_id else " and a new topic id")
    )
    return metadata


def _take_log_start(log: Log, log_start_offset: int | None) -> None:
    """Believe the later of two log start offsets, if the log reaches that far."""
    if log_start_offset is None or log_start_offset <= log._log_start_offset:
        return
    if log_start_offset > log.log_end_offset:
        log.recovery.warnings.append(
            f"the checkpoint's log start offset {log_start_offset} is behind the log end offset "
            f"{log.log_end_offset}: not believed"
        )
        return
    log._log_start_offset = log_start_offset


def _take_epochs(log: Log, recovered: Recovered) -> None:
    """Read the leader epochs, or find them in the batches when the file is lost."""
    epochs = LeaderEpochs.read(log.directory)
    if epochs is None:
        epochs = LeaderEpochs(log.directory)
        for segment in recovered.segments:
            if segment.size_bytes and segment.last_epoch > epochs.latest:
                _walk_epochs(log, segment, epochs)
        log._epochs_changed = bool(epochs.entries)
    else:
        known = len(epochs.entries)
        for epoch, start_offset in recovered.epochs:
            if start_offset >= 0 and epoch >= 0:
                epochs.note(epoch, start_offset)
        epochs.truncate_to(log.log_end_offset)
        log._epochs_changed = known != len(epochs.entries)
    log._epochs = epochs
    log._leader_epoch = max(epochs.latest, 0)


def _walk_epochs(log: Log, segment: Segment, epochs: LeaderEpochs) -> None:
    handle = segment.handle(log._environment)
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


def reopen(log: Log) -> RecoveryEntry:
    """Recover a log again in place, after its files were changed; raises LogStoreError."""
    entry = RecoveryEntry(log.topic, log.partition, log.log_dir)
    for segment in log._view[0]:
        segment.is_dropped = True
        segment.forget(log._environment)
    try:
        load(log, entry, log._recovery_point)
    except OSError as error:
        raise log._failed(error) from error
    log.recovery = entry
    return entry
