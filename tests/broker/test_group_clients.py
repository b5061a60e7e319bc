"""Groups of consumers, as Kafka's clients run them: shares, commits, deaths, restarts."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from broker import Broker
from support.kafka_client import KafkaClient

SECONDS = 30.0
PARTITIONS, COUNT = 4, 400


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.start(config={"group_min_session_timeout_ms": 500}) as running:
        yield running


@pytest.fixture(scope="module")
def servers(broker: Broker) -> str:
    return broker.bootstrap_servers


def filled(servers: str, topic: str, start: int = 0) -> None:
    """Make a topic with records in all partitions, or add more records."""
    if not start:
        with KafkaClient(servers) as client:
            client.create(topic, PARTITIONS)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for number in range(start, start + COUNT):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Call a condition, which polls, until it holds."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what


class Confluent:
    """A consumer of librdkafka, with its assignment and the records that it has read."""

    def __init__(self, servers: str, group: str, topic: str, **config: Any) -> None:
        self.read: list[int] = []
        self.changes: list[tuple[str, list[int]]] = []
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest",
                "session.timeout.ms": 2000, "heartbeat.interval.ms": 200,
            } | {key.replace("_", "."): value for key, value in config.items()}
        )  # fmt: skip

        def note(what: str) -> Callable[[Any, Any], None]:
            return lambda _, parts: self.changes.append((what, [one.partition for one in parts]))

        self.consumer.subscribe([topic], on_assign=note("assign"), on_revoke=note("revoke"))

    def poll(self) -> bool:
        """Read available records; return False, so that the caller can add `or` and a condition."""
        for message in self.consumer.consume(500, 0.05):
            assert message.error() is None
            self.read.append(int(message.value()))
        return False

    @property
    def share(self) -> list[int]:
        """The partitions of the consumer."""
        return sorted(part.partition for part in self.consumer.assignment())


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_confluent_consumers_share_a_topic(servers: str, strategy: str) -> None:
    """Each partition has one reader.

    When one consumer leaves, the other continues at its commits.
    """
    topic = f"confluent-{strategy}"
    filled(servers, topic)
    one, two = (
        Confluent(servers, topic, topic, partition_assignment_strategy=strategy) for _ in "12"
    )

    def is_shared() -> bool:
        one.poll()
        two.poll()
        return sorted(one.share + two.share) == [0, 1, 2, 3] and len(one.share) == 2

    wait_until(is_shared, "a share each")
    wait_until(lambda: is_shared() and len({*one.read, *two.read}) == COUNT, "all records")
    two.consumer.close()  # which commits
    wait_until(lambda: one.poll() or one.share == [0, 1, 2, 3], "all partitions")
    one.read.clear()
    filled(servers, topic, COUNT)
    wait_until(lambda: one.poll() or len(one.read) >= COUNT, "the further records")
    assert Counter(one.read) == Counter(range(COUNT, 2 * COUNT))
    one.consumer.close()


def test_a_static_member_restarts_without_a_rebalance(servers: str) -> None:
    """The other member keeps its share without a rebalance; the old process is fenced."""
    topic = "static"
    filled(servers, topic)
    one = Confluent(servers, topic, topic, group_instance_id="one", session_timeout_ms=10_000)
    two = Confluent(servers, topic, topic, group_instance_id="two", session_timeout_ms=10_000)

    def is_shared() -> bool:
        one.poll()
        two.poll()
        return len(one.share) == len(two.share) == 2

    wait_until(is_shared, "a share each")
    share, changes = two.share, len(one.changes)
    two.consumer.close()  # a static member does not leave
    again = Confluent(servers, topic, topic, group_instance_id="two", session_timeout_ms=10_000)
    wait_until(lambda: again.poll() or one.poll() or len(again.share) == 2, "its share again")
    assert again.share == share and len(one.changes) == changes
    again.consumer.close()
    one.consumer.close()


def test_a_consumer_that_is_killed_loses_its_share(servers: str, tmp_path: Path) -> None:
    """After its session timeout, the killed consumer's share moves, and no record is missing."""
    topic = "killed"
    filled(servers, topic)
    program = f"""
        import confluent_kafka
        consumer = confluent_kafka.Consumer({{
            "bootstrap.servers": "{servers}", "group.id": "{topic}", "session.timeout.ms": 1000,
            "auto.offset.reset": "earliest", "heartbeat.interval.ms": 100,
            "enable.auto.commit": False,
        }})
        consumer.subscribe(["{topic}"])
        while not consumer.assignment():
            consumer.poll(0.1)
        print("assigned", flush=True)
        while True:
            consumer.poll(0.1)
    """
    words = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "assigned\n"
        one = Confluent(servers, topic, topic)
        wait_until(lambda: one.poll() or len(one.share) == 2, "a share")
        victim.send_signal(signal.SIGKILL)
        wait_until(lambda: one.poll() or len(set(one.read)) == COUNT, "all records")
    assert one.share == [0, 1, 2, 3]
    one.consumer.close()


def test_aiokafka(servers: str) -> None:
    """Two consumers share a topic; a third consumer continues at their commits."""
    topic = "aiokafka-group"
    filled(servers, topic)

    async def consumer() -> Any:
        made = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest",
            heartbeat_interval_ms=200, enable_auto_commit=False,
        )  # fmt: skip
        await made.start()
        return made

    async def run() -> None:
        one = await consumer()
        two = await consumer()
        found: list[int] = []
        async with asyncio.timeout(SECONDS):
            while len(set(found)) < COUNT or len(one.assignment()) != 2:
                for reader in (one, two):
                    for batch in (await reader.getmany(timeout_ms=50)).values():
                        found += [int(record.value) for record in batch]
                        await reader.commit()
        assert sorted(part.partition for part in one.assignment() | two.assignment()) == [
            0,
            1,
            2,
            3,
        ]
        await one.stop()
        await two.stop()
        filled(servers, topic, COUNT)
        three, more = await consumer(), set[int]()
        async with asyncio.timeout(SECONDS):
            while len(more) < COUNT:
                for batch in (await three.getmany(timeout_ms=50)).values():
                    more |= {int(record.value) for record in batch}
        assert more == set(range(COUNT, 2 * COUNT))
        await three.stop()

    asyncio.run(run())


@pytest.mark.filterwarnings(r"ignore:(read|open)_text is deprecated:DeprecationWarning")
def test_kafka_python(servers: str) -> None:
    """Two consumers share a topic; their group's offsets are listed, and the group is deleted."""
    import kafka  # it warns while it is imported

    topic = "kafka-python-group"
    filled(servers, topic)

    shares, found = dict[str, int](), set[int]()
    shared, committed = threading.Event(), threading.Barrier(2)

    def consume(name: str) -> None:
        """Read until both have a share; it joins no sooner than it knows the topic's partitions.

        Else this client may stay without a share for ever: a poll that ends in the middle of
        a join leaves it without heartbeats.
        """
        with contextlib.closing(
            kafka.KafkaConsumer(
                topic, bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest",
                heartbeat_interval_ms=200, session_timeout_ms=2000, enable_auto_commit=False,
            )
        ) as reader:  # fmt: skip
            wait_until(lambda: bool(reader.partitions_for_topic(topic)), "the topic's partitions")
            while not shared.is_set():
                for batch in reader.poll(timeout_ms=500).values():
                    found.update(int(record.value) for record in batch)
                shares[name] = len(reader.assignment())
            reader.commit()
            committed.wait(SECONDS)  # as a member that leaves starts a rebalance

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(consume, name) for name in ("one", "two")]
        try:
            wait_until(
                lambda: shared.wait(0.01) or ([*shares.values()] == [2, 2] and len(found) == COUNT),
                "all records, and a share each",
            )
        finally:
            shared.set()
    for reader in readers:
        reader.result()
    with contextlib.closing(kafka.KafkaAdminClient(bootstrap_servers=servers)) as admin:
        offsets = admin.list_group_offsets(topic)
        offsets = offsets.get(topic, offsets)
        assert sum(one.offset for one in offsets.values()) == COUNT
        assert admin.delete_groups([topic])


def test_groups_go_on_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    """After a restart of the broker, a consumer keeps its share and position."""
    with Broker.start(tmp_path) as broker:
        servers = broker.bootstrap_servers
        filled(servers, "restart")
        name, long = "restart", {"session_timeout_ms": 10_000, "enable_auto_commit": False}
        consumer = Confluent(servers, name, name, **long)
        wait_until(lambda: consumer.poll() or len(consumer.read) == COUNT, "all records")
        consumer.consumer.commit(asynchronous=False)
    with Broker.start(tmp_path, config={"listeners": f"PLAINTEXT://{servers}"}) as broker:
        filled(servers, "restart", COUNT)
        wait_until(lambda: consumer.poll() or len(consumer.read) >= 2 * COUNT, "the new records")
        assert Counter(consumer.read) == Counter(range(2 * COUNT))
        assert [what for what, _ in consumer.changes] == ["assign"]
        consumer.consumer.close()
