"""Test the effect and the errors of each transaction request."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.catalog.leadership import SoleBroker
from broker.coordinator.shard import Shard
from broker.wire import messages
from logstore import ReplicaOfflineError
from support.kafka_client import KafkaClient, batch_of, values_in
from support.transaction_requests import SMALL, TRANSACTIONAL, RawProducer, fetch_offset

Start = Callable[[str], RawProducer]
SOON = {
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 50,
    "transaction_remove_expired_transaction_cleanup_interval_ms": 50,
    "transactional_id_expiration_ms": 1500, **SMALL,
}  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.start(config=SMALL) as running:
        yield running


@pytest.fixture
def start(client: KafkaClient) -> Start:
    """Begin with a producer, and a topic with the same name."""

    def begin(name: str) -> RawProducer:
        client.create(name, 2)
        return RawProducer(client, name).begin()

    return begin


def committed(client: KafkaClient, topic: str, **fields: Any) -> Any:
    """Read a partition as a reader of committed records; return the row."""
    return client.fetch(topic, 0, isolation_level=1, **fields)


def test_a_commit_is_seen_and_an_abort_is_not(start: Start, client: KafkaClient) -> None:
    """The last stable offset delays readers; the answer names aborted transactions."""
    producer = start("plain")
    assert producer.add(("plain", 0)) == 0 and producer.produce("plain", b"a", b"b") == 0
    open_row = committed(client, "plain")
    assert (open_row.high_watermark, open_row.last_stable_offset) == (2, 0)
    assert values_in(open_row.records) == [] and open_row.aborted_transactions == ()
    assert values_in(client.fetch("plain", 0).records) == [b"a", b"b"]
    producer.finish(commit=True)
    row = committed(client, "plain")
    assert (row.last_stable_offset, values_in(row.records)[:2]) == (3, [b"a", b"b"])
    assert producer.add(("plain", 0)) == 0 and producer.produce("plain", b"c") == 0
    producer.finish(commit=False)
    row = committed(client, "plain")
    assert row.last_stable_offset == row.high_watermark == 5
    assert [tuple(one) for one in row.aborted_transactions] == [(producer.id, 3)]
    assert client.fetch("plain", 0).aborted_transactions is None
    latest = messages.ListOffsetsRequest
    for level in (0, 1):
        topic = latest.ListOffsetsTopic("plain", [latest.ListOffsetsPartition(0, -1, -1)])
        (found,) = client.call("ListOffsets", isolation_level=level, topics=[topic]).topics
        assert found.partitions[0].offset == 5


def test_a_reader_of_committed_records_stops_at_the_open_transaction(
    start: Start, client: KafkaClient
) -> None:
    """ListOffsets and Fetch return the same last stable offset."""
    producer = start("stable")
    client.produce("stable", batch_of(b"before"))
    assert producer.add(("stable", 0)) == 0 and producer.produce("stable", b"open") == 0
    client.produce("stable", batch_of(b"after"))
    request = messages.ListOffsetsRequest
    offsets = []
    for level in (0, 1):
        topic = request.ListOffsetsTopic("stable", [request.ListOffsetsPartition(0, -1, -1)])
        (found,) = client.call("ListOffsets", isolation_level=level, topics=[topic]).topics
        offsets.append(found.partitions[0].offset)
    assert offsets == [3, 1]
    assert values_in(committed(client, "stable").records) == [b"before"]
    producer.finish(commit=True)
    assert len(values_in(committed(client, "stable").records)) == 4  # with the marker


@pytest.mark.parametrize("version", range(3, 12))
def test_a_batch_needs_its_transaction(start: Start, client: KafkaClient, version: int) -> None:
    """48, or 120 from version 11 on; an old epoch gets 47."""
    producer = start(f"verified-{version}")
    name, refused = producer.name, 120 if version >= 11 else 48
    assert producer.produce(name, b"x", version=version) == refused
    assert producer.add((name, 1)) == 0
    assert producer.produce(name, b"x", version=version) == refused
    assert producer.add((name, 0)) == 0
    assert producer.produce(name, b"x", version=version) == 0
    assert producer.produce(name, b"y", version=version) == 0
    producer.finish(commit=True)
    assert producer.produce(name, b"z", version=version) == refused
    old_epoch = producer.epoch
    producer.begin()
    assert producer.add((name, 0)) == 0 and producer.produce(name, b"new", version=version) == 0
    producer.epoch, producer.sequences[name, 0] = old_epoch, 2
    assert producer.produce(name, b"zombie", version=version) == 47


def test_batches_that_no_transaction_may_have(start: Start, client: KafkaClient) -> None:
    """A batch without a transactional id, with a wrong id, or without a sequence is refused."""
    producer = start("strange")
    assert producer.add(("strange", 0)) == 0
    assert producer.produce("strange", b"x", transactional_id=None) == 48
    assert producer.produce("strange", b"x", transactional_id="stranger") == 49
    producer.sequences["strange", 0] = -1
    assert producer.produce("strange", b"x") == 87
    plain = batch_of(b"no transaction", producer=(producer.id, producer.epoch, 0))
    assert client.produce("strange", plain, transactional_id="strange").error_code == 0


def test_zombies_are_fenced(start: Start, client: KafkaClient) -> None:
    """90 from the coordinator, or 47 for old versions; the new producer first gets 51."""
    old = start("zombie")
    assert old.add(("zombie", 0)) == 0 and old.produce("zombie", b"half") == 0
    new = RawProducer(client, "zombie")
    assert new.init() == 51
    new.begin()
    assert (new.id, new.epoch) == (old.id, old.epoch + 2)
    assert [old.add(("zombie", 0), version=one) for one in range(4)] == [47, 47, 90, 90]
    assert [old.end(commit=True, version=one) for one in range(5)] == [47, 47, 90, 90, 90]
    assert [old.add_offsets("g", version=one) for one in range(5)] == [47, 47, 90, 90, 90]
    ids = {"producer_id": old.id, "producer_epoch": old.epoch}
    assert [old.init(version=one, **ids) for one in (3, 4, 5)] == [47, 90, 90]
    row = committed(client, "zombie")
    assert row.last_stable_offset == row.high_watermark == 2 and row.aborted_transactions
    assert new.add(("zombie", 0)) == 0 and new.produce("zombie", b"whole") == 0
    new.finish(commit=True)


def test_wrong_states_and_wrong_names(start: Start, client: KafkaClient) -> None:
    """48 without a transaction, 49 for another id, 50 for a long timeout, 42 without a name."""
    producer = start("wrong")
    assert [producer.end(commit=one) for one in (True, False)] == [48, 48]
    assert producer.add(("wrong", 0)) == 0
    producer.finish(commit=True)
    assert [producer.end(commit=one) for one in (True, False)] == [0, 48]
    assert producer.add(("wrong", 7)) == 3 and producer.add(("nowhere", 0)) == 3
    assert producer.add(("wrong", 0), ("wrong", 7)) == 55  # nothing was added
    assert producer.add(("__transaction_state", 0)) == 17
    producer.id += 1
    assert producer.add(("wrong", 0)) == 49 and producer.end(commit=True) == 49
    assert RawProducer(client, "unknown").end(commit=True) == 49
    assert RawProducer(client, "").init() == 42
    for timeout_ms in (0, -1, 900_001):
        assert RawProducer(client, "late", timeout_ms).init() == 50
    assert RawProducer(client, "late").init(producer_id=5) == 42
    assert RawProducer(client, "late").state().error_code == 105


def test_a_producer_asks_for_its_next_epoch(start: Start) -> None:
    """A client keeps its id, even if it asks twice; an older epoch is fenced (KIP-360)."""
    producer = start("next")
    own = {"producer_id": producer.id, "producer_epoch": producer.epoch}
    for _ in range(2):
        assert producer.init(**own) == 0
        assert (producer.id, producer.epoch) == (own["producer_id"], own["producer_epoch"] + 1)
    assert producer.begin().epoch == own["producer_epoch"] + 2
    assert producer.init(**own) == 90


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_ask_for_several_transactions(
    start: Start, client: KafkaClient, version: int
) -> None:
    """Brokers verify partitions, or add them."""
    producer = start(f"batched-{version}")
    request = messages.AddPartitionsToTxnRequest

    def ask(*, verify_only: bool, producer_id: int = producer.id) -> list[list[int]]:
        topic = request.AddPartitionsToTxnTopic(producer.name, [0, 1])
        rows = [
            request.AddPartitionsToTxnTransaction(
                producer.name, one, producer.epoch, verify_only, [topic]
            )
            for one in (producer.id, producer_id)
        ]
        answer = client.call("AddPartitionsToTxn", version, transactions=rows)
        return [
            [row.partition_error_code for row in one.topic_results[0].results_by_partition]
            for one in answer.results_by_transaction
        ]

    refused = 120 if version == 5 else 48
    assert ask(verify_only=True) == [[refused] * 2] * 2
    assert producer.add((producer.name, 1)) == 0
    assert ask(verify_only=True, producer_id=producer.id + 1) == [[refused, 0], [49, 49]]
    assert ask(verify_only=False, producer_id=producer.id + 1) == [[0, 0], [49, 49]]
    assert ask(verify_only=True) == [[0, 0]] * 2
    producer.finish(commit=True)


def test_offsets_are_pending_until_the_marker(start: Start, client: KafkaClient) -> None:
    """`require_stable` gets 88 until the commit or the abort."""
    producer = start("offsets")
    assert producer.commit_offset("g", "offsets", 5) == 120
    assert producer.commit_offset("g", "offsets", 5, version=3) == 48
    assert producer.add_offsets("") == 24 and producer.add_offsets("g") == 0
    assert producer.commit_offset("g", "offsets", 5) == 0
    assert producer.commit_offset("g", "nowhere", 5) == 3
    assert fetch_offset(client, "g", "offsets") == (0, -1)
    assert fetch_offset(client, "g", "offsets", stable=True) == (88, -1)
    producer.finish(commit=True)
    assert fetch_offset(client, "g", "offsets", stable=True) == (0, 5)
    assert producer.add_offsets("g") == 0 and producer.commit_offset("g", "offsets", 9) == 0
    assert fetch_offset(client, "g", "offsets", stable=True) == (88, -1)
    producer.finish(commit=False)
    assert fetch_offset(client, "g", "offsets", stable=True) == (0, 5)


def test_the_member_of_an_offset_is_checked(start: Start, client: KafkaClient) -> None:
    """25 for an unknown member, 22 for another generation; without a member, anyone commits."""
    producer = start("members")
    protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
    fields: dict[str, Any] = {
        "group_id": "band", "session_timeout_ms": 60_000, "rebalance_timeout_ms": 1000,
        "protocol_type": "consumer", "protocols": [protocol],
    }  # fmt: skip
    named = client.call("JoinGroup", **fields)
    joined = client.call("JoinGroup", **fields, member_id=named.member_id)
    assert joined.error_code == 0 and producer.add_offsets("band") == 0
    own = {"member_id": joined.member_id, "generation_id": joined.generation_id}
    assert producer.commit_offset("band", "members", 1, **own) == 0
    assert producer.commit_offset("band", "members", 1, **{**own, "generation_id": 7}) == 22
    assert producer.commit_offset("band", "members", 1, **{**own, "member_id": "x"}) == 25
    assert producer.commit_offset("band", "members", 1) == 0
    assert producer.commit_offset("nobody", "members", 1, **own) in (22, 120)
    producer.finish(commit=True)


def test_the_epoch_of_a_member_is_checked(start: Start, client: KafkaClient) -> None:
    """In the new protocol, 25 for an unknown member, 22 for another epoch, as in Kafka."""
    producer = start("epochs")
    joined = client.call(
        "ConsumerGroupHeartbeat", group_id="choir", member_id="singer", member_epoch=0,
        rebalance_timeout_ms=5000, subscribed_topic_names=["epochs"], topic_partitions=[],
    )  # fmt: skip
    assert joined.error_code == 0 and producer.add_offsets("choir") == 0
    own = {"member_id": "singer", "generation_id": joined.member_epoch}
    assert producer.commit_offset("choir", "epochs", 1, **own) == 0
    assert producer.commit_offset("choir", "epochs", 2, **{**own, "generation_id": 7}) == 22
    assert producer.commit_offset("choir", "epochs", 3, **{**own, "member_id": "x"}) == 25
    assert producer.commit_offset("choir", "epochs", 4) == 0
    producer.finish(commit=True)
    assert fetch_offset(client, "choir", "epochs", stable=True) == (0, 4)


def test_transactions_are_described_and_listed(start: Start, client: KafkaClient) -> None:
    """The answers have partitions and producers, and can be filtered."""
    producer = start("shown")
    assert producer.add(("shown", 0), ("shown", 1)) == 0
    assert producer.produce("shown", b"x", b"y") == 0
    row = producer.state()
    assert (row.error_code, row.transaction_state, row.producer_id) == (0, "Ongoing", producer.id)
    assert [(one.topic, tuple(one.partitions)) for one in row.topics] == [("shown", (0, 1))]
    assert abs(row.transaction_start_time_ms - time.time() * 1000) < 60_000
    topic = messages.DescribeProducersRequest.TopicRequest("shown", [0, 7])
    found, missing = client.call("DescribeProducers", topics=[topic]).topics[0].partitions
    (one,) = found.active_producers
    assert (one.producer_id, one.last_sequence, one.current_txn_start_offset) == (producer.id, 1, 0)
    assert missing.error_code == 3
    own = {"producer_id_filters": [producer.id]}

    def listed(**fields: Any) -> list[str]:
        answer = client.call("ListTransactions", **{"duration_filter": -1, **own, **fields})
        assert answer.error_code == 0
        return [one.transactional_id for one in answer.transaction_states]

    assert listed() == listed(state_filters=["Ongoing"]) == ["shown"]
    assert listed(state_filters=["Empty"]) == listed(duration_filter=3_600_000) == []
    answer = client.call("ListTransactions", state_filters=["Nonsense"], duration_filter=-1)
    assert list(answer.unknown_state_filters) == ["Nonsense"] and not answer.transaction_states
    assert listed(transactional_id_pattern="sh.*n") == ["shown"]
    assert listed(transactional_id_pattern="") == listed(transactional_id_pattern=None) == ["shown"]
    assert listed(transactional_id_pattern="how") == [], "the whole id must match"
    answer = client.call("ListTransactions", duration_filter=-1, transactional_id_pattern="(")
    assert answer.error_code == 128
    producer.finish(commit=False)


def test_an_operator_aborts_a_transaction(start: Start, client: KafkaClient) -> None:
    """WriteTxnMarkers ends the transaction in one partition; a bad request is refused."""
    producer = start("operated")
    assert producer.add(("operated", 0)) == 0 and producer.produce("operated", b"x") == 0
    request = messages.WriteTxnMarkersRequest

    def write(*, epoch: int = producer.epoch, topic: str = "operated", coordinator: int = 0) -> int:
        topics = [request.WritableTxnMarkerTopic(topic, [0])]
        marker = request.WritableTxnMarker(producer.id, epoch, False, topics, coordinator)
        (one,) = client.call("WriteTxnMarkers", markers=[marker]).markers
        return int(one.topics[0].partitions[0].error_code)

    assert write(topic="nowhere") == 3 and write(epoch=-1) == 42
    assert write() == 0
    row = committed(client, "operated")
    assert row.last_stable_offset == 2 and len(row.aborted_transactions) == 1
    producer.finish(commit=False)
    assert producer.begin().epoch == 1
    assert producer.add(("operated", 0)) == 0 and producer.produce("operated", b"y") == 0
    assert write(epoch=0) == 47  # no marker may abort the next epoch's data
    producer.finish(commit=True)


def test_regression_markers_for_absent_partitions_of_groups_leave_nothing(
    client: KafkaClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Each such partition number had a shard for ever, and a line in the log."""
    assert not client.call("FindCoordinator", coordinator_keys=["g"]).coordinators[0].error_code
    request, absent = messages.WriteTxnMarkersRequest, [-(2**31), -1, *range(2, 60), 2**31 - 1]
    topics = [request.WritableTxnMarkerTopic("__consumer_offsets", absent)]
    marker = request.WritableTxnMarker(7, 0, False, topics, 0)
    shards = [one for one in gc.get_objects() if isinstance(one, Shard)]
    (answered,) = client.call("WriteTxnMarkers", markers=[marker]).markers
    assert {one.error_code for one in answered.topics[0].partitions} == {3}
    assert len([one for one in gc.get_objects() if isinstance(one, Shard)]) == len(shards)
    assert "could not be loaded" not in caplog.text


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Broker]:
    """A broker that ends old transactions soon."""
    with Broker.start(tmp_path, SOON) as made:
        yield made


def test_old_transactions_are_aborted_and_idle_ids_forgotten(quick: Broker) -> None:
    """The producer is fenced, and its records no longer delay readers."""
    with KafkaClient(quick.bootstrap_servers) as client:
        client.create("old")
        producer = RawProducer(client, "old", timeout_ms=100).begin()
        assert producer.add(("old", 0)) == 0 and producer.produce("old", b"x") == 0
        row = producer.wait_for("CompleteAbort")
        assert row.producer_epoch == producer.epoch + 1
        assert committed(client, "old").last_stable_offset == 2
        assert producer.end(commit=True) == 90 and producer.add(("old", 0)) == 90
        assert producer.produce("old", b"y") == 47
        deadline = time.monotonic() + 20
        while producer.state().error_code != 105:
            assert time.monotonic() < deadline
        assert producer.end(commit=True) == 49


def test_a_deleted_topic_needs_no_marker(start: Start, client: KafkaClient) -> None:
    """The transaction completes, and the next one begins."""
    producer = start("gone")
    client.create("kept")
    assert producer.add(("gone", 0), ("kept", 0)) == 0
    assert producer.produce("gone", b"x") == 0 and producer.produce("kept", b"y") == 0
    Topic = messages.DeleteTopicsRequest.DeleteTopicState  # noqa: N806 - a class
    (row,) = client.call("DeleteTopics", topics=[Topic("gone")], timeout_ms=5000).responses
    assert row.error_code == 0
    producer.finish(commit=True)
    assert committed(client, "kept").last_stable_offset == 2
    assert producer.add(("kept", 0)) == 0


def test_a_batch_that_nobody_verified_begins_no_transaction(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log was away when the coordinator should be asked, and is back for the append."""
    producer = start("away")
    assert producer.add(("away", 0)) == 0

    def away(*_: object) -> None:
        raise ReplicaOfflineError(topic="away", partition=0, reason="its log dir is away")

    monkeypatch.setattr(SoleBroker, "log", away)
    assert producer.produce("away", b"x") == 48
    monkeypatch.undo()
    assert producer.produce("away", b"x") == 0
    monkeypatch.setattr(SoleBroker, "log", away)
    assert producer.produce("away", b"y") == 0  # the log has the transaction
    monkeypatch.undo()
    producer.finish(commit=True)


def test_a_request_without_a_transactional_id_has_no_transaction(client: KafkaClient) -> None:
    """A batch in it that claims to be part of a transaction is refused."""
    client.create("lone")
    batch = batch_of(b"x", producer=(3, 0, 0), attributes=TRANSACTIONAL)
    assert client.produce("lone", batch).error_code == 48
