"""Decide which records of a compacted log stay (docs/adr/0023).

Of the records before the end of the range that was noted:

- The latest record of a key stays. A record without a key goes.
- A tombstone, a record whose value is null, stays until its batch's delete horizon. The first
  cleaning that leaves the tombstone as its key's latest record sets the horizon.
- The records of an aborted transaction go. A transaction's marker stays while a batch of the
  transaction was still there when the cleaning began, and then until a delete horizon.

What is after the end of the range stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from logstore.format import subsets
from logstore.format.batch_parts import BatchHeader
from logstore.log.compaction.latest_offsets import LatestOffsets

Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]
IsAborted = Callable[[BatchHeader], bool]


class Verdict(Enum):
    """What happens to a batch, as far as its header says it."""

    KEEP = auto()
    DROP = auto()
    LOOK = auto()  # its records decide


class Rules:
    """Judge the batches of a log one after the other, from its first batch on.

    The state is which transactions have batches: a pass over a log needs one object, whatever files
    the batches are in.
    """

    def __init__(
        self,
        latest: LatestOffsets,
        *,
        now_ms: int,
        delete_retention_ms: int,
        is_aborted: IsAborted = lambda _: False,
        kept_empty: Set[int] = frozenset(),
    ) -> None:
        """Create the rules of one pass.

        Args:
            latest: sealed.
            is_aborted: whether a batch belongs to an aborted transaction.
            kept_empty: the last offsets of batches that stay, without records if need be: the last
                batch of each producer, whose sequence number counts, and of a segment.
        """
        self.latest = latest
        self.kept_empty = kept_empty
        self.now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._is_aborted = is_aborted
        # Producers with a batch of a transaction since their last marker.
        self._with_batches: set[int] = set()

    def judge(self, header: BatchHeader, horizon_ms: int | None) -> Verdict:
        """Judge a batch by its header.

        Args:
            horizon_ms: the batch's delete horizon; None if it has none.
        """
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
        is_any = len(latest.between(header.base_offset, header.last_offset + 1))
        return Verdict.LOOK if is_any else Verdict.DROP

    def _is_needed(self, header: BatchHeader) -> bool:
        """Note a batch of a transaction; report whether anything depends on it."""
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
        if is_needed:  # or it ends no transaction
            return Verdict.KEEP
        if not header.record_count or (horizon_ms is not None and horizon_ms <= self.now_ms):
            return Verdict.DROP
        return Verdict.LOOK if horizon_ms is None else Verdict.KEEP

    def select(
        self,
        header: BatchHeader,
        horizon_ms: int | None,
        offsets: Numbers,
        is_null: Mask,
        is_superseded: Mask,
    ) -> tuple[Mask, int | None]:
        """Select the records that stay of a batch whose records decide; and its delete horizon.

        Args:
            offsets, is_null: of its records; whose values are null.
            is_superseded: the records before the noted range whose keys are in it, or that have no
                key; others do not matter.
        """
        if subsets.is_control(header):
            return np.ones(len(offsets), np.bool_), self._horizon_ms
        first, end = self.latest.first_offset, self.latest.end_offset
        keep: Mask = offsets >= end
        if header.base_offset < first:
            keep |= (offsets < first) & ~is_superseded
        winners = self.latest.between(header.base_offset, min(header.last_offset + 1, end))
        keep[np.searchsorted(offsets, winners)] = True
        if horizon_ms is not None:
            if horizon_ms <= self.now_ms:
                keep &= ~is_null | (offsets >= end)
        elif header.last_offset < end and bool((keep & is_null).any()):
            # Older records of a tombstone after the end of the range may still be there.
            horizon_ms = self._horizon_ms
        return keep, horizon_ms
