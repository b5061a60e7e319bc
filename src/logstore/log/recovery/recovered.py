"""Describe a log after its recovery."""

from __future__ import annotations

from typing import NamedTuple

from logstore.log.segments.segment import Segment


class Recovered(NamedTuple):
    """The state of a log after its recovery.

    Attributes:
        unflushed: segments that may have unflushed bytes, in the order of the log.
        durable_offset: all records before this offset are flushed.
        epochs: pairs (epoch, first offset) from the scanned batches and from the trailers; a
            trailer's epoch has the offset -1.
        snapshots: the offsets of the `.producers` files, in ascending order.
        producers_from: the base offset of the first scanned segment that has a batch with a
            producer id; None if there is no such segment.
        magic: the layout of the last segment; 0 if recovery did not read the layout.
        indexed_bytes: the size of the last segment if its index files describe the whole segment;
            otherwise -1.
    """

    segments: list[Segment]
    unflushed: list[Segment]
    durable_offset: int
    epochs: list[tuple[int, int]]
    snapshots: list[int]
    producers_from: int | None
    magic: int = 0
    indexed_bytes: int = -1
