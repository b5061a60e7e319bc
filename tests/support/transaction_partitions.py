"""Hold the clients and the partitions of a model of transactions.

A partition uses the real rules of a log. It remembers for each batch which transaction its client
meant. So when a marker ends the batches of a producer, the model can compare the marker with the
decision of that transaction.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from broker.transactions.steps import Asker, Markers
from broker.transactions.transaction import Place, Protocol
from logstore import LogStoreError, ProducerFencedError
from logstore.log.producers.producer_state import Producers
from support.producers import end, header


@dataclass(eq=False)
class Client:
    """A client with what it was given.

    `transaction` is its present transaction, and `ending` the end that was confirmed. With the
    protocol RAISING, `asked` is the end that it asked for without an answer.
    """

    asker: Asker
    number: int
    protocol: Protocol = Protocol.OLD
    transaction: int | None = None
    ending: bool | None = None
    asked: bool | None = None
    is_broken: bool = False
    has_old: bool = False  # whether its epoch has had a transaction of the protocol OLD
    sequences: dict[Place, int] = field(default_factory=dict)
    acked: Counter[Place] = field(default_factory=Counter)

    def begin(self, transaction: int, protocol: Protocol) -> None:
        self.transaction, self.protocol = transaction, protocol
        self.ending, self.is_broken = None, False
        self.has_old |= protocol is Protocol.OLD
        self.acked.clear()

    def take(self, asker: Asker) -> None:
        """Continue with another id or epoch; its sequences begin again."""
        self.asker, self.asked, self.transaction, self.has_old = asker, None, None, False
        self.sequences.clear()


@dataclass(eq=False)
class Batch:
    """A batch on its way: it gets a token, then the coordinator is asked, then it is appended."""

    asker: Asker
    transaction: int
    place: Place
    sequence: int
    token: int | None = None
    is_permitted: bool = False


@dataclass
class Partition:
    """One partition; `open` has the transactions of the batches that no marker has ended."""

    producers: Producers = field(default_factory=Producers)
    open: dict[int, list[int]] = field(default_factory=dict)

    def token(self, batch: Batch) -> int:
        """Give the token for a batch."""
        return self.producers.verification(*batch.asker, batch.sequence, 0)

    def append(self, batch: Batch) -> bool:
        """Append a batch, unless the rules of the log refuse it."""
        found = header(
            batch.asker.producer_id, batch.sequence, epoch=batch.asker.epoch, transactional=True
        )
        try:
            self.producers.check([found], batch.token)
        except LogStoreError:
            return False
        self.producers.take(found, self.producers.end_offset, 0)
        self.open.setdefault(batch.asker.producer_id, []).append(batch.transaction)
        return True

    def mark(self, markers: Markers) -> list[int]:
        """Append a marker, unless it is fenced; return the transactions of the ended batches."""
        producer_id, epoch = markers.producer_id, markers.epoch
        try:
            self.producers.check_marker(producer_id, epoch, 0, is_epoch_raised=markers.is_raised)
        except ProducerFencedError:
            return []
        later = self.producers.later_verification(
            producer_id, epoch, is_epoch_raised=markers.is_raised
        )
        end(self.producers, producer_id, commit=markers.is_commit, epoch=epoch)
        if later is not None:
            self.producers.restore(producer_id, later)
        return self.open.pop(producer_id, [])
