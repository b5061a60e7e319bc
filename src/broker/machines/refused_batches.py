"""Remember refused batches of idempotent producers, so that no later batch overtakes them.

A producer sends several requests at once. Suppose that a broker does not lead a partition yet, so
it refuses the second batch, and then becomes leader before the third batch arrives. The log would
answer the third batch with OUT_OF_ORDER_SEQUENCE_NUMBER. Some clients then begin a new producer
epoch for all their partitions, and send all records again that are not acknowledged. In the new
epoch, a broker does not recognize the records that it already has, so it appends them twice. To
prevent this, the broker refuses the third batch with the same error as the second batch. The client
then sends both batches again, in their order.

The same applies if a batch was appended, but its wait for other replicas ended with
REQUEST_TIMED_OUT: the leader may lose its role, truncate the batch, and lead again. The later batch
gets the error NOT_ENOUGH_REPLICAS, because none of it was written.
"""

from __future__ import annotations

from typing import NamedTuple

# The client gets all answers to its requests in flight long before this time is over. After it, the
# log decides.
KEPT_SECONDS = 60.0
# A batch that timed out is most likely in the log. A client that gives up this batch may send the
# next batch, so later batches are refused for a shorter time.
TIMED_OUT_KEPT_SECONDS = 10.0
COUNT_MAX = 5000  # about as many partitions as a broker has; at most 3.4 MB for a connection
NAME_MAX = 249  # no topic has a longer name
HALF_OF_SEQUENCES = 1 << 30

Partition = tuple[str | bytes, int]


class Sent(NamedTuple):
    """The header fields of a batch that identify it among the batches of its producer."""

    producer_id: int
    epoch: int
    sequence: int

    def is_after(self, other: Sent) -> bool:
        """Report whether a batch is later in the same producer epoch; sequences wrap (KIP-98)."""
        if self[:2] != other[:2]:
            return False
        return 0 < (self.sequence - other.sequence) % (1 << 31) < HALF_OF_SEQUENCES


class RefusedBatches:
    """The refused batches of one connection, which the client must send again.

    Only requests of this connection use the object, one after another.
    """

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        # By partition and producer: the refused batch, the error code for later batches, and the
        # time until which later batches get this code. The oldest row comes first.
        self._rows: dict[tuple[Partition, int], tuple[Sent, int, float]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def note(
        self,
        partition: Partition,
        sent: Sent,
        code: int,
        now: float,
        kept_seconds: float = KEPT_SECONDS,
    ) -> bool:
        """Remember a refused batch, if its error makes the client send the batch again.

        Args:
            code: the error for later batches of the producer.
            kept_seconds: how long later batches get this error.

        Returns:
            Whether the batch is remembered. If there are too many, the connection must be closed,
            because later batches could overtake this one.
        """
        if len(partition[0]) > NAME_MAX:
            return True
        key, until = (partition, sent.producer_id), now + kept_seconds
        known = self._rows.pop(key, None)
        if known is not None and sent.is_after(known[0]) and now < known[2]:
            sent, code, _ = known  # the batch that was refused earlier has to come first
        while self._rows and next(iter(self._rows.values()))[2] <= now:
            del self._rows[next(iter(self._rows))]
        if len(self._rows) >= COUNT_MAX:
            return False
        self._rows[key] = sent, code, until
        return True

    def code_for(self, partition: Partition, sent: Sent, now: float) -> int | None:
        """Return the code of an earlier batch that has to come first, or None."""
        key = partition, sent.producer_id
        row = self._rows.get(key)
        if row is None:
            return None
        earlier, code, until = row
        if sent.is_after(earlier) and now < until:
            return code
        if not (earlier.is_after(sent) and now < until):  # `sent` is not after the refused batch
            del self._rows[key]
        return None
