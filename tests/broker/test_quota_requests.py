"""Test quotas in requests: clients set them, and only clients above their rate wait."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from broker import Broker
from broker.catalog.admin import client_quotas
from broker.quotas import documents
from broker.wire import messages
from broker.wire.error_codes import ErrorCode
from logstore import LogStore
from support.kafka_client import KafkaClient, batch_of, fetch_fields, produce_fields

MINE, OTHER = "raw", "someone-else"  # the client id of `KafkaClient`, and another one
Alter = messages.AlterClientQuotasRequest
Component = messages.DescribeClientQuotasRequest.ComponentData
EXACT, DEFAULT, ANY = 0, 1, 2
FOLLOWING = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:admin",
}
Row = tuple[dict[str, str | None], dict[str, float]]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.start() as running:
        yield running


def alter(
    client: KafkaClient, entity: dict[str, str | None], *, dry: Any = False, **ops: Any
) -> Any:
    """Set quotas of an entity; None removes a quota. Return the row of the answer."""
    entry = Alter.EntryData(
        [Alter.EntityData(*one) for one in entity.items()],
        [Alter.OpData(key, rate or 0.0, rate is None) for key, rate in ops.items()],
    )
    answer = client.call("AlterClientQuotas", entries=[entry], validate_only=dry)
    (row,) = answer.entries
    assert [(one.entity_type, one.entity_name) for one in row.entity] == list(entity.items())
    return row


def described(client: KafkaClient, *components: tuple[Any, ...], strict: bool = False) -> list[Row]:
    """List the quotas that a filter matches."""
    answer = client.call(
        "DescribeClientQuotas", components=[Component(*one) for one in components], strict=strict
    )
    assert answer.error_code == 0, answer.error_message
    return [
        (
            {one.entity_type: one.entity_name for one in entry.entity},
            {one.key: one.value for one in entry.values},
        )
        for entry in answer.entries
    ]


def test_quotas_are_set_listed_and_removed(tmp_path: Path) -> None:
    """Quotas survive a restart, and can be listed by each kind of filter."""
    with Broker.start(tmp_path) as broker, KafkaClient(broker.bootstrap_servers) as client:
        assert described(client) == []
        assert alter(client, {"user": "alice"}, producer_byte_rate=1e6).error_code == 0
        assert alter(client, {"user": "alice"}, consumer_byte_rate=2e6).error_code == 0
        assert alter(client, {"client-id": None}, request_percentage=50.0).error_code == 0
        both: dict[str, str | None] = {"user": None, "client-id": "a/b,c=d"}
        assert alter(client, both, request_percentage=12.3456789012345678).error_code == 0
        assert alter(client, {"user": "dry"}, dry=True, producer_byte_rate=1.0).error_code == 0
    with Broker.start(tmp_path) as broker, KafkaClient(broker.bootstrap_servers) as client:
        alice = ({"user": "alice"}, {"producer_byte_rate": 1e6, "consumer_byte_rate": 2e6})
        clients: Row = ({"client-id": None}, {"request_percentage": 50.0})
        pair: Row = (both, {"request_percentage": 12.3456789012345678})
        found = described(client)
        assert len(found) == 3 and all(one in found for one in (alice, clients, pair))
        assert described(client, ("user", EXACT, "alice")) == [alice]
        assert described(client, ("user", DEFAULT, None)) == [pair]
        assert described(client, ("user", DEFAULT, None), strict=True) == []
        assert described(client, ("client-id", DEFAULT, None), strict=True) == [clients]
        assert described(client, ("user", ANY, None), ("client-id", ANY, None)) == [pair]
        assert described(client, ("ip", ANY, None)) == []
        alter(client, {"user": "alice"}, producer_byte_rate=None)
        assert described(client, ("user", ANY, None), strict=True) == [
            ({"user": "alice"}, {"consumer_byte_rate": 2e6})
        ]
        alter(client, {"user": "alice"}, consumer_byte_rate=None, request_percentage=None)
        assert described(client, ("user", ANY, None), strict=True) == []


@pytest.mark.parametrize(
    ("entity", "ops", "reason"),
    [
        ({}, {"producer_byte_rate": 1.0}, "neither a user nor a client id"),
        ({"ip": "127.0.0.1"}, {"connection_creation_rate": 1.0}, "'ip' do not exist here"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "0 characters"),
        ({"user": "x" * 1025}, {"producer_byte_rate": 1.0}, "1025 characters"),
        ({"user": "a\0"}, {"producer_byte_rate": 1.0}, "a character 0"),
        ({"user": "a"}, {"controller_mutation_rate": 1.0}, "not a quota that this broker has"),
        ({"user": "a"}, {"producer_byte_rate": -1.0}, "above 0"),
        ({"user": "a"}, {"producer_byte_rate": float("nan")}, "above 0"),
        ({"user": "a"}, {"producer_byte_rate": float("inf")}, "above 0"),
        ({"user": "a"}, {"producer_byte_rate": 1000.5}, "cannot have a fraction"),
        ({"user": "a"}, {"consumer_byte_rate": 2.245}, "cannot have a fraction"),
        ({"user": "a"}, {"consumer_byte_rate": 2.0**65}, "at most 9223372036854775807 bytes"),
    ],
)
def test_what_cannot_be_a_quota_is_refused(
    broker: Broker, entity: dict[str, str | None], ops: dict[str, float], reason: str
) -> None:
    """The answer gives the reason, and nothing changes."""
    with KafkaClient(broker.bootstrap_servers) as client:
        row = alter(client, entity, **ops)
        assert row.error_code == ErrorCode.INVALID_REQUEST
        assert reason in row.error_message
        assert described(client) == []


@pytest.mark.parametrize(
    ("key", "rate"),
    [
        ("producer_byte_rate", 1.0), ("consumer_byte_rate", 1235.0000001),
        ("consumer_byte_rate", 1234.9999999), ("producer_byte_rate", 2.0**62),
        ("request_percentage", 56.62367), ("request_percentage", 1e-300),
        ("request_percentage", 1e300),
    ],
)  # fmt: skip
def test_a_rate_is_kept_exactly(broker: Broker, key: str, rate: float) -> None:
    """Kafka checks that a rate of bytes is whole, but for a small error, and keeps all digits."""
    with KafkaClient(broker.bootstrap_servers) as client:
        assert alter(client, {"user": "a"}, **{key: rate}).error_code == 0
        assert described(client) == [({"user": "a"}, {key: rate})]


def test_a_fraction_that_is_stored_already_still_counts(broker: Broker) -> None:
    """Earlier versions of this broker took any rate; the other quotas of the user can change."""
    stored = b'{"version":1,"quotas":{"producer_byte_rate":5.5}}'
    broker._services.documents.change("quotas", lambda now: {"user=a": stored})
    with KafkaClient(broker.bootstrap_servers) as client:
        assert described(client) == [({"user": "a"}, {"producer_byte_rate": 5.5})]
        assert alter(client, {"user": "a"}, request_percentage=1.5).error_code == 0
        both = {"producer_byte_rate": 5.5, "request_percentage": 1.5}
        assert described(client) == [({"user": "a"}, both)]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("planet", EXACT, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, "x"), ("user", EXACT, "y")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "x")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_bad_filter_is_refused(
    broker: Broker, components: list[tuple[Any, ...]], code: ErrorCode
) -> None:
    """A bad filter lists no entity."""
    with KafkaClient(broker.bootstrap_servers) as client:
        rows = [Component(*one) for one in components]
        answer = client.call("DescribeClientQuotas", components=rows, strict=False)
        assert (answer.error_code, answer.entries) == (code, None)


def test_a_producer_is_held_to_its_rate(broker: Broker) -> None:
    """The producer learns its wait, and has to wait even if it does not want to."""
    rate, size = 400_000, 20_000
    with KafkaClient(broker.bootstrap_servers) as client:
        client.create("t")
        alter(client, {"client-id": MINE}, producer_byte_rate=rate)
        began, sent, told = time.monotonic(), 0, 0.0
        batch = batch_of(b"x" * size)
        while time.monotonic() - began < 1.5:
            answer = client.call("Produce", 12, **produce_fields({("t", 0): batch}))
            assert answer.responses[0].partition_responses[0].error_code == 0
            sent += len(batch)
            told = max(told, answer.throttle_time_ms / 1000)
        seconds = time.monotonic() - began
        assert sent <= rate * (seconds + 0.25) + len(batch)
        assert 0 < told <= 1.1 * len(batch) / rate


def test_a_client_without_a_quota_does_not_wait(broker: Broker) -> None:
    """Another client is answered at once, while the first client is muted."""
    with KafkaClient(broker.bootstrap_servers) as muted:
        muted.create("t")
        alter(muted, {"client-id": MINE}, producer_byte_rate=1000)
        answer = muted.call("Produce", 12, **produce_fields({("t", 0): batch_of(b"x" * 8000)}))
        assert answer.throttle_time_ms > 5_000
        began = time.monotonic()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": OTHER})
        for number in range(50):
            producer.produce("t", b"%d" % number)
        assert producer.flush(5) == 0
        assert time.monotonic() - began < 5
        muted.send("Metadata", topics=[])
        muted.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            muted.receive("Metadata")


def test_a_consumer_is_held_to_its_rate(broker: Broker) -> None:
    """An answer has at most the bytes of a quarter second, so that answers come evenly."""
    rate = 400_000
    with KafkaClient(broker.bootstrap_servers) as client:
        topic_id = client.create("t")
        for _ in range(100):
            client.produce("t", batch_of(b"x" * 10_000))
        alter(client, {"client-id": MINE}, consumer_byte_rate=rate)
        began, offset, read, largest = time.monotonic(), 0, 0, 0
        while time.monotonic() - began < 1.5:
            answer = client.call(
                "Fetch", **fetch_fields({(topic_id, 0): offset}, max_bytes=10_000_000)
            )
            (data,) = answer.responses[0].partitions
            size = len(data.records or b"")
            assert data.error_code == 0
            offset, read, largest = offset + size // 10_000, read + size, max(largest, size)
            assert answer.throttle_time_ms <= 1000 * size / rate
        seconds = time.monotonic() - began
        assert read <= rate * (seconds + 0.25) + largest
        assert largest <= rate * 0.25 + 11_000


def test_a_consumer_that_wants_more_than_its_quota_gives_does_not_wait_longer(
    broker: Broker,
) -> None:
    """Otherwise a `fetch.min.bytes` above the largest answer would never be reached."""
    with KafkaClient(broker.bootstrap_servers) as client:
        topic_id = client.create("t")
        for _ in range(20):
            client.produce("t", batch_of(b"x" * 1000))
        alter(client, {"client-id": MINE}, consumer_byte_rate=20_000)
        began = time.monotonic()
        fields = fetch_fields({(topic_id, 0): 0}, min_bytes=15_000, max_wait_ms=20_000)
        answer = client.call("Fetch", **fields)
        assert len(answer.responses[0].partitions[0].records) >= 4_000
        assert time.monotonic() - began < 15


def test_the_time_of_requests_is_held_to_its_rate(broker: Broker) -> None:
    """A client that sends requests without a pause gets one hundredth of a thread's time."""
    with KafkaClient(broker.bootstrap_servers) as client:
        alter(client, {"client-id": MINE}, request_percentage=1.0)
        deadline, told = time.monotonic() + 30, 0
        while told <= 300:
            told += client.call("Metadata", topics=None).throttle_time_ms
            assert time.monotonic() < deadline, told


def test_real_clients_go_on(broker: Broker) -> None:
    """A producer and a consumer with quotas lose no records."""
    with KafkaClient(broker.bootstrap_servers) as client:
        client.create("t", 2)
        alter(client, {"client-id": None}, producer_byte_rate=200_000, consumer_byte_rate=400_000)
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    throttled: list[float] = []
    producer = Producer(
        {**servers, "client.id": "app", "batch.size": 20_000, "throttle_cb": throttled.append}
    )
    for number in range(300):
        producer.produce("t", b"%06d" % number * 200, partition=number % 2)
    assert producer.flush(20) == 0
    assert throttled
    consumer = Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found: set[bytes] = set()
    deadline = time.monotonic() + 20
    while len(found) < 300 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.add(message.value()[:6])
    consumer.close()
    assert found == {b"%06d" % number for number in range(300)}


def test_regression_a_closed_broker_follows_no_documents(tmp_path: Path) -> None:
    """A store that is open for long, and is served again and again, must not grow."""
    with LogStore.open(tmp_path) as store:
        for _ in range(3):
            with Broker.start(store=store, config=FOLLOWING) as broker:
                documents = broker._services.documents
                assert all(documents._kind(one).followers for one in ("quotas", "acls", "decoys"))
            assert not any(kind.followers for kind in documents._kinds.values())


@pytest.mark.parametrize("how", ["stop", "hang up", "half close"])
def test_a_muted_connection_ends(broker: Broker, how: str) -> None:
    """A stopping broker does not wait for the end of a throttle, and a client may leave."""
    client = KafkaClient(broker.bootstrap_servers)
    client.create("t")
    alter(client, {"client-id": MINE}, producer_byte_rate=1000)
    size = 15_000 if how == "stop" else 1000
    client.call("Produce", 12, **produce_fields({("t", 0): batch_of(b"x" * size)}))
    began = time.monotonic()
    if how == "stop":
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        stopping.join(5)
        assert not stopping.is_alive()
    elif how == "hang up":
        client.socket.close()
        while broker.connection_count and time.monotonic() - began < 15:
            threading.Event().wait(0.01)
        assert broker.connection_count == 0
    else:
        client.send("DescribeCluster")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.receive("DescribeCluster")[1].brokers, "what was sent before is answered"
    client.socket.close()


def test_a_change_parses_only_the_quotas_that_changed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a request for a thousand users takes longer than its client waits."""
    parsed: list[bytes] = []

    def counted(data: bytes) -> dict[str, float]:
        parsed.append(data)
        return documents.parse(data)

    monkeypatch.setattr(client_quotas, "parse", counted)
    with KafkaClient(broker.bootstrap_servers) as client:
        for number in range(20):
            assert not alter(client, {"user": f"u{number}"}, producer_byte_rate=1e6).error_code
        assert len(parsed) < 3 * 20  # a change parses the quotas that it changes
        parsed.clear()
        assert not alter(client, {"user": "u3"}, producer_byte_rate=2e6).error_code
        assert not alter(client, {"user": "u4"}, producer_byte_rate=None).error_code
        assert all(b"2000000" in data or b"1000000" in data for data in parsed)
        assert len(parsed) <= 3
        rates = {row[0]["user"]: row[1] for row in described(client, ("user", ANY, None))}
        assert rates.pop("u3") == {"producer_byte_rate": 2e6} and len(rates) == 18
