"""Test the records of `__transaction_state`: Kafka's bytes, and what damage does to them."""

from __future__ import annotations

import random

import pytest

from broker.transactions import records
from broker.transactions.transaction import EPOCH_MAX, Protocol, State, Transaction
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


def value_1(**fields: object) -> bytes:
    """Write a value of version 1, as Kafka 4 does."""
    right = {"producer_id": 5, "producer_epoch": 1, "transaction_timeout_ms": 9}
    return b"\x00\x01" + bytes(codec.encode(TransactionLogValue(**right | fields), 1))


def parsed(data: bytes) -> Transaction:
    found = records.parse(records.key_of("tx"), data)
    assert found is not None and found.value is not None
    return found.value


def test_the_newer_version_of_kafka_is_read() -> None:
    """Kafka 4 writes tagged fields; records of other kinds are ignored."""
    found = parsed(
        value_1(previous_producer_id=4, transaction_status=5, client_transaction_version=2)
    )
    assert found[:4] == (5, 1, 9, State.COMPLETE_ABORT)
    assert (found.previous_id, found.previous_epoch, found.protocol) == (5, 0, Protocol.RAISING)
    assert records.parse(b"\x00\x01" + b"other", b"") is None


def test_the_level_decides_the_version() -> None:
    """Only version 1 has the protocol, and the producer ids around an exhausted one."""
    ended = ONGOING._replace(
        state=State.PREPARE_COMMIT, epoch=EPOCH_MAX, next_id=6, protocol=Protocol.RAISING,
        previous_id=5, previous_epoch=EPOCH_MAX - 1,
    )  # fmt: skip
    old = ended._replace(next_id=-1, protocol=Protocol.OLD, previous_id=-1, previous_epoch=-1)
    for level, expected in ((0, old), (1, ended), (2, ended), (3, ended)):
        value = records.value_of(ended, level)
        assert value is not None and value[:2] == (b"\x00\x01" if level else b"\x00\x00")
        assert parsed(value) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # the client was given a new id: its last request had the last epoch of the old id
        ({"transaction_status": 4, "producer_epoch": 0, "previous_producer_id": 4}, (4, 32_766)),
        ({"transaction_status": 4, "producer_epoch": 0, "previous_producer_id": 5}, (-1, -1)),
        ({"transaction_status": 4, "producer_epoch": 0}, (-1, -1)),
        # the coordinator fenced the client
        ({"transaction_status": 5, "producer_epoch": 32_767}, (-1, -1)),
        ({"transaction_status": 0, "previous_producer_id": 4}, (-1, -1)),
        # Kafka prepares the abort of an empty transaction
        ({"transaction_status": 3}, (5, 0)),
    ],
)  # fmt: skip
def test_the_epoch_before_is_found_again(
    fields: dict[str, object], expected: tuple[int, int]
) -> None:
    """A client that lost the answer to its EndTxn may repeat it after a restart."""
    found = parsed(value_1(client_transaction_version=2, **fields))
    assert (found.previous_id, found.previous_epoch) == expected
    value = records.value_of(found, 2)
    assert value is not None and parsed(value) == found


@pytest.mark.parametrize(
    "fields",
    [
        {"transaction_status": 4, "next_producer_id": 6, "client_transaction_version": 2},
        {"transaction_status": 3, "client_transaction_version": 0},
        {"transaction_status": 3, "next_producer_id": 6, "client_transaction_version": 2},
    ],
)
def test_a_next_id_belongs_to_the_last_epoch(fields: dict[str, object]) -> None:
    """Other states have no next id, and the older protocol ends no empty transaction."""
    with pytest.raises(WireError):
        parsed(value_1(**fields))


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
    newer = value_1(
        transaction_status=2, client_transaction_version=2, previous_producer_id=4,
        transaction_partitions=[TransactionLogValue.PartitionsSchema("t", [1])],
    )  # fmt: skip
    for _ in range(6_000):
        key = bytearray(bytes.fromhex(KEY))
        value = bytearray(rng.choice((bytes.fromhex(VALUE), newer)))
        for data in (key, value):
            for _ in range(rng.randrange(3)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            del data[rng.choice((len(data), rng.randrange(len(data) + 1))) :]
        try:
            found = records.parse(bytes(key), bytes(value))
        except WireError:
            continue
        if found is not None and found.value is not None:
            level = 2 if found.value.protocol is Protocol.RAISING else rng.randrange(3)
            assert records.parse(bytes(key), records.value_of(found.value, level)) == found
