"""Record what is flushed of a segment: its index files, with the trailer that proves it.

In a corrupt log, no segment gets a trailer: the next open scans all of it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.log.segments.index_files import index_files, write_index_files
from logstore.log.segments.segment import Segment
from logstore.log.write.hung_locks import held

if TYPE_CHECKING:
    from logstore.log.write_state import WriteState

CHECKPOINT_BYTES = 4 << 20


def seal(log: WriteState, segment: Segment, fd: int) -> None:
    """Write a sealed segment's index files; `_flush_lock` is held and its data is durable."""
    if segment.is_dropped or segment.index is None or log._refusal:
        return
    try:
        snapshot = index_files(segment, fd, log._metadata, is_sealed=True)
    except OSError as error:
        raise log._failed(error) from error
    if _put_files(log, segment, snapshot):
        segment.index = segment.time_index = None


def checkpoint(log: WriteState, *, is_closing: bool) -> None:
    """Write the active segment's index files, if all of it is flushed and much of it is new."""
    with log._flush_lock, held(log, "_flush_lock"):
        with log._lock, held(log, "_lock"):
            log._check()
            active = log._active
            known_bytes = log._checkpointed_bytes + (0 if is_closing else CHECKPOINT_BYTES)
            is_flushed = log._writer is None and not log._unflushed
            if log._refusal or not is_flushed or active.size_bytes < known_bytes:
                return
            try:
                handle = active.handle(log._environment)  # held: a cache may release it at any time
                snapshot = index_files(active, handle.fd, log._metadata, is_sealed=False)
            except OSError as error:
                raise log._failed(error) from error
            active.seal = None
            log._checkpointed_bytes = active.size_bytes
        _put_files(log, active, snapshot)


def _put_files(log: WriteState, segment: Segment, snapshot: tuple[bytes, bytes]) -> bool:
    """Write both index files; False if the disk is full: then the next open makes them."""
    try:
        write_index_files(segment.index_path, segment.time_index_path, *snapshot)
    except OSError as error:
        failure = log._failed(error)
        try:
            if not failure.retriable:
                raise failure from error
        finally:
            del failure  # its traceback holds this frame
        return False
    return True
