"""Decide which records of a compacted log stay (docs/adr/0023).

A cleaning collects the keys in a range of offsets. All records after this range stay. The following
rules hold for all other records:

- The latest record of a key stays. Older records of the key and records without a key are removed.
- A tombstone is a record whose value is null. A tombstone stays until the delete horizon of its
  batch. The delete horizon is a time. The first cleaning in which the tombstone is the latest
  record of its key sets the delete horizon.
- The records of an aborted transaction are removed. While cleanings find batches of a transaction,
  the transaction's marker stays. The first cleaning that finds no batch of the transaction sets the
  delete horizon of the marker. The marker stays until its delete horizon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from logstore.format import subsets
from logstore.format.batch_parts import BatchHeader
from logstore.log.compaction.latest_offsets import LatestOffsets

Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]
Horizons = Sequence["int | None"]
NEVER_PASSED = -1
IsAborted = Callable[[BatchHeader], bool]


class Verdict(Enum):
    """The decision about a batch, which is based only on the batch's header."""

    KEEP = auto()
    DROP = auto()
    LOOK = auto()  # the header is not enough, so look at the records


class Rules:
    """Judge the batches of a log one after the other, from the first batch on.

    The object remembers which transactions have batches. So a pass over a log uses the same object
    for all segments.
    """

    def __init__(
        self,
        latest: LatestOffsets,
        *,
        now_ms: int,
        delete_retention_ms: int,
        is_aborted: IsAborted = lambda _: False,
        kept_empty: Set[int] = frozenset(),
        keeps_deletions: bool = False,
    ) -> None:
        """Create the rules of one pass.

        Args:
            latest: the sealed table of the collected keys.
            is_aborted: a function that returns whether a batch belongs to an aborted transaction.
            kept_empty: the last offsets of batches that stay even if no record of the batch stays.
                Two kinds of batches stay empty: the last batch of each producer, which has the
                producer's sequence, and the last batch of each segment.
            keeps_deletions: whether tombstones and markers stay even after their delete horizon.
        """
        self.latest = latest
        self.kept_empty = kept_empty
        # A delete horizon at or before this time has passed.
        self.passed_ms = NEVER_PASSED if keeps_deletions else now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._is_aborted = is_aborted
        # The producers that have a batch of a transaction after their last marker.
        self._with_batches: set[int] = set()

    def judge_all(self, headers: Sequence[BatchHeader], horizons: Horizons) -> list[Verdict]:
        """Judge batches by their headers.

        Args:
            horizons: the delete horizon of each batch; None if the batch has none.
        """
        bases = np.array([header.base_offset for header in headers], np.int64)
        ends = np.array([header.last_offset + 1 for header in headers], np.int64)
        has_latest = self.latest.has_between(bases, ends).tolist()
        return list(map(self._judge, headers, horizons, has_latest))

    def _judge(self, header: BatchHeader, horizon_ms: int | None, has_latest: bool) -> Verdict:
        latest, is_needed = self.latest, True
        if subsets.is_transactional(header):
            is_needed = self._is_needed(header)
        if header.base_offset >= latest.end_offset:
            return Verdict.KEEP
        if subsets.is_control(header):
            return self._judge_control(header, horizon_ms, is_needed)
        if not is_needed or not header.record_count:
            return Verdict.DROP
        if header.base_offset < latest.first_offset or header.last_offset >= latest.end_offset:
            return Verdict.LOOK
        return Verdict.LOOK if has_latest else Verdict.DROP

    def _is_needed(self, header: BatchHeader) -> bool:
        """Remember a batch of a transaction, and return whether the batch is needed.

        A batch of an aborted transaction is not needed. A marker is not needed if no batch of its
        transaction remains.
        """
        producer_id = header.producer_id
        if subsets.is_control(header):
            is_needed = producer_id in self._with_batches
            self._with_batches.discard(producer_id)
            return is_needed
        self._with_batches.add(producer_id)
        return not self._is_aborted(header)

    def _judge_control(
        self, header: BatchHeader, horizon_ms: int | None, is_needed: bool
    ) -> Verdict:
        if is_needed:  # this is not a marker, or the marker's transaction has batches
            return Verdict.KEEP
        if not header.record_count or (horizon_ms is not None and horizon_ms <= self.passed_ms):
            return Verdict.DROP
        return Verdict.LOOK if horizon_ms is None else Verdict.KEEP

    def select(
        self,
        headers: Sequence[BatchHeader],
        horizons: Horizons,
        firsts: Numbers,
        offsets: Numbers,
        is_null: Mask,
        is_superseded: Mask,
    ) -> tuple[Mask, list[int | None]]:
        """In the batches whose records must be looked at, select the records that stay.

        Also return the new delete horizon of each batch.

        Args:
            firsts: the row of each batch's first record; the last item is the number of all
                records.
            offsets: the offsets of the records, in ascending order.
            is_null: whether the value of each record is null.
            is_superseded: True for a record before the key range if it has no key, or if its key
                is also in the range. For records in the key range, the value of `is_superseded` is
                not used.
        """
        first, end = self.latest.first_offset, self.latest.end_offset
        counts, is_beyond = firsts[1:] - firsts[:-1], offsets >= end
        keep = is_beyond | ((offsets < first) & ~is_superseded)
        winners = self.latest.between(int(offsets[0]), min(int(offsets[-1]) + 1, end))
        places = np.searchsorted(offsets, winners)
        # `winners` may also contain offsets of records in other batches, which `offsets` lacks.
        keep[places[offsets[places] == winners]] = True
        is_over = [one is not None and one <= self.passed_ms for one in horizons]
        if any(is_over):
            keep &= ~(np.repeat(is_over, counts) & is_null) | is_beyond
        is_control = list(map(subsets.is_control, headers))
        if any(is_control):
            keep |= np.repeat(is_control, counts)
        begins = np.logical_or.reduceat(keep & is_null, firsts[:-1])
        # A batch that ends after the key range gets no delete horizon.
        # The reason: older records of its keys may still exist.
        begins &= [header.last_offset < end for header in headers]
        begins |= is_control
        return keep, [
            self._horizon_ms if horizon_ms is None and begin else horizon_ms
            for horizon_ms, begin in zip(horizons, begins.tolist(), strict=True)
        ]
