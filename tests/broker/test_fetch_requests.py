"""Test that a fetch returns whole batches from its offset on, within the limits, or waits."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from broker import Broker
from broker.catalog.leadership import Reading
from broker.requests.fetch import end_of_epoch
from broker.wire.error_codes import ErrorCode
from logstore import CorruptRecordBatchError, LogConfig, LogDirOfflineError
from support.kafka_client import (
    KafkaClient,
    batch_of,
    batches_in,
    fetch_fields,
    values_in,
)

LONG_MS = 15_000


def filled(
    client: KafkaClient, name: str, count: int, partitions: int = 1, size: int = 100
) -> bytes:
    """Create a topic with batches of one record in each partition; returns its id."""
    topic_id = client.create(name, partitions)
    for partition in range(partitions):
        for number in range(count):
            client.produce(name, batch_of(b"%d" % number * size), partition)
    return topic_id


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads(client: KafkaClient, version: int) -> None:
    """Versions below 13 name topics by name, later versions by id."""
    name = f"fetch-{version}"
    topic_id = filled(client, name, 3)
    topic = topic_id if version >= 13 else name
    answer = client.call("Fetch", version, **fetch_fields({(topic, 0): 1}))
    (row,) = answer.responses
    assert (row.topic_id if version >= 13 else row.topic) == topic
    (data,) = row.partitions
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 3, 3)
    assert list(batches_in(data.records)) == [(1, 1), (2, 1)]
    assert data.aborted_transactions in (None, ())


@pytest.mark.parametrize(
    ("offset", "code"), [(-1, 1), (0, 0), (3, 0), (4, 1), (2**62, 1), (-(2**63), 1)]
)
def test_offsets_out_of_range(client: KafkaClient, broker: Broker, offset: int, code: int) -> None:
    """Error 1 before the log start and after the log end; no error at the end."""
    if ("range", 0) not in broker.store:
        filled(client, "range", 3)
    data = client.fetch("range", offset)
    assert data.error_code == code
    assert data.records is not None and bool(data.records) == (offset == 0)


def test_the_middle_of_a_batch_gives_the_whole_batch(client: KafkaClient) -> None:
    """The answer has the whole batch; clients leave out the records before their offset."""
    client.create("middle")
    client.produce("middle", batch_of(b"a", b"b", b"c"))
    client.produce("middle", batch_of(b"d"))
    assert list(batches_in(client.fetch("middle", 2).records)) == [(0, 3), (3, 1)]


def test_unknown_partitions(client: KafkaClient) -> None:
    """An unknown name gets 3, an unknown id 100; the other partitions are served."""
    topic_id = filled(client, "known", 1)
    answer = client.call("Fetch", 12, **fetch_fields({("known", 0): 0, ("none", 0): 0}))
    assert [row.partitions[0].error_code for row in answer.responses] == [0, 3]
    answer = client.call("Fetch", 13, **fetch_fields({(topic_id, 3): 0, (b"?" * 16, 0): 0}))
    assert [row.partitions[0].error_code for row in answer.responses] == [3, 100]
    assert all(row.partitions[0].records is not None for row in answer.responses)


def test_limits_hold_but_for_the_first_batch(client: KafkaClient) -> None:
    """The first partition with records returns one batch beyond both limits, the others none."""
    filled(client, "limits", 3, partitions=3, size=1000)
    topics: dict[tuple[str | bytes, int], int] = {("limits", at): 0 for at in range(3)}

    def counts(**limits: int) -> list[int]:
        answer = client.call("Fetch", 12, **fetch_fields(topics, **limits))
        return [
            len(list(batches_in(data.records)))
            for row in answer.responses
            for data in row.partitions
        ]

    assert counts() == [3, 3, 3]
    assert counts(max_bytes=1) == [1, 0, 0]
    assert counts(max_bytes=0) == [1, 0, 0]
    assert counts(partition_max_bytes=1) == [1, 0, 0]
    assert counts(partition_max_bytes=2500) == [2, 2, 2]
    assert counts(max_bytes=2500) == [2, 0, 0]
    assert counts(max_bytes=5000) == [3, 1, 0]
    topics[("limits", 0)] = 3
    assert counts(max_bytes=1) == [0, 1, 0]


def test_a_wait_ends_with_the_first_record(client: KafkaClient, broker: Broker) -> None:
    """The wait ends as soon as there are `min_bytes`, long before its time is over."""
    filled(client, "wait", 1)
    began = time.monotonic()
    client.send("Fetch", 12, **fetch_fields({("wait", 0): 1}, max_wait_ms=LONG_MS))
    with KafkaClient(broker.bootstrap_servers) as other:
        other.produce("wait", batch_of(b"new"))
    _, answer = client.receive("Fetch", 12)
    assert values_in(answer.responses[0].partitions[0].records) == [b"new"]
    assert time.monotonic() - began < LONG_MS / 1000


def test_a_wait_for_many_bytes(client: KafkaClient, broker: Broker) -> None:
    """Several appends together reach `min_bytes` and end the wait."""
    client.create("many-bytes")
    fields = fetch_fields({("many-bytes", 0): 0}, max_wait_ms=LONG_MS, min_bytes=3000)
    client.send("Fetch", 12, **fields)
    with KafkaClient(broker.bootstrap_servers) as other:
        for _ in range(4):
            other.produce("many-bytes", batch_of(bytes(1000)))
    _, answer = client.receive("Fetch", 12)
    assert len(list(batches_in(answer.responses[0].partitions[0].records))) in (3, 4)


def test_a_wait_ends_at_its_time(client: KafkaClient) -> None:
    """At its deadline, a waiting fetch is answered with the available records."""
    filled(client, "time", 1)
    began = time.monotonic()
    data = client.fetch("time", 0, max_wait_ms=200, min_bytes=1 << 20)
    assert time.monotonic() - began >= 0.2
    assert len(list(batches_in(data.records))) == 1


def test_waiting_requests_hold_no_thread(broker: Broker) -> None:
    """Many clients wait without threads, and one record wakes all of them."""
    with KafkaClient(broker.bootstrap_servers) as first:
        first.create("crowd")
        clients = [KafkaClient(broker.bootstrap_servers) for _ in range(200)]
        fields = fetch_fields({("crowd", 0): 0}, max_wait_ms=LONG_MS)
        for one in clients:
            one.send("Fetch", 12, **fields)
        log, paused = broker.store["crowd", 0], threading.Event()
        while len(log._state.subscriptions) < 200:
            paused.wait(0.005)
        assert broker.connection_count >= 200
        while broker.running_count > 1:
            paused.wait(0.005)
        first.produce("crowd", batch_of(b"x"))
        for one in clients:
            _, answer = one.receive("Fetch", 12)
            assert values_in(answer.responses[0].partitions[0].records) == [b"x"]
            one.socket.close()
        while log._state.subscriptions:
            paused.wait(0.005)


def test_a_deleted_topic_ends_the_wait(client: KafkaClient, broker: Broker) -> None:
    """A deletion of the topic ends the wait at once, with error 3."""
    client.create("deleted")
    client.send("Fetch", 12, **fetch_fields({("deleted", 0): 0}, max_wait_ms=LONG_MS))
    while not broker.store["deleted", 0]._state.subscriptions:
        threading.Event().wait(0.005)
    broker.store.delete("deleted", 0)
    _, answer = client.receive("Fetch", 12)
    assert answer.responses[0].partitions[0].error_code == 3


def test_the_high_watermark_bounds_consumers(client: KafkaClient, broker: Broker) -> None:
    """Records above the high watermark are not sent; a fetch above it is no error."""
    client.create("watermark")
    log = broker.store["watermark", 0]
    log.advance_high_watermark(0)
    for _ in range(5):
        client.produce("watermark", batch_of(b"x"), acks=1)
    for high in (0, 3):
        log.advance_high_watermark(high)
        data = client.fetch("watermark", 0)
        assert (data.high_watermark, data.last_stable_offset) == (high, high)
        assert len(list(batches_in(data.records))) == high
    assert client.fetch("watermark", 4).error_code == 0
    client.send("Fetch", 12, **fetch_fields({("watermark", 0): 4}, max_wait_ms=LONG_MS))
    log.advance_high_watermark(5)
    _, answer = client.receive("Fetch", 12)
    assert list(batches_in(answer.responses[0].partitions[0].records)) == [(4, 1)]


def test_leader_epochs_are_compared(client: KafkaClient, broker: Broker) -> None:
    """74 for an older epoch than the log's, 75 for a newer epoch, no error for -1."""
    filled(client, "epochs", 1)
    broker.store["epochs", 0].leader_epoch = 5
    client.produce("epochs", batch_of(b"in epoch 5"))
    for epoch, code in ((-1, 0), (4, 74), (5, 0), (6, 75)):
        assert client.fetch("epochs", 0, current_leader_epoch=epoch).error_code == code
    data = client.fetch("epochs", 2, last_fetched_epoch=5)
    assert data.diverging_epoch.epoch == -1
    data = client.fetch("epochs", 2, last_fetched_epoch=3)
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 1)


def test_regression_an_epoch_that_no_leader_has_had(client: KafkaClient, broker: Broker) -> None:
    """Error 1, as from Kafka: the log cannot show where such a reader left it. No data is sent."""
    filled(client, "future-epoch", 2)
    client.create("future-epoch-empty")
    broker.store["future-epoch", 0].leader_epoch = 5
    for epoch in (6, 2**31 - 1):
        for offset in (0, 1, 2):
            data = client.fetch("future-epoch", offset, last_fetched_epoch=epoch)
            assert (data.error_code, data.records, data.diverging_epoch.epoch) == (1, b"", -1)
        data = client.fetch("future-epoch-empty", 0, last_fetched_epoch=epoch)
        assert (data.error_code, data.diverging_epoch.epoch) == (1, -1)
        data = client.fetch("future-epoch", 0, last_fetched_epoch=epoch, current_leader_epoch=epoch)
        assert (data.error_code, data.records, data.diverging_epoch.epoch) == (75, b"", -1)


def test_regression_a_reader_of_deleted_epochs_continues(
    client: KafkaClient, broker: Broker
) -> None:
    """The records of its epoch were deleted after it read them: it has missed nothing."""
    filled(client, "deleted-epochs", 3)
    log = broker.store["deleted-epochs", 0]
    log.leader_epoch = 5
    client.produce("deleted-epochs", batch_of(b"in epoch 5"))
    log.delete_records_before(3)
    assert log.leader_epochs == ((5, 3),)
    data = client.fetch("deleted-epochs", 3, last_fetched_epoch=0)
    assert (data.error_code, values_in(data.records)) == (0, [b"in epoch 5"])
    data = client.fetch("deleted-epochs", 4, last_fetched_epoch=0)  # it has read other records
    assert tuple(data.diverging_epoch)[:2] == (0, 3) and not data.records
    assert client.fetch("deleted-epochs", 2, last_fetched_epoch=0).error_code == 1


def test_regression_a_leader_knows_its_epoch_before_its_first_record(broker: Broker) -> None:
    """The log learns of an epoch with its first record; the leader knows it from its election."""
    log = broker.store.create("new-leader", 0, config=LogConfig(record_format="kafka"))
    log.leader_epoch = 3
    log.extend([b"a", b"b"])
    reading = Reading(log, leader_epoch=6)
    ends = [end_of_epoch(reading, epoch) for epoch in (2, 3, 5, 6, 7)]
    assert ends == [(2, 0), (3, 2), (3, 2), (6, 2), (-1, -1)]


def test_committed_reads_know_what_was_aborted(client: KafkaClient, broker: Broker) -> None:
    """Committed reads end at the last stable offset, and list aborted transactions."""
    client.create("transactions")
    log = broker.store["transactions", 0]
    log.append_encoded(batch_of(b"aborted", producer=(7, 0, 0), attributes=0x10))
    log.append_marker(7, 0, commit=False, coordinator_epoch=0)
    log.append_encoded(batch_of(b"open", producer=(8, 0, 0), attributes=0x10))
    data = client.fetch("transactions", 0, isolation_level=1)
    assert (data.last_stable_offset, data.high_watermark) == (2, 3)
    assert [tuple(row) for row in data.aborted_transactions] == [(7, 0)]
    assert list(batches_in(data.records)) == [(0, 1), (1, 1)]
    data = client.fetch("transactions", 0)
    assert data.aborted_transactions is None and len(list(batches_in(data.records))) == 3


def test_a_session_leaves_out_what_did_not_change(client: KafkaClient) -> None:
    """The next request names no partition, and the answer only the changed one (KIP-227)."""
    topic_id = filled(client, "session", 1, partitions=3)
    offsets: dict[tuple[str | bytes, int], int] = {(topic_id, at): 1 for at in range(3)}
    first = client.call("Fetch", **fetch_fields(offsets, session_epoch=0))
    assert first.session_id > 0
    assert sum(len(row.partitions) for row in first.responses) == 3
    again = client.call("Fetch", **fetch_fields({}, session_id=first.session_id, session_epoch=1))
    assert (again.session_id, again.responses) == (first.session_id, ())
    client.produce("session", batch_of(b"new"), 2)
    changed = client.call("Fetch", **fetch_fields({}, session_id=first.session_id, session_epoch=2))
    (row,) = changed.responses
    assert [data.partition_index for data in row.partitions] == [2]
    assert values_in(row.partitions[0].records) == [b"new"]
    for session_id, epoch, code in ((first.session_id, 2, 71), (first.session_id ^ 1, 3, 70)):
        refused = client.call(
            "Fetch", **fetch_fields({}, session_id=session_id, session_epoch=epoch)
        )
        assert (refused.error_code, refused.session_id, refused.responses) == (code, 0, ())


def test_a_session_waits_too(client: KafkaClient, broker: Broker) -> None:
    """A record in a partition that only the session names ends the wait."""
    topic_id = filled(client, "session-wait", 1)
    first = client.call("Fetch", **fetch_fields({(topic_id, 0): 1}, session_epoch=0))
    fields = fetch_fields({}, session_id=first.session_id, session_epoch=1, max_wait_ms=LONG_MS)
    client.send("Fetch", **fields)
    broker.store["session-wait", 0].append_encoded(batch_of(b"new"))
    _, answer = client.receive("Fetch")
    assert values_in(answer.responses[0].partitions[0].records) == [b"new"]


def test_a_range_ends_with_its_segment(client: KafkaClient, broker: Broker) -> None:
    """Over several segments and several requests, every record comes exactly once."""
    client.create("segments", segment_bytes="4096")
    for number in range(200):
        client.produce("segments", batch_of(b"%d" % number * 50))
    offset, values = 0, list[Any]()
    while offset < 200:
        data = client.fetch("segments", offset)
        values += values_in(data.records)
        offset = len(values)
    assert values == [b"%d" % number * 50 for number in range(200)]


FAILURES = [
    (LogDirOfflineError(path="/disk"), 12, ErrorCode.KAFKA_STORAGE_ERROR),
    (LogDirOfflineError(path="/disk"), 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (CorruptRecordBatchError(path="x"), 12, ErrorCode.CORRUPT_MESSAGE),
]


@pytest.mark.parametrize(("error", "version", "code"), FAILURES)
def test_a_failing_disk_is_answered(
    broker: Broker,
    client: KafkaClient,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    version: int,
    code: ErrorCode,
) -> None:
    """The error is 56; versions up to 5, which do not know 56, get 6."""
    if ("sick", 0) not in broker.store:
        filled(client, "sick", 1)

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(type(broker.store["sick", 0]), "read_range", fail)
    data = client.fetch("sick", 0, version=version)
    assert ErrorCode(data.error_code) is code and data.records is not None


def test_what_an_open_store_held_before_is_served(tmp_path: Any) -> None:
    """A broker over an open store of this process serves the store's earlier appends."""
    from logstore import LogStore

    with LogStore.open(tmp_path / "logs") as store:
        log = store.create("own", 0, config=LogConfig(record_format="kafka"))
        log.append(b"before")
        with Broker.start(store=store) as broker, KafkaClient(broker.bootstrap_servers) as client:
            assert values_in(client.fetch("own", 0).records) == [b"before"]
            log.append(b"after")
            assert values_in(client.fetch("own", 1).records) == [b"after"]
        assert log.append(b"the store is open") == 2
