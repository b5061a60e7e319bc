"""Test the records of `__transaction_state`: Kafka's bytes, and what damage does to them."""

from __future__ import annotations

import random

import pytest

from broker.transactions import records
from broker.transactions.transaction import State, Transaction
from broker.wire import codec
from broker.wire.byte_cursor import WireError
from broker.wire.messages import TransactionLogValue

ONGOING = Transaction(
    5, 1, 60_000, State.ONGOING, frozenset({("t", 2), ("t", 1), ("u", 0)}), 1_000, 2_000
)
# The bytes by Kafka's schemas, written out field by field.
KEY = "000000027478"
VALUE = (
    "0000" "0000000000000005" "0001" "0000ea60" "01"
    "00000002" "0001" "74" "00000002" "00000001" "00000002" "0001" "75" "00000001" "00000000"
    "00000000000007d0" "00000000000003e8"
)  # fmt: skip


def test_the_bytes_are_those_of_kafka() -> None:
    """A record has the version, then the fields in the order of the schema."""
    assert records.key_of("tx").hex() == KEY
    value = records.value_of(ONGOING)
    assert value is not None and value.hex() == VALUE
    assert records.parse(bytes.fromhex(KEY), value) == ("tx", ONGOING)


@pytest.mark.parametrize("state", [one for one in State if one is not State.DEAD])
def test_each_state_comes_back(state: State) -> None:
    """An ended id has no value; an empty transaction has no list of partitions."""
    has_partitions = state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    one = ONGOING._replace(
        state=state, partitions=ONGOING.partitions if has_partitions else frozenset()
    )
    assert records.parse(records.key_of("tx"), records.value_of(one)) == ("tx", one)


def test_an_id_that_has_ended_has_no_value() -> None:
    """So compaction removes an ended id."""
    assert records.value_of(ONGOING._replace(state=State.DEAD)) is None
    assert records.parse(records.key_of("tx"), None) == ("tx", None)


def test_the_newer_version_of_kafka_is_read() -> None:
    """Kafka 4 writes tagged fields; records of other kinds are ignored."""
    value = TransactionLogValue(
        producer_id=5, previous_producer_id=4, next_producer_epoch=2, producer_epoch=1,
        transaction_timeout_ms=9, transaction_status=5, client_transaction_version=2,
    )  # fmt: skip
    data = b"\x00\x01" + bytes(codec.encode(value, 1))
    found = records.parse(records.key_of("tx"), data)
    assert found is not None and found.value is not None
    assert found.value[:4] == (5, 1, 9, State.COMPLETE_ABORT)
    assert records.parse(b"\x00\x01" + b"other", b"") is None


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"transaction_status": 6}, "state 6"), ({"transaction_status": -1}, "state -1"),
        ({"producer_id": -1}, "producer id"), ({"producer_epoch": -1}, "epoch"),
        ({"producer_epoch": 32_767}, "epoch"), ({"transaction_timeout_ms": -1}, "timeout"),
        ({"transaction_partitions": None}, "list of partitions"),
        ({"transaction_status": 0}, "list of partitions"),
        ({"transaction_partitions": [TransactionLogValue.PartitionsSchema("t", [-1])]}, "partiti"),
        ({"transaction_partitions": [TransactionLogValue.PartitionsSchema("", [0])]}, "partition"),
    ],
)  # fmt: skip
def test_a_value_that_no_coordinator_writes(changed: dict[str, object], reason: str) -> None:
    """A value whose fields contradict its state is refused."""
    right = {
        "producer_id": 5, "producer_epoch": 1, "transaction_status": 1,
        "transaction_partitions": [TransactionLogValue.PartitionsSchema("t", [1])],
    }  # fmt: skip
    for fields in (right, right | changed):
        data = b"\x00\x00" + bytes(codec.encode(TransactionLogValue(**fields), 0))
        if fields is right:
            assert records.parse(records.key_of("tx"), data) is not None
        else:
            with pytest.raises(WireError, match=reason):
                records.parse(records.key_of("tx"), data)


def test_damaged_records_raise_nothing_else() -> None:
    """Any bytes are a record, or raise WireError."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(3_000):
        key, value = bytearray(bytes.fromhex(KEY)), bytearray(bytes.fromhex(VALUE))
        for data in (key, value):
            for _ in range(rng.randrange(3)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            del data[rng.choice((len(data), rng.randrange(len(data) + 1))) :]
        try:
            found = records.parse(bytes(key), bytes(value))
        except WireError:
            continue
        if found is not None and found.value is not None:
            assert records.parse(bytes(key), records.value_of(found.value)) == found
