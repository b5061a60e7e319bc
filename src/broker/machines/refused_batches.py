"""Remember refused batches of idempotent producers, so that no later batch overtakes them.

A producer sends several requests at once. Suppose that a broker does not lead a partition yet, so
it refuses the second batch. Then the broker becomes the leader before the third batch arrives. The
log would answer the third batch with OUT_OF_ORDER_SEQUENCE_NUMBER. After this error, some clients
begin a new producer epoch for all their partitions. A client with a new producer epoch also sends
all unacknowledged records again. In the new epoch, a broker does not recognise the records that it
already has, so it appends them twice. To prevent this, the broker refuses the third batch with the
same error as the second batch. The client then sends both batches again, in their order.

Several batches can be refused one after another. When the first refused batch comes again, the
batch that follows it must be next. A batch that the client has sent in the meantime must not be
next. So for each producer, a row holds two batches: the batch that must come first, and the refused
batch with the highest sequence number.

There is a second case: a batch was appended, but its wait for other replicas ended with
REQUEST_TIMED_OUT. If the leader loses its role, it may remove this batch from its log, and later
lead again. So the broker refuses later batches, too. Their error is NOT_ENOUGH_REPLICAS, which
tells the client that none of their records was written.

The time in this module is the time in which the process ran (`running_time`). If the process was
frozen, its clients could not send the refused batch again, so this time does not count.

The client may send the refused batch to another leader, and this broker may lead again later. Then
the batch is in the log. So the caller must look into the log from time to time. If the batch is
there, the caller must call `advance`.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.machines.topic_keys import may_exist

# Long before this time is over, the client has all answers to the requests that it has sent.
# After this time, only the log decides.
KEPT_SECONDS = 60.0
# If a batch timed out, the log most likely has the batch.
# The client may give up this batch and send the next batch.
# So later batches are refused for a shorter time.
TIMED_OUT_KEPT_SECONDS = 10.0
LOOK_SECONDS = 0.1  # the shortest time between two searches of a log for a refused batch
COUNT_MAX = 5000  # about as many partitions as a broker has; at most 4 MB for a connection
SEQUENCES, HALF_OF_SEQUENCES = 1 << 31, 1 << 30

Partition = tuple[str | bytes, int]


class Sent(NamedTuple):
    """The header fields of a batch that identify it among the batches of its producer."""

    producer_id: int
    epoch: int
    sequence: int

    def is_after(self, other: Sent) -> bool:
        """Report whether a batch is later in the same producer epoch. Sequence numbers wrap."""
        if self[:2] != other[:2]:
            return False
        return 0 < (self.sequence - other.sequence) % SEQUENCES < HALF_OF_SEQUENCES

    def after(self, count: int) -> Sent:
        """Return the batch that follows a batch of `count` records."""
        return self._replace(sequence=(self.sequence + count) % SEQUENCES)


class _Row(NamedTuple):
    """The refused batches of a producer in a partition.

    Attributes:
        first: the batch that must come first.
        last: the last batch that was refused.
        code: the error for the batches after the first one.
        until: the time until which they get this error.
    """

    first: Sent
    last: Sent
    code: int
    until: float


class RefusedBatches:
    """The refused batches of one connection, which the client must send again.

    Only requests of this connection use the object, one after another.
    """

    __slots__ = ("_look_at", "_rows")

    def __init__(self) -> None:
        # By partition and producer. The oldest row comes first.
        self._rows: dict[tuple[Partition, int], _Row] = {}
        self._look_at = 0.0

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
        """Store a refused batch, if its error makes the client send the batch again.

        Args:
            code: the error for later batches of the producer.
            kept_seconds: the time for which later batches get this error.

        Returns:
            Whether the batch was stored. If there are too many batches, the connection must be
            closed, because later batches could overtake this batch.
        """
        if not may_exist(partition[0]):
            return True
        key, row = (partition, sent.producer_id), _Row(sent, sent, code, now + kept_seconds)
        known = self._rows.pop(key, None)
        if known is not None and now < known.until:
            if known.last.is_after(sent):
                row = row._replace(last=known.last)
            if sent.is_after(known.first):  # the batch that was refused earlier must come first
                row = row._replace(first=known.first, code=known.code)
        while self._rows and next(iter(self._rows.values())).until <= now:
            del self._rows[next(iter(self._rows))]
        if len(self._rows) >= COUNT_MAX:
            return False
        self._rows[key] = row
        return True

    def code_for(self, partition: Partition, sent: Sent, now: float, count: int = 1) -> int | None:
        """If an earlier batch must come first, return its code; otherwise None.

        Args:
            count: the number of records of the batch `sent`.
        """
        key = partition, sent.producer_id
        row = self._rows.get(key)
        if row is None:
            return None
        is_over = now >= row.until
        if sent.is_after(row.first) and not is_over:
            if sent.is_after(row.last):
                self._rows[key] = row._replace(last=sent)
            return row.code
        if sent == row.first and not is_over:
            self.advance(partition, sent.after(count))
        elif is_over or not row.first.is_after(sent):
            del self._rows[key]
        return None

    def to_look_for(self, partition: Partition, producer_id: int, now: float) -> Sent | None:
        """Return the batch that must come first, if the log may be searched for it now."""
        row = self._rows.get((partition, producer_id))
        if row is None or now < self._look_at:
            return None
        self._look_at = now + LOOK_SECONDS
        return row.first

    def advance(self, partition: Partition, following: Sent) -> None:
        """Let a batch pass, because the batches before it have come.

        If no later batch was refused, all later batches may pass.
        """
        key = partition, following.producer_id
        row = self._rows.get(key)
        if row is None:
            return
        if following == row.last or row.last.is_after(following):
            self._rows[key] = row._replace(first=following)
        else:
            del self._rows[key]
