"""Test Kafka's own clients against three brokers, even while brokers die."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from logstore import Log
from support.cluster_brokers import ClusterBrokers
from support.places import fast_directory
from support.replica_nodes import wait_until

SECONDS = 60.0
COUNT = 300
pytestmark = [
    pytest.mark.usefixtures("leaky_clients"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture(scope="module")
def shared() -> Iterator[ClusterBrokers]:
    """A cluster whose brokers stay alive, for several tests."""
    with fast_directory() as root, ClusterBrokers(root) as brokers:
        yield brokers


@pytest.fixture
def own() -> Iterator[ClusterBrokers]:
    """A cluster for one test."""
    with fast_directory() as root, ClusterBrokers(root, dirs=2) as brokers:
        yield brokers


def create(brokers: ClusterBrokers, name: str, partitions: int = 3, **settings: str) -> None:
    """Create a topic with three replicas."""
    keys = {key.replace("_", "."): text for key, text in settings.items()}
    admin = AdminClient({"bootstrap.servers": brokers.servers})
    admin.create_topics([NewTopic(name, partitions, 3, config=keys)])[name].result(SECONDS)
    for partition in range(partitions):
        brokers.leader(name, partition)


def read(brokers: ClusterBrokers, name: str, partition: int) -> list[bytes]:
    """Read a partition from its beginning to its high watermark."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": brokers.servers, "group.id": "unused", "enable.auto.commit": False}
    )
    where = confluent_kafka.TopicPartition(name, partition, 0)
    _, end = consumer.get_watermark_offsets(where, timeout=SECONDS)
    consumer.assign([where])
    found: list[bytes] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < end and time.monotonic() < deadline:
        messages = consumer.consume(end - len(found), 0.2)
        found += [one.value() for one in messages if not one.error()]
    consumer.close()
    assert len(found) == end
    return found


def has_high_watermark(log: Log, offset: int) -> bool:
    """Check how far a log is replicated."""
    return log.high_watermark == offset


@pytest.mark.parametrize("acks", ["all", "1", "0"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_confluent_kafka(shared: ClusterBrokers, acks: str, idempotent: bool) -> None:
    """A topic with three replicas takes records with acks=all, and returns them."""
    if idempotent and acks != "all":
        return  # the client refuses this itself
    name, errors = f"confluent-{acks}-{idempotent}", list[Any]()
    create(shared, name)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": shared.servers, "acks": acks, "linger.ms": 2,
            "enable.idempotence": idempotent, "batch.num.messages": 20,
        }
    )  # fmt: skip
    for number in range(COUNT):
        producer.produce(
            name, b"%d" % number, partition=number % 3,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(SECONDS) == 0 and not errors
    for partition in range(3):
        log = shared.leader(name, partition).store[name, partition]
        wait_until(partial(has_high_watermark, log, COUNT // 3), SECONDS)
    for partition in range(3):
        found = [int(value) for value in read(shared, name, partition)]
        # Without idempotence, a retry may change the order.
        assert (found if idempotent else sorted(found)) == list(range(partition, COUNT, 3))


@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_aiokafka(shared: ClusterBrokers, acks: Any) -> None:
    """The client finds the leader of each partition."""
    name = f"aiokafka-{acks}"
    create(shared, name)

    async def run() -> list[bytes]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=shared.servers, acks=acks, enable_idempotence=acks == "all"
        )
        await producer.start()
        for number in range(30):
            await producer.send_and_wait(name, b"%d" % number, partition=number % 3)
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            name, bootstrap_servers=shared.servers, auto_offset_reset="earliest"
        )
        await consumer.start()
        found = [(await consumer.getone()).value for _ in range(30)]
        await consumer.stop()
        return found

    found = asyncio.run(asyncio.wait_for(run(), SECONDS))
    assert sorted(found) == sorted(b"%d" % number for number in range(30))


@pytest.mark.filterwarnings(r"ignore:(read|open)_text is deprecated:DeprecationWarning")
@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_kafka_python(shared: ClusterBrokers, acks: Any) -> None:
    """kafka-python finds the leader of each partition."""
    import kafka  # it warns while it is imported

    name = f"kafka-python-{acks}"
    create(shared, name)
    with contextlib.closing(
        kafka.KafkaProducer(
            bootstrap_servers=shared.servers.split(","), acks=acks, enable_idempotence=acks == "all"
        )
    ) as producer:
        for number in range(30):
            producer.send(name, b"%d" % number, partition=number % 3)
        producer.flush(SECONDS)
    with contextlib.closing(
        kafka.KafkaConsumer(
            name, bootstrap_servers=shared.servers.split(","), auto_offset_reset="earliest",
            consumer_timeout_ms=int(SECONDS * 1000),
        )
    ) as consumer:  # fmt: skip
        found = [next(consumer).value for _ in range(30)]
    assert sorted(found) == sorted(b"%d" % number for number in range(30))


def test_the_metadata_follow_the_death_of_a_broker(own: ClusterBrokers) -> None:
    """A client sees the new leaders and the in-sync replicas, and later the broker's return."""
    create(own, "orders")
    admin = AdminClient({"bootstrap.servers": own.servers})
    before = admin.list_topics(timeout=SECONDS)
    assert sorted(before.brokers) == [1, 2, 3] and before.controller_id in (1, 2, 3)
    partitions = before.topics["orders"].partitions
    assert {one.leader for one in partitions.values()} == {1, 2, 3}
    victim = partitions[0].leader
    own[victim].kill()

    def have_moved() -> bool:
        now = admin.list_topics(timeout=SECONDS)
        known = now.topics["orders"].partitions.values()
        left = {1, 2, 3} - {victim}
        return set(now.brokers) == left and all(
            one.leader in left and set(one.isrs) == left and set(one.replicas) == {1, 2, 3}
            for one in known
        )

    wait_until(have_moved, SECONDS)
    own.start(victim)
    own.wait_in_sync("orders", 1, 2, 3)
    described = admin.describe_topics(confluent_kafka.TopicCollection(["orders"]))["orders"].result(
        SECONDS
    )
    assert all(sorted(node.id for node in one.isr) == [1, 2, 3] for one in described.partitions)
    assert sorted(one.id for one in admin.describe_cluster().result(SECONDS).nodes) == [1, 2, 3]


class Load:
    """A producer that continues while brokers die, and records the acknowledged values."""

    def __init__(self, brokers: ClusterBrokers, name: str, **config: Any) -> None:
        self.name = name
        self.acknowledged: list[bytes] = []
        self.failed: list[tuple[bytes, Any]] = []
        self.sent = 0
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": brokers.servers, "linger.ms": 1, "retry.backoff.ms": 20,
                "message.timeout.ms": int(SECONDS * 1000), "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200, "socket.timeout.ms": 5000,
                "request.timeout.ms": 3000, **config,
            }
        )  # fmt: skip
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_ended.wait(0.001):
            value = b"%d" % self.sent
            try:
                self._producer.produce(
                    self.name, value, partition=self.sent % 3, on_delivery=self._on_delivery
                )
                self.sent += 1
            except BufferError:
                pass
            self._producer.poll(0)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.failed.append((message.value(), error))

    def wait_for_more(self, count: int = 200) -> None:
        """Wait until some more records are acknowledged."""
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted, SECONDS)

    def end(self) -> None:
        """Send no more, and wait for all acknowledgements."""
        self._is_ended.set()
        self._thread.join()
        assert self._producer.flush(SECONDS) == 0


def test_leaders_die_under_load_and_nothing_is_lost_or_doubled(own: ClusterBrokers) -> None:
    """An idempotent producer continues by its own retries; each record is there once, in order."""
    create(own, "orders")
    load = Load(own, "orders", **{"acks": "all", "enable.idempotence": True})
    load.wait_for_more()
    for _ in range(4):
        victim = own.leader("orders", 0).id
        own[victim].kill()
        load.wait_for_more()
        own.start(victim)
        own.wait_in_sync("orders", 1, 2, 3)
    load.end()
    assert load.failed == []
    assert len(load.acknowledged) == load.sent
    for partition in range(3):
        found = [int(value) for value in read(own, "orders", partition)]
        assert found == list(range(partition, load.sent, 3))


def test_leaders_die_under_a_load_that_is_not_idempotent(own: ClusterBrokers) -> None:
    """With acks=all, no acknowledged record is lost; a retry may double a record."""
    create(own, "orders")
    load = Load(own, "orders", **{"acks": "all", "enable.idempotence": False})
    load.wait_for_more()
    for partition in (0, 1):
        victim = own.leader("orders", partition).id
        own[victim].kill()
        load.wait_for_more()
        own.start(victim)
        own.wait_in_sync("orders", 1, 2, 3)
    load.end()
    found = Counter(value for one in range(3) for value in read(own, "orders", one))
    assert set(load.acknowledged) <= found.keys()
    assert load.failed == []


def test_a_broker_leaves_in_order_under_load(own: ClusterBrokers) -> None:
    """Even with acks=1, the producer finds the next leader."""
    create(own, "orders")
    load = Load(own, "orders", acks="1")
    load.wait_for_more()
    victim = own.leader("orders", 0).id
    own[victim].stop()
    own.leader("orders", 0, other_than=victim)
    load.wait_for_more()
    load.end()
    assert load.failed == []


def test_a_consumer_follows_the_leader(own: ClusterBrokers) -> None:
    """A consumer that waits at a leader that dies continues at the next leader."""
    create(own, "orders", 1)
    producer = confluent_kafka.Producer({"bootstrap.servers": own.servers, "acks": "all"})
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": own.servers, "group.id": "unused", "enable.auto.commit": False,
            "fetch.wait.max.ms": 500, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200,
        }
    )  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
    found: list[bytes] = []

    def has_read(value: bytes) -> bool:
        messages = consumer.consume(100, 0.1)
        found.extend(one.value() for one in messages if not one.error())
        return value in found

    for value in (b"a", b"b", b"c"):
        producer.produce("orders", value)
        assert producer.flush(SECONDS) == 0
        wait_until(partial(has_read, value), SECONDS)
        victim = own.leader("orders").id
        own[victim].kill()
        own.start(victim)
        own.wait_in_sync("orders", 1, 2, 3)
    consumer.close()
    assert found == [b"a", b"b", b"c"]
