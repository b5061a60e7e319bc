"""Remember refused batches of idempotent producers, so that no later batch overtakes them.

A producer sends several requests at once. Suppose that a partition refuses its second batch for a
moment, for example because its broker does not lead yet, and could take the third. The log would
answer the third with OUT_OF_ORDER_SEQUENCE_NUMBER. Some clients then begin a new producer epoch for
all their partitions, and send everything again that is not acknowledged. In the new epoch no broker
can know which of these records it already has, so it appends them twice. So the third batch is
refused with the same error as the second. The client then sends both again, in their order.
"""

from __future__ import annotations

from typing import NamedTuple

# A client has its requests in flight answered long before. Later, the log decides.
KEPT_SECONDS = 60.0
COUNT_MAX = 1000
NAME_MAX = 249  # no topic has a longer name
HALF_OF_SEQUENCES = 1 << 30

Partition = tuple[str | bytes, int]


class Sent(NamedTuple):
    """The header fields of a batch that identify it among the batches of its producer."""

    producer_id: int
    epoch: int
    sequence: int

    def is_after(self, other: Sent) -> bool:
        """Check whether a batch comes later in the same producer epoch; sequences wrap (KIP-98)."""
        if self[:2] != other[:2]:
            return False
        return 0 < (self.sequence - other.sequence) % (1 << 31) < HALF_OF_SEQUENCES


class RefusedBatches:
    """The batches that one connection sent, and that are to be sent again.

    Only requests of this connection use the object, one after another.
    """

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        # By partition and producer: the refused batch, the error code, and when it was refused.
        self._rows: dict[tuple[Partition, int], tuple[Sent, int, float]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def note(self, partition: Partition, sent: Sent, code: int, now: float) -> None:
        """Remember a batch that was refused with an error after which clients send it again."""
        if len(partition[0]) > NAME_MAX:
            return
        if len(self._rows) >= COUNT_MAX:
            del self._rows[next(iter(self._rows))]
        self._rows[partition, sent.producer_id] = sent, code, now

    def code_for(self, partition: Partition, sent: Sent, now: float) -> int | None:
        """Return the code of an earlier batch that has to come first; None if there is none."""
        key = partition, sent.producer_id
        row = self._rows.get(key)
        if row is None:
            return None
        earlier, code, refused_at = row
        if sent.is_after(earlier) and now - refused_at < KEPT_SECONDS:
            return code
        del self._rows[key]
        return None
