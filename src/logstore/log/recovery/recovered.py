"""Describe a log after its recovery."""

from __future__ import annotations

from typing import NamedTuple

from logstore.log.segments.segment import Segment


class Recovered(NamedTuple):
    """The state of a log after its recovery.

    Attributes:
        unflushed: segments whose bytes may not be on the disk yet, in order.
        durable_offset: everything below this offset is known to be flushed.
        epochs: (epoch, first offset) from the scanned batches.
        snapshots: the offsets of the files of producers, in order.
        producers_from: the base offset of the first scanned segment with a batch of a producer.
        magic: the layout of the last segment; 0 if it was not looked at.
        indexed_bytes: how much of the last segment its index files describe; -1 if they are wrong.
    """

    segments: list[Segment]
    unflushed: list[Segment]
    durable_offset: int
    epochs: list[tuple[int, int]]
    snapshots: list[int]
    producers_from: int | None
    magic: int = 0
    indexed_bytes: int = -1
