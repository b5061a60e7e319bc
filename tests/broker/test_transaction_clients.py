"""Test transactional producers of real clients: librdkafka and aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Producer

from broker import Broker
from support.exactly_once import PARTITIONS, create_topics, read_all, worker
from support.transaction_requests import SMALL

SECONDS = 20.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.start(config=SMALL) as running:
        yield running


@pytest.fixture(scope="module")
def servers(broker: Broker) -> str:
    """The broker, with the topics `inputs` and `outputs`."""
    create_topics(broker.bootstrap_servers)
    return broker.bootstrap_servers


def flat(rows: list[list[str]]) -> set[str]:
    return {value for row in rows for value in row}


def producer_of(servers: str, name: str, **settings: Any) -> Producer:
    """Make a transactional producer of librdkafka."""
    made = Producer(
        {"bootstrap.servers": servers, "transactional.id": name, "log_level": 0, **settings}
    )
    made.init_transactions(SECONDS)
    return made


def test_librdkafka_commits_and_aborts(servers: str) -> None:
    """Over several partitions, only readers of uncommitted records see the aborted records."""
    producer = producer_of(servers, "rd")
    for number in range(6):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("outputs", f"rd-{number}-{partition}", partition=partition)
        producer.flush(SECONDS)
        if number % 2:
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
    sees = {one for one in flat(read_all(servers, "outputs", "read_committed")) if "rd-" in one}
    assert sees == {f"rd-{number}-{one}" for number in (0, 2, 4) for one in range(PARTITIONS)}
    every = {one for one in flat(read_all(servers, "outputs", "read_uncommitted")) if "rd-" in one}
    assert len(every) == 6 * PARTITIONS


def test_a_zombie_of_librdkafka_is_fenced(servers: str) -> None:
    """The zombie's open transaction is aborted, and its commit is a fatal error."""
    old = producer_of(servers, "rd-zombie")
    old.begin_transaction()
    old.produce("outputs", "zombie", partition=0)
    old.flush(SECONDS)
    new = producer_of(servers, "rd-zombie")
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        old.commit_transaction(SECONDS)
    assert caught.value.args[0].fatal()
    new.begin_transaction()
    new.produce("outputs", "successor", partition=0)
    new.commit_transaction(SECONDS)
    sees = flat(read_all(servers, "outputs", "read_committed"))
    assert "successor" in sees and "zombie" not in sees


def test_aiokafka_commits_and_aborts(servers: str) -> None:
    """Offsets of a group commit together with the records."""
    import aiokafka

    async def run() -> int | None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="aio")
        await producer.start()
        place = aiokafka.TopicPartition("inputs", 0)
        try:
            for number, offset in ((0, 5), (1, 9)):
                await producer.begin_transaction()
                for partition in range(PARTITIONS):
                    await producer.send_and_wait(
                        "outputs", f"aio-{number}-{partition}".encode(), partition=partition
                    )
                await producer.send_offsets_to_transaction({place: offset}, "aio-group")
                if number:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, group_id="aio-group", enable_auto_commit=False
        )
        await consumer.start()
        try:
            found: int | None = await consumer.committed(place)
            return found
        finally:
            await consumer.stop()

    assert asyncio.run(run()) == 5
    sees = {one for one in flat(read_all(servers, "outputs", "read_committed")) if "aio-" in one}
    assert sees == {f"aio-0-{one}" for one in range(PARTITIONS)}


def test_a_worker_moves_records_in_transactions(servers: str) -> None:
    """The program of the kill tests makes progress against a broker that is not killed."""
    producer = Producer({"bootstrap.servers": servers})
    for number in range(50):
        producer.produce("inputs", str(number), partition=number % PARTITIONS)
    producer.flush(SECONDS)
    with worker(servers, "worker", 1) as running:
        running.wait_for_progress()
