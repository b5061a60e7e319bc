"""Decide, by pure functions, whether a batch may follow the known batches of its producer.

The rules are Kafka's: KIP-98 (sequences, epochs, transactions), KIP-360 (a producer that the
log no longer knows continues with any sequence), KIP-890 (a transaction that the coordinator does
not know is refused).
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.errors import (
    CoordinatorFencedError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    ProducerFencedError,
)
from logstore.format.batch_parts import BatchHeader
from logstore.format.kafka.header import CONTROL, TRANSACTIONAL
from logstore.format.layouts import KAFKA_MAGIC
from logstore.format.producers import SEQUENCE_MAX

NO_SEQUENCE = -1
BITS = CONTROL | TRANSACTIONAL


class Known(NamedTuple):
    """The part of a producer's state that the check of its next batch needs.

    Attributes:
        last_sequence: the sequence of the producer's last record in this epoch; -1 if there is no
            record.
        is_open: whether the producer has an open transaction.
    """

    epoch: int
    last_sequence: int
    is_open: bool

    @property
    def next_sequence(self) -> int:
        """The sequence that the next batch in this epoch must have."""
        return (self.last_sequence + 1) & SEQUENCE_MAX


def is_watched(header: BatchHeader) -> bool:
    """Check whether a log has to track the producer of a batch.

    If a batch has a producer id but no epoch, the log does not check the id. The program that
    appended the batch uses the id to find the batch again. Spark's commits are such batches: each
    commit has its own producer id.
    """
    if header.producer_epoch < 0 and not bits_of(header):
        return False
    return header.producer_id >= 0


def bits_of(header: BatchHeader) -> int:
    """Give the bits TRANSACTIONAL and CONTROL of a batch; only Kafka's layout has them."""
    return header.attributes & BITS if header.magic == KAFKA_MAGIC else 0


def last_sequence_of(sequence: int, offset_delta: int) -> int:
    """Return the sequence of a batch's last record; the sequence after 2^31 - 1 is 0 (KIP-98).

    The sequence depends on the span of offsets, because compaction removes records, but keeps the
    span.
    """
    return (sequence + offset_delta) & SEQUENCE_MAX if sequence >= 0 else NO_SEQUENCE


def after(known: Known | None, header: BatchHeader, *, is_verified: bool) -> Known:
    """Check a batch that is not a duplicate; return its producer's state after the batch.

    Args:
        known: the producer's state before the batch. None if the log has no state of the producer,
            because the producer is new or expired, or because its records were deleted. If `known`
            is None, any epoch and sequence is accepted (KIP-360).
        is_verified: whether the batch may begin a transaction (KIP-890).

    Raises:
        ProducerFencedError: the epoch is lower than the known epoch (KIP-98).
        OutOfOrderSequenceError: the sequence is not the expected sequence, or a new epoch does not
            begin at 0 (KIP-98, KIP-360).
        InvalidTransactionStateError: the batch is outside of its producer's open transaction, or
            would begin a transaction that is not verified.
    """
    bits, epoch, is_open = bits_of(header), header.producer_epoch, False
    last = last_sequence_of(header.base_sequence, header.last_offset - header.base_offset)
    if known is not None:
        check_epoch(header.producer_id, epoch, known.epoch)
        if bits & CONTROL:
            return Known(epoch, known.last_sequence if epoch == known.epoch else NO_SEQUENCE, False)
        _check_sequence(header, known)
        is_open = known.is_open
    if is_open and not bits:
        _refuse(
            header,
            "a batch without a transaction is not allowed while a transaction of its "
            "producer is open",
        )
    is_ongoing = is_open and known is not None and known.epoch == epoch
    if bits == TRANSACTIONAL and not is_ongoing and not is_verified:
        _refuse(header, "the batch's transaction has ended, or the coordinator does not know it")
    return Known(epoch, last, is_open or bits == TRANSACTIONAL)


def check_epoch(producer_id: int, epoch: int, current_epoch: int) -> None:
    """Refuse a producer or marker with a lower epoch than the known epoch (KIP-98)."""
    if epoch < current_epoch:
        raise ProducerFencedError(producer_id=producer_id, epoch=epoch, current_epoch=current_epoch)


def _check_sequence(header: BatchHeader, known: Known) -> None:
    """Refuse a wrong sequence. Batches of coordinators have no sequence, and are accepted."""
    sequence, epoch = header.base_sequence, header.producer_epoch
    expected = known.next_sequence if epoch == known.epoch else 0
    if sequence not in (expected, NO_SEQUENCE):
        out_of_order(header, expected)


def out_of_order(header: BatchHeader, expected: int) -> None:
    """Raise OutOfOrderSequenceError, which contains the expected sequence."""
    raise OutOfOrderSequenceError(
        producer_id=header.producer_id,
        epoch=header.producer_epoch,
        sequence=header.base_sequence,
        expected_sequence=expected,
    )


def _refuse(header: BatchHeader, reason: str) -> None:
    raise InvalidTransactionStateError(
        producer_id=header.producer_id, epoch=header.producer_epoch, reason=reason
    )


def check_marker(producer_id: int, epoch: int, known: Known, *, is_epoch_raised: bool) -> None:
    """Check that a marker belongs to the open transaction, not to an earlier transaction.

    Args:
        is_epoch_raised: True if the coordinator raises the epoch with each transaction (KIP-890,
            part 2). If the epoch is raised, a marker with the epoch of the open transaction is a
            late copy of the marker that ended the previous transaction.

    Raises:
        ProducerFencedError: the marker belongs to an earlier epoch or transaction.
    """
    check_epoch(producer_id, epoch, known.epoch)
    if is_epoch_raised and known.is_open and epoch == known.epoch:
        raise ProducerFencedError(producer_id=producer_id, epoch=epoch, current_epoch=known.epoch)


def check_coordinator(producer_id: int, coordinator_epoch: int, current_epoch: int) -> None:
    """Refuse the marker of a coordinator that another coordinator has replaced (KIP-98)."""
    if coordinator_epoch < current_epoch:
        raise CoordinatorFencedError(
            producer_id=producer_id,
            coordinator_epoch=coordinator_epoch,
            current_epoch=current_epoch,
        )
