"""Test clients that must wait for a quota longer than they want to: no record is double or lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from broker import Broker
from broker.wire import messages
from support.kafka_client import KafkaClient, batch_of, produce_fields, values_in

MINE = "raw"  # the client id of `KafkaClient`
Alter = messages.AlterClientQuotasRequest


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.start() as running:
        yield running


def limit(client: KafkaClient, client_id: str, rate: float) -> None:
    """Limit the rate at which a client produces."""
    entity = [Alter.EntityData("client-id", client_id)]
    entry = Alter.EntryData(entity, [Alter.OpData("producer_byte_rate", rate, False)])
    (row,) = client.call("AlterClientQuotas", entries=[entry], validate_only=False).entries
    assert row.error_code == 0


def records_of(client: KafkaClient) -> list[bytes]:
    """Read the first character of each record of the topic `t`."""
    records = client.fetch("t", 0, max_bytes=1 << 20).records
    return [(value or b"")[:1] for value in values_in(records)]


def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline, pause = time.monotonic() + 30, threading.Event()
    while not is_so():
        assert time.monotonic() < deadline
        pause.wait(0.01)


@pytest.mark.parametrize("acks", [-1, 0])
def test_regression_a_client_that_gives_a_request_up(broker: Broker, acks: int) -> None:
    """Its request was executed minutes later, although the client had sent it again elsewhere.

    A client with acks=0 does not know that its requests wait, so they are still executed.
    """
    with KafkaClient(broker.bootstrap_servers) as other:
        other.create("t")
        limit(other, MINE, 1000 if acks else 5000)
        client = KafkaClient(broker.bootstrap_servers)
        first, second = (produce_fields({("t", 0): batch_of(one * 9000)}) for one in (b"a", b"b"))
        if acks:
            client.call("Produce", 12, **first)
        else:
            client.send("Produce", 12, **first | {"acks": 0})
        client.send("Produce", 12, **second | {"acks": acks})
        until(lambda: len(records_of(other)) == 1)
        client.socket.close()
        until(lambda: broker.connection_count == 1)
        assert records_of(other) == ([b"a"] if acks else [b"a", b"b"])


def test_regression_a_producer_that_must_wait_for_minutes(broker: Broker) -> None:
    """After its time-out, librdkafka sends its records on a new connection: none is lost or double.

    The time-out is a second here, instead of a minute. The waits are as long as in production.
    """
    with KafkaClient(broker.bootstrap_servers) as other:
        other.create("t")
        limit(other, "slow", 50)
        waits: list[float] = []
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers, "client.id": "slow", "linger.ms": 0,
                "socket.timeout.ms": 1000, "request.timeout.ms": 1000, "batch.size": 6000,
                "throttle_cb": lambda event: waits.append(event.throttle_time),
            }
        )  # fmt: skip
        for one in (b"a", b"b", b"c", b"d"):
            producer.produce("t", one * 5000, partition=0)
        assert producer.flush(60) == 0 and max(waits) > 60
        assert len(waits) < 20, "it does not connect again and again without a pause"
        assert records_of(other) == [b"a", b"b", b"c", b"d"]
        until(lambda: broker.connection_count <= 3)  # an abandoned connection does not stay
