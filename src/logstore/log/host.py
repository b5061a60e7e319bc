"""Give the packages above their access to a log, in addition to its public methods.

The store, the mover and the Spark source use these functions, and `log/relocation` for a swap;
none of them touches a private attribute of a log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from logstore.config import LogConfig
from logstore.disk.documents.generations import Generation
from logstore.disk.log_dir import LogDir
from logstore.errors import LogStoreError
from logstore.log.metadata import (
    RECOVERY_POINT_LIMIT,
    PartitionMetadata,
    without_recovery_point_limit,
)
from logstore.log.read.cursor import Cursor
from logstore.log.segments.cache import Handle
from logstore.log.segments.segment import Segment
from logstore.log.write.hung_locks import NOT_WRITING
from logstore.log.write.hung_locks import held as kept

if TYPE_CHECKING:
    from logstore.log.log import Log
    from logstore.log.replica import Replica

# --- its state ----------------------------------------------------------------------------------


def check(log: Replica) -> None:
    """Raise the reason if the log does not serve: closed, offline, suspect or forked."""
    log._check()


def is_detached(log: Replica) -> bool:
    """Check whether the log was closed, deleted or released by its log dir. Touches no disk."""
    return log._unavailable is not None


def is_writing(log: Log) -> bool:
    """Tell whether an append to the log is in a system call now."""
    return log._writing != NOT_WRITING


def writing_position(log: Log) -> int | None:
    """Give the position that an append writes at now, or None if none does."""
    position = log._writing
    return None if position == NOT_WRITING else position


def log_dir_of(log: Replica) -> LogDir:
    """Give the log dir that holds the log now."""
    return log._log_dir


def metadata_of(log: Replica) -> PartitionMetadata:
    """Give the content of `partition.metadata`."""
    return log._metadata


def segments_of(log: Replica) -> tuple[Segment, ...]:
    """Give the current segments, in order of offset; the last one is the active one."""
    return log._view[0]


# --- telling its subscribers --------------------------------------------------------------------


def tell_end(log: Replica) -> None:
    """Tell a log's subscribers, once, if it was detached; the caller holds none of its locks."""
    if hasattr(log, "_tell_end"):  # a log that is open to be read only has no subscribers
        log._tell_end()


# --- reading its files --------------------------------------------------------------------------


def refresh(log: Replica) -> None:
    """Read what another process changed in the log; the owner's log is always up to date."""
    log._refresh()


def start_at(log: Replica, offset: int) -> bool:
    """Start a log at a checkpoint's offset, if it reaches that far; returns whether it does."""
    if not log.log_start_offset < offset <= log.log_end_offset:
        return False
    log._log_start_offset = offset
    return True


def open_segment(log: Replica, segment: Segment) -> Handle:
    """Give an open file of a segment; raises OSError, or the reason if the log does not serve."""
    handle = segment.handle(log._environment)
    if log._unavailable is not None:  # detached meanwhile: this file would never be closed
        segment.forget(log._environment)
        log._check()
    return handle


def cursor_of(log: Replica, segment: Segment, offset: int) -> Cursor:
    """Make a cursor that walks a segment from the batch that holds `offset`."""
    return Cursor(segment, offset, log._environment)


# --- changing it --------------------------------------------------------------------------------


def change_metadata(log: Log, change: Callable[[PartitionMetadata], dict[str, Any] | None]) -> None:
    """Replace fields of `partition.metadata` durably, under the log's flush lock.

    Args:
        change: gives the new values of fields, or None if nothing is to be written.

    Raises:
        LogStoreError: the log does not serve, or its disk failed.
    """
    with log._flush_lock, kept(log, "_flush_lock"):
        log._check()
        changes = change(log._metadata)
        if changes is not None:
            log._set_metadata(**changes)


def set_config(log: Log, change: Callable[[LogConfig], LogConfig]) -> LogConfig:
    """Replace the configuration of a log durably, and put it in force; give the new one.

    Args:
        change: makes the new configuration from the old one, and raises if that is wrong.

    Raises:
        LogStoreError: as an append does; the old configuration stays in force.
        UnsupportedFormatError: a library that the new one needs is not installed.
    """
    return log._set_config(change)


def is_lowered_since(log: Log, directory_id: str, seen: Generation) -> bool:
    """Check whether a log was made or truncated after a generation of its log dir was seen."""
    return log._metadata.is_lowered_since(directory_id, seen)


def limited_metadata(log: Log) -> PartitionMetadata | None:
    """Give a log's metadata if a truncation limits its recovery point; otherwise None."""
    metadata = log._metadata
    return metadata if RECOVERY_POINT_LIMIT in metadata.extra else None


def lift_recovery_point_limit(log: Log, limited: PartitionMetadata) -> None:
    """Remove the limit of a truncation: the checkpoint on the disk was written after it.

    The file loses it with its next change. If the metadata has changed since before the checkpoint
    was written, the log may have been truncated since: the next checkpoint handles that.
    """
    with log._flush_lock, kept(log, "_flush_lock"):
        if log._metadata is limited:
            log._metadata = without_recovery_point_limit(limited)


@contextmanager
def stopped(log: Log) -> Iterator[None]:
    """Keep all threads from writing, flushing, truncating and retaining; readers continue."""
    with log._flush_lock, log._lock, kept(log, "_flush_lock", "_lock"):
        log._check()
        yield


def disown(log: Replica, reason: Callable[[], LogStoreError]) -> None:
    """Make every call on a log raise `reason`, in a forked child.

    The child inherits locks that threads of the parent may hold, so it gets new ones.
    """
    log._unavailable = reason
    for name in ("_lock", "_flush_lock", "_refreshing"):
        if hasattr(log, name):
            setattr(log, name, threading.Lock())
    if hasattr(log, "_appended"):
        log._appended = threading.Lock()
    if hasattr(log, "_commit"):
        log._commit = None
