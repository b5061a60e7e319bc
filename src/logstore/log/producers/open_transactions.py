"""Track which transactions of a log are open, and compute the last stable offset.

Invariant: in each list, transactions are in the order of their offsets, so the first is the oldest.
When a marker has ended a transaction, the transaction is undecided until the marker is below the
high watermark (KIP-98). Before that, a new leader may lack the marker.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

VERIFICATIONS_MAX = 10_000
UNDECIDED_MAX = 1000


class Ended(NamedTuple):
    """A transaction that a marker has ended, with the fields of Kafka's transaction index.

    Attributes:
        last_offset: the offset of the marker.
        last_stable_offset: the first offset of the oldest transaction that was still open after the
            marker; if no transaction was open, the offset after the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    is_aborted: bool


class Verification(NamedTuple):
    """A permission to append the first batch of one transaction; it can be used once (KIP-890).

    Attributes:
        token: the number that must be passed to the append of the batch.
        lowest_sequence: the lowest sequence among the batches for which the permission was
            requested. A batch with a higher sequence must not be appended first.
        asked_ms: when the permission was first requested.
    """

    token: int
    epoch: int
    lowest_sequence: int
    asked_ms: int


class OpenTransactions:
    """The open and the undecided transactions of one log.

    Attributes:
        open: for each producer id, the first offset of its open transaction; the oldest is first.
    """

    # All logs share one counter.
    # So if a log's state is rebuilt, its older tokens are never valid again.
    _tokens = count(1)

    def __init__(
        self, begun: Iterable[tuple[int, int]] = (), undecided: Iterable[tuple[int, int]] = ()
    ) -> None:
        self.open = OrderedDict(sorted(begun, key=lambda each: each[1]))
        # Pairs of first offset and marker offset; both offsets rise from pair to pair.
        # If a transaction lies inside an outer transaction, only the outer transaction is kept.
        # The outer transaction begins earlier and ends later.
        # So the outer transaction alone decides the last stable offset.
        # A log that is not replicated keeps pairs, too, because the log may be replicated later.
        # So the number of pairs is limited.
        self._undecided = deque(undecided)
        self._verifications: dict[int, Verification] = {}

    def verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> int:
        """Give the token for the first batch of a transaction that is not open; see `Producers`."""
        found = self._verifications.get(producer_id)
        if found is None or found.epoch < epoch:
            found = Verification(next(self._tokens), epoch, sequence, now_ms)
        elif found.epoch == epoch and 0 <= sequence < found.lowest_sequence:
            found = found._replace(lowest_sequence=sequence)
        self._verifications[producer_id] = found
        if len(self._verifications) > VERIFICATIONS_MAX:  # drop the oldest verification
            del self._verifications[next(iter(self._verifications))]
        return found.token

    def verified(self, producer_id: int, token: int) -> Verification | None:
        """Find the verification with this token, if it is still valid."""
        found = self._verifications.get(producer_id)
        return found if found is not None and found.token == token else None

    def verification_of(self, producer_id: int) -> Verification | None:
        """Return the verification of a producer, if there is one."""
        return self._verifications.get(producer_id)

    def restore(self, producer_id: int, verification: Verification) -> None:
        """Keep a verification that a marker of an earlier transaction has cancelled."""
        self._verifications[producer_id] = verification

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Remember a batch of a transaction; the first batch begins the transaction."""
        self._verifications.pop(producer_id, None)
        self.open.setdefault(producer_id, first_offset)

    def end(self, producer_id: int, marker_offset: int, *, is_aborted: bool) -> Ended | None:
        """Remember a marker; return the transaction that it ended, or None if none was open.

        The marker also cancels the verification of a transaction without batches. So a batch that
        was sent before the marker cannot be appended after the marker (KIP-890).
        """
        self._verifications.pop(producer_id, None)
        first = self.open.pop(producer_id, None)
        if first is None:
            return None
        while self._undecided and self._undecided[-1][0] > first:
            self._undecided.pop()
        self._undecided.append((first, marker_offset))
        if len(self._undecided) > UNDECIDED_MAX:  # join the two oldest pairs into one pair
            oldest, following = self._undecided.popleft(), self._undecided.popleft()
            self._undecided.appendleft((oldest[0], following[1]))
        stable = next(iter(self.open.values()), marker_offset + 1)
        return Ended(producer_id, first, marker_offset, stable, is_aborted)

    def last_stable_offset(self, high_watermark: int, log_start_offset: int) -> int:
        """Return the last stable offset; see `Producers.last_stable_offset`."""
        undecided = self._undecided
        while undecided and undecided[0][1] < high_watermark:
            undecided.popleft()
        first = next(iter(self.open.values()), high_watermark)
        if undecided:
            first = min(first, undecided[0][0])
        return max(min(first, high_watermark), log_start_offset)

    def first_open_offset(self, end_offset: int, log_start_offset: int) -> int:
        """Return where the oldest open transaction begins; if none is open, the end of the log."""
        return max(min(next(iter(self.open.values()), end_offset), end_offset), log_start_offset)

    def expire(self, limit_ms: int) -> None:
        """Forget the unused verifications that were requested at or before a time."""
        for producer_id, found in list(self._verifications.items()):
            if found.asked_ms <= limit_ms:
                del self._verifications[producer_id]

    @property
    def undecided(self) -> list[tuple[int, int]]:
        """The first offset and the marker of each ended transaction that may be undecided."""
        return list(self._undecided)
