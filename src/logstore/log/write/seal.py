"""Write a segment's index files; their trailer proves which part of the segment is flushed.

In a corrupt log, no segment gets a trailer. So the next open scans the whole log again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.log.segments.index_files import index_files, write_index_files
from logstore.log.segments.segment import Segment
from logstore.log.write.hung_locks import held

if TYPE_CHECKING:
    from logstore.log.state import LogState

CHECKPOINT_BYTES = 4 << 20


def seal(state: LogState, segment: Segment, fd: int) -> None:
    """Write a sealed segment's index files.

    The caller must hold `flush_lock`, and the segment must be durable.
    """
    if segment.is_dropped or segment.index is None or state.refusal:
        return
    try:
        snapshot = index_files(segment, fd, state.metadata, is_sealed=True)
    except OSError as error:
        raise state.failed(error) from error
    if _put_files(state, segment, snapshot):
        segment.index = segment.time_index = None


def checkpoint(state: LogState, *, is_closing: bool) -> None:
    """If the active segment is flushed and has grown enough, write its index files."""
    with state.flush_lock, held(state, "flush_lock"):
        with state.lock, held(state, "lock"):
            state.check()
            active = state.active
            needed_bytes = state.checkpointed_bytes + (1 if is_closing else CHECKPOINT_BYTES)
            is_flushed = state.writer is None and not state.unflushed
            if state.refusal or not is_flushed or active.size_bytes < needed_bytes:
                return
            try:
                # Keep this reference: the cache may release the handle at any time.
                handle = active.handle(state.environment)
                snapshot = index_files(active, handle.fd, state.metadata, is_sealed=False)
            except OSError as error:
                raise state.failed(error) from error
            active.seal = None
            state.checkpointed_bytes = active.size_bytes
        _put_files(state, active, snapshot)


def _put_files(state: LogState, segment: Segment, snapshot: tuple[bytes, bytes]) -> bool:
    """Write both index files; if the disk is full, return False, and the next open writes them."""
    try:
        write_index_files(segment.index_path, segment.time_index_path, *snapshot)
    except OSError as error:
        failure = state.failed(error)
        try:
            if not failure.retriable:
                raise failure from error
        finally:
            del failure  # avoid a reference cycle through this frame
        return False
    return True
