"""Test that a batch is appended unchanged, or that the error makes its client do right."""

from __future__ import annotations

import gc
import struct
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from broker import Broker
from broker.machines.exchange import Client, Pending
from broker.requests import failures
from broker.requests.dispatcher import Dispatcher
from broker.wire.error_codes import ErrorCode
from logstore import LogConfig, LogDirOfflineError, LogDirSuspectError, LogStoreError, errors
from support.kafka_client import KafkaClient, batch_of, produce_fields, values_in

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends(client: KafkaClient, version: int) -> None:
    """Versions below 13 name topics by name, later by id; the answer has the offsets."""
    name = f"produce-{version}"
    topic_id = client.create(name)
    topic = topic_id if version >= 13 else name
    batches: dict[tuple[str | bytes, int], bytes | None] = {(topic, 0): batch_of(b"a", b"b")}
    for base_offset in (0, 2):
        answer = client.call("Produce", version, **produce_fields(batches))
        (row,) = answer.responses[0].partition_responses
        assert (row.index, row.error_code, row.base_offset) == (0, 0, base_offset)
        assert row.log_append_time_ms == -1
    found = client.fetch(name, 0)
    assert values_in(found.records) == [b"a", b"b", b"a", b"b"]


def test_partitions_are_independent(client: KafkaClient, broker: Broker) -> None:
    """An unknown topic, an unknown partition and a damaged batch do not affect the others."""
    client.create("independent", 2)
    bad = bytearray(batch_of(b"damaged"))
    bad[-1] ^= 1
    batches: dict[tuple[str | bytes, int], bytes | None] = {
        ("independent", 0): batch_of(b"x"), ("no-such-topic", 0): batch_of(b"x"),
        ("independent", 9): batch_of(b"x"), ("independent", 1): bytes(bad),
    }  # fmt: skip
    answer = client.call("Produce", 12, **produce_fields(batches))
    codes = [row.partition_responses[0].error_code for row in answer.responses]
    assert codes == [0, 3, 3, 2]
    assert broker.store["independent", 1].log_end_offset == 0


def changed(data: bytes, at: int, value: int) -> bytes:
    """Change one byte."""
    return data[:at] + bytes([value]) + data[at + 1 :]


def with_offsets(last_offset_delta: int, count: int) -> bytes:
    """Make a batch whose header claims another last offset and number of records."""
    data = bytearray(batch_of(b"x"))
    struct.pack_into(">i", data, 23, last_offset_delta)
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


BATCH = batch_of(b"value", b"other")
BAD: dict[str, tuple[Callable[[], bytes | None], ErrorCode]] = {
    "null": (lambda: None, ErrorCode.INVALID_RECORD),
    "empty": (lambda: b"", ErrorCode.INVALID_RECORD),
    "cut": (lambda: BATCH[:-1], ErrorCode.INVALID_RECORD),
    "a header's part": (lambda: BATCH[:40], ErrorCode.INVALID_RECORD),
    "two batches": (lambda: BATCH + BATCH, ErrorCode.INVALID_RECORD),
    "magic 1": (lambda: batch_of(b"x", magic=1), ErrorCode.INVALID_RECORD),
    "magic of columns": (lambda: batch_of(b"x", magic=0x4C), ErrorCode.INVALID_RECORD),
    "checksum": (lambda: changed(BATCH, 70, BATCH[70] ^ 1), ErrorCode.CORRUPT_MESSAGE),
    "control batch": (lambda: batch_of(b"x", attributes=0x20), ErrorCode.INVALID_RECORD),
    "transaction": (
        lambda: batch_of(b"x", attributes=0x10, producer=(5, 0, 0)), ErrorCode.INVALID_TXN_STATE,
    ),
    "offsets that jump": (lambda: with_offsets(5, 1), ErrorCode.INVALID_RECORD),
    "offsets that jump far": (lambda: with_offsets(2**31 - 1, 1), ErrorCode.INVALID_RECORD),
    "no records": (lambda: with_offsets(-1, 0), ErrorCode.INVALID_RECORD),
    "time of the append": (lambda: batch_of(b"x", attributes=8), ErrorCode.INVALID_TIMESTAMP),
    "codec 6": (lambda: batch_of(b"x", attributes=6), ErrorCode.INVALID_RECORD),
    "no gzip": (lambda: batch_of(b"x", attributes=1), ErrorCode.INVALID_RECORD),
    "late": (lambda: batch_of(b"x", timestamp=2**53), ErrorCode.INVALID_TIMESTAMP),
    "large": (lambda: batch_of(bytes(1_100_000)), ErrorCode.MESSAGE_TOO_LARGE),
    "no sequence": (lambda: batch_of(b"x", producer=(77, 0, -1)), ErrorCode.INVALID_RECORD),
    "sequence": (lambda: batch_of(b"x", producer=(77, 0, 5)), ErrorCode.NONE),
    "a program's producer id": (
        lambda: batch_of(b"x", producer=(2**62, 0, 0)), ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_batch_is_refused(client: KafkaClient, broker: Broker, case: str) -> None:
    """Kafka's code is returned, and nothing is written; a producer may begin at any sequence."""
    if ("bad", 0) not in broker.store:
        client.create("bad")
    log = broker.store["bad", 0]
    before = log.log_end_offset
    make, code = BAD[case]
    row = client.produce("bad", make())
    assert ErrorCode(row.error_code) is code, row.error_message
    assert (row.base_offset == -1) == (log.log_end_offset == before) == bool(code)
    assert not code or row.error_message


@pytest.mark.parametrize("acks", [2, -2, 3])
def test_other_acks_are_refused(client: KafkaClient, acks: int) -> None:
    """Only -1, 0 and 1 have a meaning."""
    client.create(f"acks{acks + 5}")
    assert client.produce(f"acks{acks + 5}", BATCH, acks=acks).error_code == 21


def test_without_acks_there_is_no_answer(client: KafkaClient, broker: Broker) -> None:
    """The next request is answered; an error closes the connection, so the client notices."""
    client.create("no-acks")
    client.send("Produce", 12, **produce_fields({("no-acks", 0): BATCH}, acks=0))
    assert client.call("ApiVersions", client_software_name="a", client_software_version="1")
    assert broker.store["no-acks", 0].log_end_offset == 2
    client.send("Produce", 12, **produce_fields({("none", 0): BATCH}, acks=0))
    assert client.is_closed_by_broker


def test_zstd_needs_version_7(client: KafkaClient) -> None:
    """Older versions get 76, because their clients could not read zstd."""
    client.create("zstd")
    batch = batch_of(b"x", attributes=4)
    assert client.produce("zstd", batch, version=6).error_code == 76
    assert client.produce("zstd", batch, version=7).error_code == ErrorCode.INVALID_RECORD


def test_a_duplicate_gets_its_offset(client: KafkaClient) -> None:
    """A retry of one of the last five batches succeeds without a second write (KIP-98)."""
    client.create("idempotent")
    for sequence in range(6):
        batch = batch_of(b"%d" % sequence, producer=(500, 0, sequence))
        for _ in range(2):
            row = client.produce("idempotent", batch)
            assert (row.error_code, row.base_offset) == (0, sequence)
    codes = {
        (0, 0): ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,  # it is older than the last five
        (0, 7): ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        (1, 1): ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        (1, 0): ErrorCode.NONE,
        (0, 6): ErrorCode.INVALID_PRODUCER_EPOCH,
    }
    for (epoch, sequence), code in codes.items():
        row = client.produce("idempotent", batch_of(b"x", producer=(500, epoch, sequence)))
        assert ErrorCode(row.error_code) is code
    assert client.fetch("idempotent", 0).high_watermark == 7


def test_append_time_is_that_of_the_broker(client: KafkaClient) -> None:
    """The answer and the batch have the broker's time."""
    client.create("append-time", message_timestamp_type="LogAppendTime")
    row = client.produce("append-time", BATCH)
    assert row.log_append_time_ms > 1_700_000_000_000
    records = bytes(client.fetch("append-time", 0).records)
    assert records[22] & 8
    assert int.from_bytes(records[35:43]) == row.log_append_time_ms


def test_a_compacted_topic_needs_keys(client: KafkaClient) -> None:
    """A record without a key gets 87, with the number of the record."""
    client.create("compacted", cleanup_policy="compact")
    row = client.produce("compacted", batch_of(b"x", b"y", keys=[b"k", None]))
    assert row.error_code == 87
    assert [error.batch_index for error in row.record_errors] == [1]
    assert client.produce("compacted", batch_of(b"x", keys=[b"k"])).error_code == 0


def test_internal_and_columnar_partitions_are_refused(client: KafkaClient, broker: Broker) -> None:
    """17 for internal topics, 43 for topics with records in columns."""
    broker.store.create("__consumer_offsets", 0, config=LogConfig(record_format="kafka"))
    broker.store.create("columns", 0, config=LogConfig())
    assert client.produce("__consumer_offsets", BATCH).error_code == 17
    row = client.produce("columns", BATCH)
    assert row.error_code == 43 and "record_format" in row.error_message
    assert client.fetch("columns", 0).error_code == 43
    assert client.fetch("__consumer_offsets", 0).error_code == 0


def test_acks_all_waits_for_the_high_watermark(client: KafkaClient, broker: Broker) -> None:
    """If a program replicates the log, the request waits for replication or its deadline."""
    client.create("replicated")
    log = broker.store["replicated", 0]
    log.advance_high_watermark(0)
    assert client.produce("replicated", BATCH, acks=1).error_code == 0
    assert client.produce("replicated", BATCH, timeout_ms=30).error_code == 7
    client.send("Produce", 12, **produce_fields({("replicated", 0): BATCH}))
    appended = threading.Event()
    with log.subscribe(lambda _: appended.set()):
        while log.log_end_offset < 6:
            appended.wait(0.01)
    log.advance_high_watermark(6)
    _, answer = client.receive("Produce", 12)
    (row,) = answer.responses[0].partition_responses
    assert (row.error_code, row.base_offset) == (0, 4)


class Frame(bytearray):
    """A frame to which a weak reference can be made."""


def test_a_request_that_waits_keeps_no_records(client: KafkaClient, broker: Broker) -> None:
    """Its memory was returned to the budget when it began to wait."""
    client.create("light")
    broker.store["light", 0].advance_high_watermark(0)
    _, sent = client.frame("Produce", 12, **produce_fields({("light", 0): BATCH}))
    frame = Frame(sent[4:])
    reference = weakref.ref(frame)
    caller = Client(broker.endpoints[0], "127.0.0.1")
    pending = Dispatcher(broker._services)(memoryview(frame), caller)
    assert isinstance(pending, Pending)
    del frame
    gc.collect()
    assert reference() is None
    assert pending.look(is_last=False) is None
    broker.store["light", 0].advance_high_watermark(2)
    assert pending.look(is_last=False)
    pending.close()


OFFLINE = LogDirOfflineError(path="/disk", reason="EIO")
ERRORS: list[tuple[Exception, ErrorCode]] = [
    (OFFLINE, ErrorCode.KAFKA_STORAGE_ERROR),
    (LogDirSuspectError(path="/disk"), ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.LogDirFullError(path="/disk"), ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.ReplicaOfflineError(reason="x"), ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.ReplicaIncompleteError(reason="x"), ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.CorruptIndexError(path="x"), ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.CorruptRecordBatchError(path="x"), ErrorCode.CORRUPT_MESSAGE),
    (errors.UnknownPartitionError(topic="t", partition=0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (errors.LogClosedError(), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (
        errors.FencedLeaderEpochError(leader_epoch=1, current_epoch=2),
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ),
    (
        errors.RecordExpansionError(size_bytes=2, record_expansion_bytes_max=1),
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    (errors.PartitionExistsError(topic="t", partition=0), ErrorCode.TOPIC_ALREADY_EXISTS),
    (LogStoreError("anything"), ErrorCode.KAFKA_STORAGE_ERROR),
    (KeyError("a fault of ours"), ErrorCode.UNKNOWN_SERVER_ERROR),
]


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda one: type(one).__name__)
def test_each_error_has_its_code(error: Exception, code: ErrorCode) -> None:
    """A disk that does not serve gets 56, after which clients fetch metadata and try again."""
    assert failures.code_of(error) is code


def test_a_failing_disk_is_answered(
    client: KafkaClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of the partition has the code and the reason."""
    client.create("failing")
    log = broker.store["failing", 0]

    def fail(*_: Any, **__: Any) -> None:
        raise OFFLINE

    monkeypatch.setattr(type(log), "append_encoded", fail)
    row = client.produce("failing", BATCH)
    assert row.error_code == 56 and "EIO" in row.error_message
