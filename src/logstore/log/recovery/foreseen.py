"""Find, without owning a log, the damage that the next start of the log's owner will find."""

from __future__ import annotations

from logstore.disk import files
from logstore.format import layouts
from logstore.format.columnar import record_batch as columnar
from logstore.log.follow.followed_replica import FollowedReplica
from logstore.log.reader import ReadableLog
from logstore.log.recovery.ownership import Owner, owner_of
from logstore.log.recovery.report import DamageName, Problem
from logstore.log.recovery.verification import verify
from logstore.log.segments import trailer as trailers
from logstore.log.segments.listing import SegmentFiles
from logstore.log.segments.segment import Segment


def problems_of(log: ReadableLog) -> list[Problem]:
    """Return the damage that the next start will find, and damage at the start of a segment.

    If a trailer describes each segment of a followed log, and each segment begins with a batch,
    there is no such damage. If a segment has no trailer or begins otherwise, the whole log is read.

    Raises:
        LogStoreError: the disk failed, or the log is gone.
        OSError: the disk failed.
    """
    state = log._state
    if isinstance(state, FollowedReplica):
        state.refresh()
        is_sound = all(_is_described(state, row) for row in state.files.rows(state.directory))
    elif state.recovery.problems:
        return state.recovery.problems
    else:
        is_sound = all(_begins_with_batch(one) for one in state.segments if one.size_bytes)
    if is_sound:
        return []
    return [one for one in verify(state) if one.name is not DamageName.FALLING_EPOCHS]


def _is_described(state: FollowedReplica, row: SegmentFiles) -> bool:
    segment = Segment(state.directory, row.base_offset)
    trailer = trailers.read_trailer(segment.index_path, row.index_bytes)
    if trailer is None:
        return not row.log_bytes
    owner, _ = owner_of(state.metadata, segment, row, trailer)
    is_whole = owner is Owner.OURS and trailer.log_bytes == row.log_bytes
    return is_whole and (not row.log_bytes or _begins_with_batch(segment))


def _begins_with_batch(segment: Segment) -> bool:
    """Check the layout of the first batch, which a reader uses for the whole segment."""
    fd = files.open_regular(segment.log_path, files.READ)
    try:
        head = files.read_up_to(fd, layouts.MAGIC_AT + 1, 0)
    finally:
        files.close(fd)
    return head[layouts.MAGIC_AT :] in (bytes([layouts.KAFKA_MAGIC]), bytes([columnar.MAGIC]))
