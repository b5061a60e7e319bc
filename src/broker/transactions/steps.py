"""Decide what an event changes in a transaction: (transaction, event, now) -> Step.

Each function gets the transaction in the log, and returns the new transaction. The caller first
writes the new transaction to the log. Only then does the caller answer with `code`, and write the
markers. A function that refuses or repeats a request returns the transaction unchanged.

The rules are Kafka's: KIP-98, KIP-360 (a client asks for the next epoch of its producer id), and
KIP-890 (each end of a transaction raises the epoch, if the client uses the protocol RAISING).
"""

from __future__ import annotations

from typing import NamedTuple

from broker.transactions.transaction import (
    CLIENT_EPOCH_MAX,
    COMPLETE,
    COMPLETE_OF,
    IDLE,
    NO_EPOCH,
    NO_ID,
    NO_TIME,
    PREPARED,
    Place,
    Protocol,
    State,
    Transaction,
    check_step,
)
from broker.wire.error_codes import ErrorCode

NOBODY: frozenset[Place] = frozenset()


class Markers(NamedTuple):
    """The markers that end a transaction: one in each of its partitions.

    Attributes:
        is_raised: whether the epoch is higher than the epoch of the transaction's batches. With a
            higher epoch, a partition refuses a marker that has the epoch of its open transaction:
            such a marker is a late copy, and belongs to the previous transaction.
    """

    producer_id: int
    epoch: int
    is_commit: bool
    partitions: frozenset[Place]
    is_raised: bool = False


class Step(NamedTuple):
    """The result of an event.

    Attributes:
        code: the error code of the answer, which is sent after the change is in the log.
        after: the transaction after the event; None if the transactional id does not exist then.
        markers: the markers to write after the change is in the log, or None.
    """

    code: ErrorCode
    after: Transaction | None
    markers: Markers | None = None


class Asker(NamedTuple):
    """The producer id and the epoch that a request names."""

    producer_id: int = NO_ID
    epoch: int = NO_EPOCH


def _step(before: Transaction | None, after: Transaction, code: ErrorCode = ErrorCode.NONE) -> Step:
    check_step(before, after)
    return Step(code, after, markers_of(after))


def markers_of(transaction: Transaction) -> Markers | None:
    """Return the markers that a prepared transaction needs; None for any other transaction."""
    if transaction.state not in PREPARED:
        return None
    is_commit = transaction.state is State.PREPARE_COMMIT
    return Markers(
        transaction.producer_id, transaction.epoch, is_commit, transaction.partitions,
        is_raised=transaction.protocol is Protocol.RAISING,
    )  # fmt: skip


def given(transaction: Transaction) -> Asker:
    """Return the newest producer id and epoch that the client was given.

    While markers are written, the client may have the next producer id already.
    """
    if transaction.next_id != NO_ID:
        return Asker(transaction.next_id, 0)
    return Asker(transaction.producer_id, transaction.epoch)


# --- InitProducerId -------------------------------------------------------------------------------


def needs_new_id(before: Transaction | None, asker: Asker) -> bool:
    """Report whether `init_producer` has to give a new producer id."""
    if before is None:
        return True
    is_present = asker == Asker() or asker.epoch == before.epoch
    return before.state in IDLE and before.is_exhausted and is_present


def init_producer(
    before: Transaction | None, asker: Asker, timeout_ms: int, new_id: int, now_ms: int
) -> Step:
    """Give a producer id and an epoch to a client, and fence every earlier client.

    If a transaction is ONGOING, it is aborted with the next epoch, and the client asks again.

    Args:
        asker: the client's producer id and epoch, if it asks for its next epoch (KIP-360). new_id:
            a new producer id, if `needs_new_id`.
    """
    if before is None:
        return _step(None, _begun(new_id, 0, timeout_ms, now_ms))
    if asker not in (Asker(), given(before)) and not _may_ask(before, asker):
        return Step(ErrorCode.PRODUCER_FENCED, before)
    if before.state in PREPARED:
        return Step(ErrorCode.CONCURRENT_TRANSACTIONS, before)
    if before.state is State.ONGOING:
        # the epoch that the client names was replaced, and is in use
        if asker not in (Asker(), given(before)):
            return Step(ErrorCode.PRODUCER_FENCED, before)
        return _fenced(before, now_ms, ErrorCode.CONCURRENT_TRANSACTIONS)
    if needs_new_id(before, asker):
        after = _begun(new_id, 0, timeout_ms, now_ms)
        if asker != Asker():
            after = after._replace(previous_id=before.producer_id, previous_epoch=before.epoch)
        return _step(before, after)
    epoch, previous_id, previous_epoch = before.epoch + 1, NO_ID, NO_EPOCH
    if asker != Asker():
        previous_id, previous_epoch = before.producer_id, before.epoch
        if asker.epoch == before.previous_epoch and asker.producer_id == before.previous_id:
            # The answer to the client's same request was lost.
            epoch = before.epoch
            previous_id, previous_epoch = before.previous_id, before.previous_epoch
        elif asker.epoch != before.epoch:
            return Step(ErrorCode.PRODUCER_FENCED, before)
    after = _begun(before.producer_id, epoch, timeout_ms, now_ms)
    return _step(before, after._replace(previous_id=previous_id, previous_epoch=previous_epoch))


def _may_ask(before: Transaction, asker: Asker) -> bool:
    """Check that a client names the present producer id, or the previous id with its last epoch."""
    if asker.producer_id == before.producer_id:
        return True
    return asker.producer_id == before.previous_id and asker.epoch >= CLIENT_EPOCH_MAX


def _begun(producer_id: int, epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
    return Transaction(producer_id, epoch, timeout_ms, State.EMPTY, NOBODY, NO_TIME, now_ms)


def _fenced(before: Transaction, now_ms: int, code: ErrorCode) -> Step:
    """Abort a transaction with the next epoch, which fences its client."""
    after = before._replace(
        epoch=before.epoch + 1, state=State.PREPARE_ABORT, updated_ms=now_ms,
        previous_id=NO_ID, previous_epoch=NO_EPOCH, protocol=Protocol.OLD,
    )  # fmt: skip
    return _step(before, after, code)


# --- the requests of a transaction ----------------------------------------------------------------


def fault_of(before: Transaction | None, asker: Asker) -> ErrorCode:
    """Check the producer id and the epoch of a request."""
    if before is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if before.state in PREPARED and asker == given(before):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if asker.producer_id != before.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if asker.epoch != before.epoch or asker.epoch > CLIENT_EPOCH_MAX:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def add_partitions(
    before: Transaction | None,
    asker: Asker,
    partitions: frozenset[Place],
    now_ms: int,
    protocol: Protocol = Protocol.OLD,
) -> Step:
    """Add partitions to a transaction; the first partitions begin the transaction."""
    fault = fault_of(before, asker)
    if fault or before is None:
        return Step(fault, before)
    if partitions <= before.partitions:
        return Step(ErrorCode.NONE, before)
    is_first = before.state is not State.ONGOING
    after = before._replace(
        state=State.ONGOING,
        partitions=before.partitions | partitions,
        started_ms=now_ms if is_first else before.started_ms,
        updated_ms=now_ms,
        protocol=protocol,
    )
    return _step(before, after)


def fault_of_batch(before: Transaction | None, asker: Asker, partition: Place) -> ErrorCode:
    """Check that a batch of this producer may be appended to a partition (KIP-890)."""
    fault = fault_of(before, asker)
    if fault or before is None:
        return fault
    is_part = before.state is State.ONGOING and partition in before.partitions
    return ErrorCode.NONE if is_part else ErrorCode.TRANSACTION_ABORTABLE


# --- EndTxn ---------------------------------------------------------------------------------------


def end(before: Transaction | None, asker: Asker, *, is_commit: bool, now_ms: int) -> Step:
    """Commit or abort a transaction, with the protocol OLD; a repeated request succeeds."""
    wanted = _prepared(is_commit=is_commit)
    fault = fault_of(before, asker)
    if before is not None and fault is ErrorCode.CONCURRENT_TRANSACTIONS:
        is_contrary = before.protocol is Protocol.OLD and before.state is not wanted
        return Step(ErrorCode.INVALID_TXN_STATE if is_contrary else fault, before)
    if fault or before is None:
        return Step(fault, before)
    if before.state is State.ONGOING:
        after = before._replace(state=wanted, updated_ms=now_ms, protocol=Protocol.OLD)
        return _step(before, after)
    is_repeated = before.state is COMPLETE_OF[wanted]
    return Step(ErrorCode.NONE if is_repeated else ErrorCode.INVALID_TXN_STATE, before)


def needs_next_id(before: Transaction | None, asker: Asker) -> bool:
    """Report whether `end_raising` has to give a new producer id, because no epoch is left."""
    if before is None or before.state in PREPARED:
        return False
    return asker == given(before) and asker.epoch == CLIENT_EPOCH_MAX


def end_raising(
    before: Transaction | None, asker: Asker, *, is_commit: bool, new_id: int, now_ms: int
) -> Step:
    """Commit or abort a transaction, and raise the epoch: the protocol RAISING.

    The client gets the id and the epoch that `given` returns for the result. The client may repeat
    its request with its former epoch. The client may also abort a transaction without partitions:
    if a batch failed, the client does not know whether the partition of the batch was added.

    Args:
        new_id: a new producer id, if `needs_next_id`.
    """
    wanted = _prepared(is_commit=is_commit)
    if before is not None and _is_repeated_end(before, asker):
        if before.state is wanted:
            return Step(ErrorCode.CONCURRENT_TRANSACTIONS, before)
        is_same = before.state is COMPLETE_OF[wanted]
        return Step(ErrorCode.NONE if is_same else ErrorCode.INVALID_TXN_STATE, before)
    fault = fault_of(before, asker)
    if fault or before is None:
        return Step(fault, before)
    raised = before._replace(
        state=wanted, epoch=before.epoch + 1, updated_ms=now_ms, protocol=Protocol.RAISING,
        previous_id=before.producer_id, previous_epoch=before.epoch,
    )  # fmt: skip
    if needs_next_id(before, asker):
        raised = raised._replace(next_id=new_id)
    if before.state is State.ONGOING:
        return _step(before, raised)
    if is_commit:
        return Step(ErrorCode.INVALID_TXN_STATE, before)
    return _step(before, _completed(raised._replace(started_ms=now_ms)))


def _prepared(*, is_commit: bool) -> State:
    return State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT


def _is_repeated_end(before: Transaction, asker: Asker) -> bool:
    """Check whether a client repeats the EndTxn that gave it its present id and epoch."""
    is_ended = before.state in PREPARED or before.state in COMPLETE
    return (
        is_ended
        and before.protocol is Protocol.RAISING
        and asker.producer_id != NO_ID
        and asker == Asker(before.previous_id, before.previous_epoch)
    )


# --- the coordinator's own events -----------------------------------------------------------------


def complete(before: Transaction, now_ms: int) -> Step:
    """End a prepared transaction whose markers are all written."""
    assert before.state in PREPARED, before.state
    return _step(before, _completed(before)._replace(updated_ms=now_ms))


def _completed(prepared: Transaction) -> Transaction:
    """Return the transaction after its markers; the client now has its next producer id, if any."""
    producer_id, epoch = given(prepared)
    return prepared._replace(
        state=COMPLETE_OF[prepared.state], partitions=NOBODY,
        producer_id=producer_id, epoch=epoch, next_id=NO_ID,
    )  # fmt: skip


def time_out(before: Transaction, now_ms: int) -> Step:
    """Abort a transaction that was ONGOING for longer than its timeout."""
    is_late = now_ms > before.started_ms + before.timeout_ms
    if before.state is not State.ONGOING or not is_late:
        return Step(ErrorCode.NONE, before)
    return _fenced(before, now_ms, ErrorCode.NONE)


def expire(before: Transaction, retention_ms: int, now_ms: int) -> Step:
    """End a transactional id that no client has used for a long time."""
    if before.state not in IDLE or now_ms < before.updated_ms + retention_ms:
        return Step(ErrorCode.NONE, before)
    return _step(before, before._replace(state=State.DEAD, updated_ms=now_ms))
