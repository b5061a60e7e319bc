"""Rebuild the producers of a log from a snapshot and the batches after it.

After a crash or a truncation, the newest snapshot at or below the log's end is read, and the
headers from its offset on are replayed. A damaged snapshot is passed over for an older one; if
there is none, everything is replayed from the log start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from logstore.format.batch_parts import BatchHeader
from logstore.format.producer_file import SUFFIX, offset_of
from logstore.log.producers.open_transactions import Ended
from logstore.log.producers.producer_state import Producers

if TYPE_CHECKING:
    from logstore.format.kafka.markers import Marker


def snapshot_offsets(names: Iterable[str], end_offset: int, suffix: str = SUFFIX) -> list[int]:
    """List the offsets of the snapshots that fit a log with this end, the newest first."""
    found = (offset_of(name, suffix) for name in names)
    return sorted((each for each in found if each is not None and each <= end_offset), reverse=True)


def replay(
    producers: Producers, batches: Iterable[tuple[BatchHeader, Marker | None]], now_ms: int
) -> list[Ended]:
    """Take the batches that a log has after a snapshot; return the transactions that ended in them.

    Args:
        batches: in order, each with what it says if it is a control batch; those that the snapshot
            knows are passed over.
        now_ms: counts as the time when their producers were last used, so none expires too early.
    """
    ended: list[Ended] = []
    for header, marker in batches:
        if header.base_offset < producers.end_offset:
            continue
        if marker is None:
            producers.take(header, header.base_offset, now_ms)
            continue
        found = producers.take_marker(header, header.base_offset, now_ms, marker)
        if found is not None:
            ended.append(found)
    return ended
