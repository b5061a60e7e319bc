"""Rebuild the producers of a log from a snapshot and the batches after it.

After a crash or a truncation, the newest snapshot at or before the log end is read, and the batch
headers after the snapshot's offset are replayed. If a snapshot is damaged, an older snapshot is
used. If there is no usable snapshot, all batch headers are replayed from the log start.
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
    """List the offsets of the snapshots at or before a log end offset, the newest first."""
    found = (offset_of(name, suffix) for name in names)
    return sorted((each for each in found if each is not None and each <= end_offset), reverse=True)


def replay(
    producers: Producers, batches: Iterable[tuple[BatchHeader, Marker | None]], now_ms: int
) -> list[Ended]:
    """Apply the batches that follow a snapshot; return the transactions that markers ended.

    Args:
        batches: the headers in order of offset, each with its marker, or with None if the batch is
            not a marker. Batches that the snapshot already includes are skipped.
        now_ms: the time at which the producers of the batches count as last used, so that no
            producer expires too early.
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
