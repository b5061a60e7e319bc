"""Give the store, the mover and the Spark source more access to a log than the public API gives.

For a swap, the mover also uses `log/relocation`. The store, the mover and the Spark source use
these functions, and never touch the state of a log directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from logstore.config import LogConfig
from logstore.disk.documents.generations import Generation
from logstore.disk.log_dir import LogDir
from logstore.errors import LogStoreError
from logstore.log.encoded import leader_appends
from logstore.log.latency import Latencies, Timing
from logstore.log.metadata import (
    HIGH_WATERMARK,
    RECOVERY_POINT_LIMIT,
    PartitionMetadata,
    without_recovery_point_limit,
)
from logstore.log.read import split as splitting
from logstore.log.read.cursor import Cursor
from logstore.log.segments.cache import Handle
from logstore.log.segments.segment import Segment
from logstore.log.write import flush
from logstore.log.write.hung_locks import NOT_WRITING, LockedLog
from logstore.log.write.hung_locks import held as kept
from logstore.names import TopicPartition

if TYPE_CHECKING:
    from logstore.format.producer_file import Snapshot
    from logstore.log.compaction.compaction import CompactionReport
    from logstore.log.compaction.schedule import Plan
    from logstore.log.log import Log
    from logstore.log.read.split import OffsetRange
    from logstore.log.read.transactions import Decided
    from logstore.log.reader import ReadableLog
    from logstore.log.recovery.report import Problem
    from logstore.log.recovery.verification import SegmentCheck, SegmentDamage

# --- appending ----------------------------------------------------------------------------------


def append_staged(log: Log, raw: bytes) -> None:
    """Append encoded batches as `append_encoded` does, but without checks of timestamps and keys.

    The Spark source has already accepted the batches. So the append must not fail because of a
    timestamp or a missing key.
    """
    leader_appends.append_encoded(log._state, raw, is_checked=False)


# --- what a full disk may drop -------------------------------------------------------------------


def oldest_under_pressure(log: Log) -> int | None:
    """Return the time (ms) of the oldest segment, if the configuration lets a full disk drop it.

    Return None in three cases: the configuration does not allow a drop; only the active segment is
    left; or the oldest segment ends after the high watermark.
    """
    from logstore.log.removal import retention

    return retention.oldest_under_pressure(log._state)


def drop_oldest(log: Log) -> bool:
    """Drop the segment that `oldest_under_pressure` found; return whether it was dropped."""
    from logstore.log.removal import retention

    return retention.drop_oldest(log._state)


# --- the state of a log ---------------------------------------------------------------------------


def check(log: ReadableLog) -> None:
    """Raise an error if the log is closed, OFFLINE or SUSPECT, or belongs to the parent process."""
    log._state.check()


def is_detached(log: ReadableLog) -> bool:
    """Check, without the disk, whether a log was closed, deleted or released by its log dir."""
    return log._state.unavailable is not None


def is_writing(log: Log) -> bool:
    """Check whether an append to the log is in a system call at present."""
    return log._state.writing != NOT_WRITING


def writing_position(log: Log) -> int | None:
    """Return the position at which a running append writes, or None if no append runs."""
    position = log._state.writing
    return None if position == NOT_WRITING else position


def log_dir_of(log: ReadableLog) -> LogDir:
    """Return the log dir that now holds the log."""
    return log._state.log_dir


def metadata_of(log: ReadableLog) -> PartitionMetadata:
    """Return the content of `partition.metadata`."""
    return log._state.metadata


def segments_of(log: ReadableLog) -> tuple[Segment, ...]:
    """Return the current segments, in order of offset; the last segment is active."""
    return log._state.segments


def replicated_to(log: Log) -> int | None:
    """Return the high watermark of a replicated log, or None if the log is not replicated."""
    state = log._state
    return None if state.replication.replicated_to is None else state.high_watermark


def unflushed_paths(log: Log) -> list[str]:
    """List the paths of segments that may have unflushed bytes, even while a flush runs."""
    return flush.unflushed_paths(log._state)


def locks_of(log: Log) -> LockedLog:
    """Return the locks of a log for the watchdog, which frees threads that wait for these locks."""
    return log._state


def watch(log: Log, writes: Latencies, syncs: Latencies) -> None:
    """Until `unwatch`, measure the latencies of writes, and of syncs that a caller waits for.

    A second call changes nothing.
    """
    if log._state.timing is None:
        log._state.timing = Timing(writes, syncs)


def unwatch(log: Log) -> None:
    """Stop measuring the latencies of a log."""
    log._state.timing = None


# --- events for the subscribers of a log ---------------------------------------------------------


def tell_end(log: ReadableLog) -> None:
    """Report once to subscribers that a log was detached; the caller must hold no log lock."""
    log._state.tell_end()


# --- reading the files of a log ------------------------------------------------------------------


def refresh(log: ReadableLog) -> None:
    """Read the changes that another process made to a log; do nothing in the owner's process."""
    log._state.refresh()


def end_problems(log: ReadableLog) -> list[Problem]:
    """Return the damage at the end of a followed log, as far as small files show it.

    A Kafka broker's checkpoints contain the end of each log. For other logs, the list is empty.
    """
    from logstore.log.follow.followed_replica import FollowedReplica

    state = log._state
    return state.files.end_problems(state) if isinstance(state, FollowedReplica) else []


def start_at(log: ReadableLog, offset: int) -> bool:
    """If a checkpoint has a later log start, use it; return whether the log start changed."""
    if not log.log_start_offset < offset <= log.log_end_offset:
        return False
    log._state.log_start_offset = offset
    return True


def open_segment(log: ReadableLog, segment: Segment) -> Handle:
    """Return an open file of a segment. Raises OSError, or LogStoreError if the log is closed."""
    handle = segment.handle(log._state.environment)
    if log._state.unavailable is not None:  # the log was detached, so close the file here
        segment.forget(log._state.environment)
        log._state.check()
    return handle


def cursor_of(log: ReadableLog, segment: Segment, offset: int) -> Cursor:
    """Make a cursor for a segment; it begins at the batch that contains `offset`."""
    return Cursor(segment, offset, log._state.environment)


def split(log: ReadableLog, start: int, end: int, piece_bytes: int) -> list[OffsetRange]:
    """Cut the offsets `start..end` into pieces of about `piece_bytes` stored bytes."""
    return splitting.split(log._state, start, end, piece_bytes)


def bytes_between(log: ReadableLog, start: int, end: int) -> int:
    """Estimate the stored bytes of the offsets `start..end`, from the sizes of segments only."""
    return splitting.bytes_between(log._state, start, end)


def decided_now(log: ReadableLog) -> Decided:
    """Refresh a log, and find which of its transactions have ended. Raises LogStoreError."""
    from logstore.log.read import transactions

    return transactions.decided_now(log._state)


def producers_of(log: ReadableLog) -> Snapshot | None:
    """Return the producers at the end of a log, even if another process writes the log.

    Returns:
        None if there are no producers.

    Raises:
        LogStoreError: the log is closed or unavailable, a batch is damaged, or the disk failed.
    """
    from logstore.log.producers import appends, kafka_snapshots
    from logstore.log.state import LogState

    state = log._state
    if isinstance(state, LogState):
        snapshot = appends.snapshot(state)
        return snapshot if len(snapshot.rows) else None
    try:
        return kafka_snapshots.found(state)
    except OSError as error:
        raise state.failed(error) from error


def producers_of_broker(log: ReadableLog) -> Snapshot | None:
    """Return the producers at the end of a broker's log.

    If the broker's snapshot has no producer, return None without reading the log.

    Raises:
        LogStoreError: a batch is damaged, or the disk failed.
    """
    from logstore.log.producers import kafka_snapshots

    try:
        return kafka_snapshots.of_broker(log._state)
    except OSError as error:
        raise log._state.failed(error) from error


def verify_segment(log: ReadableLog, base_offset: int, flushed_to: int) -> list[SegmentDamage]:
    """Check one segment, to the end of its file; return one row for each damaged batch."""
    from logstore.log.recovery import verification

    return verification.verify_segment(log._state, base_offset, flushed_to)


def check_of_segment(
    log: ReadableLog, base_offset: int, flushed_to: int, *, from_disk: bool = False
) -> SegmentCheck:
    """Make an object that checks one segment, in any number of steps; see `SegmentCheck`."""
    from logstore.log.recovery.verification import SegmentCheck

    return SegmentCheck(log._state, base_offset, flushed_to, from_disk=from_disk)


# --- changing a log -------------------------------------------------------------------------------


def change_metadata(log: Log, change: Callable[[PartitionMetadata], dict[str, Any] | None]) -> None:
    """Replace fields of `partition.metadata` durably, under the log's flush lock.

    Args:
        change: a function that gets the old metadata and returns the new values of fields. If
            `change` returns None, nothing is written.

    Raises:
        LogStoreError: the log is closed or unavailable, or its disk failed.
    """
    with log._state.flush_lock, kept(log._state, "flush_lock"):
        log._state.check_current()
        changes = change(log._state.metadata)
        if changes is not None:
            flush.set_metadata(log._state, **changes)


def set_config(log: Log, change: Callable[[LogConfig], LogConfig]) -> LogConfig:
    """Replace the configuration of a log durably, apply it, and return it.

    Args:
        change: a function that gets the old configuration and returns the new configuration. If
            the new configuration is wrong, `change` raises an error.

    Raises:
        LogStoreError: the log is closed or unavailable, or its disk failed. The old configuration
            stays in force.
        UnsupportedFormatError: a library that the new configuration needs is not installed.
    """
    return log._set_config(change)


def compaction_plan(log: Log) -> Plan:
    """Plan the next compaction of a log. Raises LogStoreError."""
    from logstore.log.compaction.compaction import plan_of

    log._state.check()
    try:
        return plan_of(log._state)
    except OSError as error:
        raise log._state.failed(error) from error


def compact(log: Log, pace: Callable[[int], None], table_bytes: int) -> CompactionReport:
    """Compact a log, as `Log.compact` does.

    Args:
        pace: called after each part of the work with the number of bytes that were read and
            written. If the call raises an error, the compaction ends with that error.
        table_bytes: the most memory for the table of keys.
    """
    from logstore.log.compaction.compaction import compact as compact_now

    return compact_now(log._state, pace, table_bytes)


def missing_of(log: ReadableLog) -> str:
    """Return why a followed copy may lack records, or "" if it has all records."""
    from logstore.log.follow.followed_replica import FollowedReplica

    return log._state.missing if isinstance(log._state, FollowedReplica) else ""


def checkpointed_high_watermark(log: ReadableLog) -> int | None:
    """Return the high watermark that the owner of a log last wrote to the disk, or None.

    Raises:
        LogStoreError: the disk failed.
    """
    state = log._state
    key, checkpoints = TopicPartition(state.topic, state.partition), state.log_dir.checkpoints
    try:
        known = checkpoints.high_watermark_now(key, state.metadata.topic_id)
    except OSError as error:
        raise state.failed(error) from error
    if known is None and state.metadata.extra.get(HIGH_WATERMARK) is None:
        return None
    return state.high_watermark


def note_missing(log: ReadableLog, reason: str) -> None:
    """Set the reason why a copy is incomplete; do nothing if the copy is complete."""
    from logstore.log.follow.followed_replica import FollowedReplica

    if isinstance(log._state, FollowedReplica) and log._state.missing:
        log._state.missing = reason


def is_lowered_since(log: Log, directory_id: str, seen: Generation) -> bool:
    """Check whether a log was created or truncated in or after generation `seen` of its log dir."""
    return log._state.metadata.is_lowered_since(directory_id, seen)


def limited_metadata(log: Log) -> PartitionMetadata | None:
    """If a truncation limits the recovery point of a log, return its metadata; else return None."""
    metadata = log._state.metadata
    return metadata if RECOVERY_POINT_LIMIT in metadata.extra else None


def lift_recovery_point_limit(log: Log, limited: PartitionMetadata) -> None:
    """After a later checkpoint, remove the limit that a truncation set on the recovery point.

    The limit disappears from the file at the next change of `partition.metadata`. If the metadata
    of the log is no longer the object `limited`, the log may have been truncated again. If the log
    was truncated again, the limit stays until the next checkpoint.
    """
    with log._state.flush_lock, kept(log._state, "flush_lock"):
        if log._state.metadata is limited:
            log._state.metadata = without_recovery_point_limit(limited)


@contextmanager
def stopped(log: Log) -> Iterator[None]:
    """Stop appends, flushes, truncations and retention during a `with` block; readers continue."""
    with log._state.flush_lock, log._state.lock, kept(log._state, "flush_lock", "lock"):
        log._state.check()
        yield


def disown(log: ReadableLog, reason: Callable[[], LogStoreError]) -> None:
    """In a forked child, make every call on a log raise the error that `reason` returns.

    The child inherits locks that threads of the parent may hold. So the log gets new locks.
    """
    log._state.unavailable = reason
    log._state.renew_locks()
