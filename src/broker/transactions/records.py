"""Write transactions as records of `__transaction_state`, and read them again.

    key      version 0 as int16, then TransactionLogKey: the transactional id
    value    version 0 or 1 as int16, then TransactionLogValue; no value means that the id has ended

Keys and values have Kafka's format. Only version 1 of a value has the protocol of the client, and
the previous and the next producer id of the client. So version 0 is written only while the level of
the feature `transaction.version` is 0. Records of both versions are always read.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from broker.transactions.transaction import (
    CLIENT_EPOCH_MAX,
    COMPLETE,
    EPOCH_MAX,
    NO_ID,
    NO_TIME,
    PREPARED,
    Protocol,
    State,
    Transaction,
)
from broker.wire import codec
from broker.wire.byte_cursor import WireError
from broker.wire.messages import TransactionLogKey, TransactionLogValue

KEY_VERSION, VALUE_VERSION_MAX = 0, 1
WRITTEN_STATES = frozenset(State) - {State.DEAD}  # a transactional id that has ended has no value
PARTITION_MAX = 2**31 - 1
_version = struct.Struct(">h")


class TransactionRecord(NamedTuple):
    """A transactional id; `value` is None if it has ended."""

    transactional_id: str
    value: Transaction | None


def key_of(transactional_id: str) -> bytes:
    """Return the key of a transactional id."""
    key = TransactionLogKey(transactional_id=transactional_id)
    return _version.pack(KEY_VERSION) + codec.encode(key, KEY_VERSION)


def value_of(transaction: Transaction, level: int = 0) -> bytes | None:
    """Return the value of a transaction's record; the value None deletes the transaction.

    Args:
        level: the level of the feature `transaction.version`.
    """
    if transaction.state is State.DEAD:
        return None
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(partition)
    rows = [TransactionLogValue.PartitionsSchema(*row) for row in by_topic.items()]
    has_begun = transaction.state is not State.EMPTY
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=rows if has_begun else None,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        previous_producer_id=transaction.previous_id,
        next_producer_id=transaction.next_id,
        client_transaction_version=int(transaction.protocol),
    )
    version = min(max(level, 0), VALUE_VERSION_MAX)
    return _version.pack(version) + codec.encode(value, version)


def parse(key: bytes | None, value: bytes | None) -> TransactionRecord | None:
    """Read a record; return None for a record of another kind.

    Raises:
        WireError: the record is of the known kind, but its bytes are not valid.
    """
    if key is None or len(key) < _version.size:
        raise WireError(0, "the key has no version")
    if _version.unpack_from(key)[0] != KEY_VERSION:
        return None
    found = codec.decode("TransactionLogKey", KEY_VERSION, key[_version.size :])
    name = str(found.transactional_id)
    if not name:
        raise WireError(0, "the transactional id is empty")
    return TransactionRecord(name, None if value is None else _transaction(value))


def _transaction(data: bytes) -> Transaction:
    """Read a value, and check that its fields agree with its state."""
    if len(data) < _version.size:
        raise WireError(0, "the value has no version")
    (version,) = _version.unpack_from(data)
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise WireError(0, f"the value has the version {version}")
    body = codec.decode("TransactionLogValue", version, data[_version.size :])
    if body.transaction_status not in WRITTEN_STATES:
        raise WireError(0, f"no transaction has the state {body.transaction_status}")
    state = State(body.transaction_status)
    is_raising = body.client_transaction_version >= Protocol.RAISING
    places = frozenset(
        (str(row.topic), partition)
        for row in body.transaction_partitions or ()
        for partition in row.partition_ids
    )
    found = Transaction(
        body.producer_id, body.producer_epoch, body.transaction_timeout_ms, state, places,
        max(NO_TIME, body.transaction_start_timestamp_ms),
        body.transaction_last_update_timestamp_ms,
        next_id=max(NO_ID, body.next_producer_id),
        protocol=Protocol.RAISING if is_raising else Protocol.OLD,
    )  # fmt: skip
    for what, is_wrong in _faults(found).items():
        if is_wrong:
            raise WireError(0, f"the {what} of a transaction in the state {state.name} is wrong")
    return _with_previous(found, body.previous_producer_id)


def _faults(found: Transaction) -> dict[str, bool]:
    """Check that the fields of a record agree with its state."""
    state, places = found.state, found.partitions
    is_open = state is State.ONGOING or state in PREPARED
    # Kafka prepares even the abort of a transaction without partitions; this broker does not.
    is_empty_abort = state is State.PREPARE_ABORT and found.protocol is Protocol.RAISING
    is_last = state in PREPARED and found.epoch == EPOCH_MAX
    epoch_max = CLIENT_EPOCH_MAX if state is State.ONGOING else EPOCH_MAX
    return {
        "producer id": found.producer_id < 0,
        "epoch": not 0 <= found.epoch <= epoch_max,
        "timeout": found.timeout_ms < 0,
        "partition": any(not topic or not 0 <= one <= PARTITION_MAX for topic, one in places),
        "list of partitions": bool(places) != is_open and not is_empty_abort,
        "next producer id": found.next_id != NO_ID
        and not (is_last and found.protocol is Protocol.RAISING),
    }


def _with_previous(found: Transaction, previous_id: int) -> Transaction:
    """Add the previous id and epoch of the client, if its latest EndTxn raised the epoch.

    The previous epoch is the present epoch minus 1. If the EndTxn changed the producer id, the
    previous epoch is CLIENT_EPOCH_MAX. If the present epoch is EPOCH_MAX and there is no next id,
    the coordinator has fenced the client: the client may not repeat its request.
    """
    is_ended = found.state in PREPARED or found.state in COMPLETE
    if not is_ended or found.protocol is not Protocol.RAISING:
        return found
    if found.epoch == EPOCH_MAX and found.next_id == NO_ID:
        return found
    if found.epoch > 0:
        return found._replace(previous_id=found.producer_id, previous_epoch=found.epoch - 1)
    if previous_id < 0 or previous_id == found.producer_id:
        return found
    return found._replace(previous_id=previous_id, previous_epoch=CLIENT_EPOCH_MAX)
