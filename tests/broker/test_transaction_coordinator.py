"""Test that transactions end and offsets stay, over restarts and failing disks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker import Broker
from broker.coordinator.internal_topic import partition_of
from broker.transaction_coordinator import hosted_transaction
from broker.transaction_coordinator.hosted_transaction import HostedTransaction, Writing
from broker.transaction_coordinator.state_topic import TRANSACTION_STATE
from broker.transactions import records
from broker.transactions.steps import Step
from broker.transactions.transaction import State, Transaction
from broker.wire.error_codes import ErrorCode
from logstore import LogConfig, LogStore
from support.inside import abandon
from support.kafka_client import KafkaClient
from support.transaction_requests import RawProducer, commit_simple, fetch_offset, same

CONFIG = {
    "transaction_state_log_num_partitions": 3, "offsets_topic_num_partitions": 2,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 50,
}  # fmt: skip


@contextmanager
def serving(*paths: Path) -> Iterator[tuple[Broker, KafkaClient]]:
    """Start a broker over log dirs that may have records."""
    with Broker.start(paths, CONFIG) as broker, KafkaClient(broker.bootstrap_servers) as client:
        yield broker, client


def crash(broker: Broker) -> None:
    """End a broker without further writes."""
    abandon(broker.store)


def stable(client: KafkaClient, topic: str) -> int:
    """Return the last stable offset."""
    return int(client.fetch(topic, 0, isolation_level=1).last_stable_offset)


def test_a_transaction_continues_after_a_crash(tmp_path: Path) -> None:
    """A transaction keeps its partitions, its epoch and its pending offsets."""
    with serving(tmp_path) as (broker, client):
        client.create("t")
        producer = RawProducer(client, "tx").begin()
        assert producer.add(("t", 0)) == 0 and producer.produce("t", b"a") == 0
        assert producer.again(lambda: producer.add_offsets("g")) == 0
        assert producer.again(lambda: producer.commit_offset("g", "t", 5)) == 0
        crash(broker)
    with serving(tmp_path) as (_, client):
        producer = same(client, producer)
        assert fetch_offset(client, "g", "t", stable=True) == (88, -1)
        assert producer.again(lambda: producer.produce("t", b"b"), 19) == 0
        assert producer.again(lambda: producer.end(commit=True)) == 0
        producer.wait_for("CompleteCommit")
        assert stable(client, "t") == 3
        assert fetch_offset(client, "g", "t", stable=True) == (0, 5)
    with serving(tmp_path) as (_, client):
        assert fetch_offset(client, "g", "t", stable=True) == (0, 5)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_prepared_transaction_is_completed_by_the_next_start(
    tmp_path: Path, is_commit: bool
) -> None:
    """The markers that were not written before the crash are written in all partitions."""
    with serving(tmp_path) as (broker, client):
        client.create("t", 2)
        producer = RawProducer(client, "tx").begin()
        assert producer.add(("t", 0), ("t", 1)) == 0
        assert producer.produce("t", b"a") == producer.produce("t", b"b", partition=1) == 0
        assert producer.again(lambda: producer.add_offsets("g")) == 0
        assert producer.again(lambda: producer.commit_offset("g", "t", 5)) == 0
        state = PREPARED[is_commit]
        log = broker.store[TRANSACTION_STATE.name, partition_of("tx", 3)]
        last = hosted_transaction.load(log)["tx"].transaction
        assert last is not None and last.state is State.ONGOING
        crash(broker)
    with LogStore.open(tmp_path, admin_socket=False) as store:  # the record before the markers
        log = store[TRANSACTION_STATE.name, partition_of("tx", 3)]
        value = records.value_of(last._replace(state=state))
        log.append(value, key=records.key_of("tx"))
    with serving(tmp_path) as (_, client):
        producer = same(client, producer)
        producer.wait_for("CompleteCommit" if is_commit else "CompleteAbort")
        assert stable(client, "t") == 2
        row = client.fetch("t", 0, partition=1, isolation_level=1)
        assert row.last_stable_offset == 2
        assert len(row.aborted_transactions) == (not is_commit)
        assert fetch_offset(client, "g", "t", stable=True) == (0, 5 if is_commit else -1)
        assert producer.add(("t", 0)) == 0


PREPARED = {True: State.PREPARE_COMMIT, False: State.PREPARE_ABORT}


def test_an_old_transaction_is_aborted_by_the_next_start(tmp_path: Path) -> None:
    """No client came back to end the transaction."""
    with serving(tmp_path) as (broker, client):
        client.create("t")
        producer = RawProducer(client, "tx", timeout_ms=500).begin()
        assert producer.add(("t", 0)) == 0 and producer.produce("t", b"a") == 0
        crash(broker)
    with serving(tmp_path) as (_, client):
        assert same(client, producer).wait_for("CompleteAbort").producer_epoch == 1
        assert stable(client, "t") == 2


def test_a_later_commit_outside_of_the_transaction_wins(tmp_path: Path) -> None:
    """In memory and after a restart, offsets count in the order of the log."""
    with serving(tmp_path) as (broker, client):
        client.create("t")
        producer = RawProducer(client, "tx").begin()
        assert producer.again(lambda: producer.add_offsets("g")) == 0
        assert producer.again(lambda: producer.commit_offset("g", "t", 5)) == 0
        commit_simple(client, "g", "t", 7)
        producer.finish(commit=True)
        assert fetch_offset(client, "g", "t", stable=True) == (0, 7)
        assert producer.again(lambda: producer.add_offsets("g")) == 0
        assert producer.again(lambda: producer.commit_offset("g", "t", 8)) == 0
        commit_simple(client, "g", "t", 9)
        crash(broker)
    with serving(tmp_path) as (_, client):
        producer = same(client, producer)
        assert fetch_offset(client, "g", "t", stable=True) == (88, -1)
        assert producer.again(lambda: producer.end(commit=True)) == 0
        producer.wait_for("CompleteCommit")
        assert fetch_offset(client, "g", "t", stable=True) == (0, 9)


def test_a_log_dir_that_fails_and_returns(tmp_path: Path) -> None:
    """Its markers are written when the log dir is back; other partitions do not wait."""
    with serving(tmp_path / "a", tmp_path / "b") as (broker, client):
        client.create("t", 2)
        producer = RawProducer(client, "tx").begin()
        assert producer.add(("t", 0), ("t", 1)) == 0
        assert producer.produce("t", b"a") == producer.produce("t", b"b", partition=1) == 0
        own = broker.store[TRANSACTION_STATE.name, partition_of("tx", 3)].log_dir
        number = next(one for one in (0, 1) if broker.store["t", one].log_dir != own)
        away = broker.store["t", number].log_dir
        broker.store.take_offline(away)
        assert producer.end(commit=True) == 0
        row = client.fetch("t", 0, partition=1 - number, isolation_level=1)
        deadline = time.monotonic() + 20
        while row.last_stable_offset != 2:
            assert time.monotonic() < deadline
            row = client.fetch("t", 0, partition=1 - number, isolation_level=1)
        assert producer.state().transaction_state == "PrepareCommit"
        assert producer.add(("t", 0)) == 51
        broker.store.reopen_dir(away)
        producer.wait_for("CompleteCommit")
        row = client.fetch("t", 0, partition=number, isolation_level=1)
        assert row.last_stable_offset == 2


def test_damaged_records_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The other records are loaded, and the log reports how many cannot be read."""
    empty = Transaction(5, 1, 1000, State.EMPTY, frozenset(), -1, 9)
    newer = empty._replace(epoch=2)
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store.create("s", 0, config=LogConfig(record_format="kafka"))
        for name, value in (
            ("good", records.value_of(empty)), ("bad", b"\x00\x00short"), ("gone", None),
            ("newer", records.value_of(empty)), ("newer", records.value_of(newer)),
        ):  # fmt: skip
            log.append(value, key=records.key_of(name))
        found = hosted_transaction.load(log)
    assert sorted(found) == ["good", "newer"]
    assert found["newer"].transaction == newer
    assert "1 records that cannot be read" in caplog.text


def test_a_write_that_is_dropped_is_answered() -> None:
    """The request gets the coordinator's error once, and the wait ends."""
    hosted, wait, said = HostedTransaction("tx"), Wait(), []
    step = Step(ErrorCode.NONE, None)
    hosted.writing = Writing(wait, step, lambda code, _: said.append(code))
    for _ in range(2):
        hosted.drop_writes(ErrorCode.NOT_COORDINATOR)
    assert said == [ErrorCode.NOT_COORDINATOR] and wait.is_closed and hosted.writing is None


class Wait:
    """A wait that never ends."""

    is_over = is_closed = False
    error = None

    def watch(self, wake: object) -> None:
        """Never wake."""

    def give_up(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        self.is_closed = True
