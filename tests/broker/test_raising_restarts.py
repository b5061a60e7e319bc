"""Test that a restart or a crash changes nothing for a client that raises its epoch (KIP-890)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.coordinator.internal_topic import partition_of
from broker.transaction_coordinator import hosted_transaction
from broker.transaction_coordinator.state_topic import TRANSACTION_STATE
from broker.transactions import records
from broker.transactions.transaction import Protocol, State
from logstore import LogStore
from support.inside import abandon
from support.kafka_client import KafkaClient
from support.transaction_requests import SMALL, RawProducer, same

LAST_EPOCH = 32_766


def last_record(broker: Broker) -> Any:
    """Read the record of the transactional id."""
    log = broker.store[TRANSACTION_STATE.name, partition_of("tx", 3)]
    return hosted_transaction.load(log)["tx"].transaction


def write_record(path: Path, transaction: Any) -> None:
    """Append a record to the log of a store that no broker serves."""
    with LogStore.open(path, admin_socket=False) as store:
        log = store[TRANSACTION_STATE.name, partition_of("tx", 3)]
        log.append(records.value_of(transaction, 2), key=records.key_of("tx"))


def test_an_end_is_repeated_after_a_crash(tmp_path: Path) -> None:
    """The record has the protocol, so the same request gets the same answer."""
    with Broker.start(tmp_path, SMALL) as broker, KafkaClient(broker.bootstrap_servers) as client:
        client.create("t")
        producer = RawProducer(client, "tx").begin()
        assert producer.send("t", b"a") == 0
        asker = producer.id, producer.epoch
        assert producer.end_raising(commit=True) == 0
        producer.wait_for("CompleteCommit")
        abandon(broker.store)
    with Broker.start(tmp_path, SMALL) as broker, KafkaClient(broker.bootstrap_servers) as client:
        again = same(client, producer)
        assert again.again(lambda: again.end_raising(commit=True, asker=asker)) == 0
        assert (again.id, again.epoch) == (producer.id, producer.epoch) == (asker[0], 1)
        assert again.send("t", b"b") == 0


@pytest.mark.parametrize("is_crashed", [False, True])
def test_the_last_epoch_is_followed_by_a_new_producer_id(tmp_path: Path, is_crashed: bool) -> None:
    """The client gets the new id with the answer; a crash before the markers changes nothing."""
    with Broker.start(tmp_path, SMALL) as broker, KafkaClient(broker.bootstrap_servers) as client:
        client.create("t")
        producer = RawProducer(client, "tx").begin()
        found = last_record(broker)
    write_record(tmp_path, found._replace(epoch=LAST_EPOCH))
    producer.epoch = LAST_EPOCH
    with Broker.start(tmp_path, SMALL) as broker, KafkaClient(broker.bootstrap_servers) as client:
        producer = same(client, producer)
        assert producer.again(lambda: producer.send("t", b"a"), 19) == 0
        ongoing, asker = last_record(broker), (producer.id, producer.epoch)
        assert producer.end_raising(commit=True) == 0
        assert producer.id > asker[0] and producer.epoch == 0
        producer.wait_for("CompleteCommit")
    if is_crashed:  # before the markers
        prepared = ongoing._replace(
            state=State.PREPARE_COMMIT, epoch=LAST_EPOCH + 1, next_id=producer.id,
            protocol=Protocol.RAISING, previous_id=asker[0], previous_epoch=LAST_EPOCH,
        )  # fmt: skip
        write_record(tmp_path, prepared)
    with Broker.start(tmp_path, SMALL) as broker, KafkaClient(broker.bootstrap_servers) as client:
        producer, given = same(client, producer), (producer.id, 0)
        assert producer.again(lambda: producer.end_raising(commit=True, asker=asker)) == 0
        assert (producer.id, producer.epoch) == given
        assert producer.send("t", b"b") == 0 and producer.end_raising(commit=True) == 0
        assert (producer.id, producer.epoch) == (given[0], 1)
        producer.wait_for("CompleteCommit")
        assert RawProducer(client, "other").begin().id > given[0]
        old = same(client, producer)
        old.id, old.epoch = asker
        assert old.produce("t", b"zombie", version=12) in (47, 49)


def test_an_abort_that_kafka_prepared_without_partitions(tmp_path: Path) -> None:
    """Kafka writes such a record; the next start completes it."""
    with Broker.start(tmp_path, SMALL) as broker, KafkaClient(broker.bootstrap_servers) as client:
        producer = RawProducer(client, "tx").begin()
        found = last_record(broker)
    write_record(
        tmp_path,
        found._replace(state=State.PREPARE_ABORT, epoch=1, protocol=Protocol.RAISING, started_ms=5),
    )
    with Broker.start(tmp_path, SMALL) as broker, KafkaClient(broker.bootstrap_servers) as client:
        producer = same(client, producer)
        producer.again(lambda: producer.state().error_code)
        assert producer.wait_for("CompleteAbort").producer_epoch == 1
        assert producer.end_raising(commit=False, asker=(producer.id, 0)) == 0
        assert producer.epoch == 1
