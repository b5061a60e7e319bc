"""Test transactions whose epoch rises with each end (KIP-890, part 2)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.internal_topic import partition_of
from broker.requests.transactions.verification import fault_for_client
from broker.transaction_coordinator import transaction_shards
from broker.transaction_coordinator.marker_writer import Job, MarkerWriter
from broker.transaction_coordinator.state_topic import TRANSACTION_STATE
from broker.transaction_coordinator.transaction_coordinator import TransactionCoordinator
from broker.wire import messages
from broker.wire.error_codes import ErrorCode
from logstore import Log
from support.kafka_client import KafkaClient, values_in
from support.transaction_requests import (
    SMALL,
    RawProducer,
    commit_simple,
    fetch_offset,
    same,
)

Start = Callable[..., RawProducer]
SOON = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 50, **SMALL}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.start(config=SOON) as running:
        yield running


@pytest.fixture
def start(client: KafkaClient) -> Start:
    """Begin with a producer, and a topic with the same name."""

    def begin(name: str, **fields: Any) -> RawProducer:
        client.create(name, 2)
        return RawProducer(client, name, **fields).begin()

    return begin


def committed(client: KafkaClient, topic: str, partition: int = 0) -> list[bytes | None]:
    """Read the committed values of a partition, without markers and aborted records."""
    row = client.fetch(topic, 0, partition=partition, isolation_level=1)
    assert row.last_stable_offset == row.high_watermark, "a transaction is open"
    return values_in(row.records)


def stable(client: KafkaClient, topic: str, partition: int = 0) -> int:
    row = client.fetch(topic, 0, partition=partition, isolation_level=1)
    return int(row.last_stable_offset)


def test_a_batch_adds_its_partition_and_each_end_raises_the_epoch(
    start: Start, client: KafkaClient
) -> None:
    """No AddPartitionsToTxn is sent; the answer to EndTxn has the next epoch."""
    producer = start("implicit")
    for number, is_commit in enumerate((True, False, True)):
        assert producer.epoch == number
        assert producer.send("implicit", b"a%d" % number) == 0
        row = producer.state()
        assert (row.transaction_state, row.producer_epoch) == ("Ongoing", number)
        assert [tuple(one.partitions) for one in row.topics] == [(0,)]
        assert producer.send("implicit", b"b%d" % number, partition=1) == 0
        assert [tuple(one.partitions) for one in producer.state().topics] == [(0, 1)]
        assert producer.send("implicit", b"c%d" % number) == 0
        assert (
            producer.again(lambda is_commit=is_commit: producer.end_raising(commit=is_commit)) == 0
        )
        producer.wait_for("CompleteCommit" if is_commit else "CompleteAbort")
    assert (producer.epoch, producer.state().producer_epoch) == (3, 3)
    row = client.fetch("implicit", 0, isolation_level=1)
    assert row.last_stable_offset == 9
    assert [tuple(one) for one in row.aborted_transactions] == [(producer.id, 3)]


def test_an_internal_topic_joins_no_transaction(start: Start, client: KafkaClient) -> None:
    """17, and the transaction has no partition: a marker would be a record of the topic."""
    producer = start("internal")
    for topic in (TRANSACTION_STATE.name, "__consumer_offsets"):
        assert producer.send(topic, b"a") == 17
    assert producer.state().transaction_state == "Empty"


def test_a_repeated_end_gets_the_same_answer(start: Start) -> None:
    """The old epoch, the same end; any other epoch and the other end are refused."""
    producer = start("repeated")
    assert producer.send("repeated", b"a") == 0
    asker = producer.id, producer.epoch
    assert producer.end_raising(commit=True) == 0
    given = producer.id, producer.epoch
    assert given == (asker[0], 1)
    producer.wait_for("CompleteCommit")
    for _ in range(2):
        assert producer.end_raising(commit=True, asker=asker) == 0
        assert (producer.id, producer.epoch) == given
    assert producer.end_raising(commit=False, asker=asker) == 48
    assert producer.end_raising(commit=True, asker=(asker[0], 7)) == 90
    assert producer.send("repeated", b"b") == 0
    assert producer.end_raising(commit=True, asker=asker) == 90  # the next one has begun


def test_an_end_without_partitions(start: Start) -> None:
    """An abort raises the epoch, because a batch may be on its way; nothing can be committed."""
    producer = start("empty")
    assert producer.end_raising(commit=True) == 48
    assert producer.end_raising(commit=False) == 0
    assert (producer.epoch, producer.state().transaction_state) == (1, "CompleteAbort")
    assert producer.end_raising(commit=False, asker=(producer.id, 0)) == 0
    assert producer.epoch == 1 and producer.end_raising(commit=False) == 0
    assert producer.epoch == 2


def test_a_late_batch_is_fenced_by_its_epoch(start: Start, client: KafkaClient) -> None:
    """47, in a partition of the finished transaction, and in one that it did not have."""
    producer = start("late")
    assert producer.send("late", b"a") == 0
    old = same(client, producer)
    old.sequences = dict(producer.sequences)
    assert producer.end_raising(commit=True) == 0
    producer.wait_for("CompleteCommit")
    for partition in (0, 1):
        assert old.send("late", b"zombie", partition=partition) == 47
    assert producer.send("late", b"b", partition=1) == 0
    assert old.send("late", b"zombie", partition=1) == 47
    assert producer.end_raising(commit=True) == 0
    producer.wait_for("CompleteCommit")
    assert old.send("late", b"zombie", partition=1) == 47
    assert [committed(client, "late", one)[0] for one in (0, 1)] == [b"a", b"b"]


def markers_again(
    client: KafkaClient, topic: str, number: int, producer: RawProducer, *, is_raised: bool
) -> int:
    """Write a commit marker with the producer's present epoch; return its code."""
    asked = messages.WriteTxnMarkersRequest
    marker = asked.WritableTxnMarker(
        producer.id,
        producer.epoch,
        True,
        [asked.WritableTxnMarkerTopic(topic, [number])],
        0,
        is_raised,
    )
    (found,) = client.call("WriteTxnMarkers", markers=[marker]).markers
    return int(found.topics[0].partitions[0].error_code)


def test_a_late_marker_does_not_end_the_next_transaction(start: Start, client: KafkaClient) -> None:
    """The copy has the epoch of the next transaction; without the mark, it would commit it."""
    producer = start("marker")
    assert producer.send("marker", b"a") == 0
    assert producer.end_raising(commit=True) == 0
    assert producer.send("marker", b"b") == 0
    assert markers_again(client, "marker", 0, producer, is_raised=True) == 47
    assert stable(client, "marker") == 2
    assert producer.end_raising(commit=False) == 0
    producer.wait_for("CompleteAbort")
    assert len(client.fetch("marker", 0, isolation_level=1).aborted_transactions) == 1
    assert producer.send("marker", b"c") == 0
    assert markers_again(client, "marker", 0, producer, is_raised=False) == 0  # the older protocol
    assert stable(client, "marker") == 6


def test_offsets_add_their_group(start: Start, client: KafkaClient) -> None:
    """TxnOffsetCommit 5 needs no AddOffsetsToTxn; version 4 does."""
    producer = start("offsets")
    assert producer.again(lambda: producer.commit_offset("g4", "offsets", 3, version=4)) == 120
    for number, is_commit in ((1, True), (2, False), (3, True)):
        assert producer.send_offset("g", "offsets", number) == 0
        assert fetch_offset(client, "g", "offsets", stable=True)[0] == 88
        assert [one.topic for one in producer.state().topics] == ["__consumer_offsets"]
        assert producer.end_raising(commit=is_commit) == 0
        producer.wait_for("CompleteCommit" if is_commit else "CompleteAbort")
        expected = number if is_commit else number - 1
        assert fetch_offset(client, "g", "offsets", stable=True) == (0, expected)
    old = same(client, producer)
    old.epoch -= 1
    assert old.commit_offset("g", "offsets", 9, version=5) == 47
    commit_simple(client, "g", "offsets", 4)
    assert fetch_offset(client, "g", "offsets", stable=True) == (0, 4)


def test_a_late_marker_does_not_end_the_offsets_of_the_next_transaction(
    start: Start, client: KafkaClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while they are known, but not in the log yet, and waits for the group's lock."""
    producer = start("between")
    assert producer.send_offset("between", "between", 1) == 0
    assert producer.end_raising(commit=True) == 0
    producer.wait_for("CompleteCommit")
    number = partition_of("between", 2)
    real, senders = Log.append_of_transaction, []

    def late(log: Log, *args: Any, **fields: Any) -> Any:
        end = log.log_end_offset
        senders.append(threading.Thread(target=send_marker))
        senders[-1].start()
        while log.log_end_offset == end:
            threading.Event().wait(0.001)
        monkeypatch.undo()
        return real(log, *args, **fields)

    def send_marker() -> None:
        with KafkaClient(broker.bootstrap_servers) as other:
            place = "__consumer_offsets", number
            assert markers_again(other, *place, producer, is_raised=True) == 0

    monkeypatch.setattr(Log, "append_of_transaction", late)
    assert producer.send_offset("between", "between", 2) == 0
    for one in senders:
        one.join()
    assert len(senders) == 1
    assert fetch_offset(client, "between", "between", stable=True)[0] == 88
    assert producer.end_raising(commit=True) == 0
    producer.wait_for("CompleteCommit")
    assert fetch_offset(client, "between", "between", stable=True) == (0, 2)


def test_a_producer_changes_its_protocol(start: Start, client: KafkaClient) -> None:
    """Between two transactions; before the newer protocol, the client asks for its next epoch."""
    producer = start("mixed")
    assert producer.add(("mixed", 0)) == 0 and producer.produce("mixed", b"old 1") == 0
    producer.finish(commit=True)
    assert producer.init(producer_id=producer.id, producer_epoch=producer.epoch) == 0
    assert producer.epoch == 1
    assert producer.send("mixed", b"new") == 0 and producer.end_raising(commit=True) == 0
    assert producer.epoch == 2
    producer.wait_for("CompleteCommit")
    assert producer.produce("mixed", b"not added") == 120
    assert producer.add(("mixed", 0)) == 0 and producer.produce("mixed", b"old 2") == 0
    producer.finish(commit=True)
    assert producer.state().producer_epoch == 2
    assert [one for one in committed(client, "mixed") if one and b" " in one] == [
        b"old 1", b"old 2",
    ]  # fmt: skip


def test_a_transaction_of_the_older_protocol_is_ended_by_the_newer(start: Start) -> None:
    """The epoch rises; the mixture is allowed, as in Kafka."""
    producer = start("crossed")
    assert producer.add(("crossed", 0)) == 0 and producer.produce("crossed", b"x") == 0
    assert producer.end_raising(commit=True) == 0
    producer.wait_for("CompleteCommit")
    assert producer.send("crossed", b"y") == 0 and producer.end(commit=False) == 0
    assert producer.wait_for("CompleteAbort").producer_epoch == 1


def test_a_timeout_fences_the_client(start: Start, client: KafkaClient) -> None:
    """The client gets 90 for its end, even for an abort; then it asks for an epoch."""
    producer = start("timeout", timeout_ms=100)
    assert producer.send("timeout", b"x") == 0
    producer.wait_for("CompleteAbort")
    assert producer.end_raising(commit=False) == producer.end_raising(commit=True) == 90
    assert producer.send("timeout", b"x") == 47
    producer.begin()
    assert producer.epoch == 2


def test_partitions_and_names_that_do_not_exist(start: Start, client: KafkaClient) -> None:
    """A batch of an unknown id, producer or epoch adds nothing."""
    producer = start("strange")
    assert producer.produce("strange", b"x", version=12, transactional_id="nobody") == 49
    producer.epoch = 5
    assert producer.produce("strange", b"x", version=12) == 47
    producer.epoch = 0
    assert producer.produce("absent", b"x", version=12) == 3
    assert producer.state().transaction_state == "Empty"


@pytest.mark.parametrize(
    ("code", "of_old", "of_new"),
    [
        (ErrorCode.CONCURRENT_TRANSACTIONS, 19, 51), (ErrorCode.OPERATION_NOT_ATTEMPTED, 19, 19),
        (ErrorCode.NOT_COORDINATOR, 19, 19), (ErrorCode.NETWORK_EXCEPTION, 19, 19),
        (ErrorCode.PRODUCER_FENCED, 47, 47), (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 49, 49),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 3, 3), (ErrorCode.INVALID_TXN_STATE, 120, 120),
    ],
)  # fmt: skip
def test_errors_of_the_coordinator_for_a_producer(
    code: ErrorCode, of_old: int, of_new: int
) -> None:
    """A client sends its batch again after 3, 19 and 51, and aborts after 47 and 120."""
    assert fault_for_client(code, knows_abortable=True) == of_old
    assert fault_for_client(code, knows_abortable=True, is_adding=True) == of_new


def test_a_coordinator_that_is_away_delays_offsets(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of a group does not know the error of the network, so it gets 15."""
    producer = start("away")

    def away(*_: Any, **fields: Any) -> Any:
        raise CoordinatorError(ErrorCode.NETWORK_EXCEPTION)

    monkeypatch.setattr(TransactionCoordinator, "faults_of_batches", away)
    assert producer.again(lambda: producer.commit_offset("g", "away", 1, version=5), 14) == 15
    assert producer.produce("away", b"x", version=12) == 19


def test_a_batch_waits_for_a_moment_while_markers_are_missing(tmp_path: Path) -> None:
    """Then it gets 51, and the client sends it again."""
    with (
        Broker.start([tmp_path / "a", tmp_path / "b"], config=SMALL) as broker,
        KafkaClient(broker.bootstrap_servers) as client,
    ):
        client.create("t", 2)
        producer = RawProducer(client, "tx").begin()
        assert producer.send("t", b"a") == producer.send("t", b"b", partition=1) == 0
        own = broker.store[TRANSACTION_STATE.name, partition_of("tx", 3)].log_dir
        number = next(one for one in (0, 1) if broker.store["t", one].log_dir != own)
        away = broker.store["t", number].log_dir
        broker.store.take_offline(away)
        assert producer.end_raising(commit=True) == 0
        assert producer.produce("t", b"c", partition=1 - number, version=12) == 51
        assert producer.commit_offset("g", "t", 1, version=5) in (14, 51)
        assert producer.again(lambda: producer.commit_offset("g", "t", 1, version=5), 14) == 51
        back = threading.Timer(0.02, broker.store.reopen_dir, [away])
        back.start()
        assert (
            producer.again(lambda: producer.produce("t", b"c", partition=1 - number, version=12))
            == 0
        )
        back.join()
        assert producer.end_raising(commit=True) == 0
        producer.wait_for("CompleteCommit")


def test_a_batch_is_answered_when_the_markers_are_written(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits in the coordinator, so that the client need not send it again.

    The requests that have waited long enough take no place from those that wait.
    """
    monkeypatch.setattr(transaction_shards, "WAITING_MAX", 2)
    held: list[tuple[MarkerWriter, Job]] = []
    real = MarkerWriter.write
    producer = start("patient")
    assert producer.send("patient", b"a") == 0
    monkeypatch.setattr(MarkerWriter, "write", lambda self, job: held.append((self, job)))
    assert producer.end_raising(commit=True) == 0
    for _ in range(3):
        assert producer.produce("patient", b"b", version=12) == 51
    release = threading.Timer(0.01, lambda: real(*held.pop()))
    release.start()
    assert producer.produce("patient", b"b", version=12) == 0
    release.join()
    monkeypatch.undo()
    assert producer.end_raising(commit=True) == 0
