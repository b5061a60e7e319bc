"""Test that consumer groups continue at their offsets while coordinators die."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from broker.coordinator.internal_topic import partition_of
from broker.coordinator.offsets_topic import NAME
from cluster import Cluster
from support.cluster_groups import (
    CONFIG,
    GROUP,
    PARTITIONS,
    SECONDS,
    TOPIC,
    Places,
    committed,
    coordinator_of,
    group_cluster,
)
from support.replica_nodes import wait_until

FAST = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three brokers with two log dirs each, and a topic."""
    with group_cluster() as made:
        yield made


class ConfluentMember:
    """A consumer of confluent-kafka."""

    def __init__(self, servers: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers, "group.id": GROUP, "enable.auto.commit": False,
                "auto.offset.reset": "error", "session.timeout.ms": 3000,
                "heartbeat.interval.ms": 200, "topic.metadata.refresh.interval.ms": 500,
                "fetch.wait.max.ms": 100, **FAST,
            }
        )  # fmt: skip
        self._consumer.subscribe([TOPIC])

    def poll(self) -> list[tuple[int, int]]:
        messages = self._consumer.consume(100, 0.05)
        return [(one.partition(), one.offset()) for one in messages if not one.error()]

    def commit(self, places: Places) -> bool:
        offsets = [TopicPartition(TOPIC, number, place) for number, place in places.items()]
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False)
        except confluent_kafka.KafkaException:
            return False
        return all(one.error is None for one in done or ())

    def close(self) -> None:
        self._consumer.close()


class Work:
    """A producer and two members of a group, which go on while brokers die.

    Attributes:
        read: the offsets that were read, by partition.
        acknowledged: the largest committed offset that was acknowledged, by partition.
        faults: what must never happen.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, servers = cluster, cluster.bootstrap_servers
        self.read: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.acknowledged: Places = dict.fromkeys(range(PARTITIONS), 0)
        self.faults: list[str] = []
        self.sent = 0
        self._lock = threading.Lock()
        self._stops_sending, self._stops_reading = threading.Event(), threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers, "acks": "all", "enable.idempotence": True,
                "linger.ms": 1, "request.timeout.ms": 2000, "socket.timeout.ms": 3000, **FAST,
            }
        )  # fmt: skip
        admin = AdminClient({"bootstrap.servers": servers})
        start = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
        wanted = confluent_kafka.ConsumerGroupTopicPartitions(GROUP, start)
        (done,) = admin.alter_consumer_group_offsets([wanted]).values()
        assert all(one.error is None for one in done.result(SECONDS).topic_partitions)
        self._threads = [threading.Thread(target=self._produce)]
        for _ in range(2):
            self._threads.append(
                threading.Thread(target=self._consume, args=(ConfluentMember(servers),))
            )
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        while not self._stops_sending.wait(0.005):
            self._producer.produce(TOPIC, b"%d" % self.sent, partition=self.sent % PARTITIONS)
            self.sent += 1
            self._producer.poll(0)

    def _consume(self, member: ConfluentMember) -> None:
        try:
            while not self._stops_reading.is_set():
                places: Places = {}
                for number, offset in member.poll():
                    with self._lock:
                        self.read[number].add(offset)
                    places[number] = offset + 1
                if places and member.commit(places):
                    with self._lock:
                        self._take(places)
        except Exception as error:  # noqa: BLE001 - the test reports it
            self.faults.append(f"{type(member).__name__} ended: {error!r}")
        finally:
            member.close()

    def _take(self, places: Places) -> None:
        for number, place in places.items():
            if place < self.acknowledged[number]:
                self.faults.append(
                    f"{place} was read again after {self.acknowledged} was committed"
                )
            self.acknowledged[number] = max(place, self.acknowledged[number])

    def wait_for_commits(self, count: int = 20) -> None:
        """Wait until the members have committed more records of each partition."""
        with self._lock:
            wanted = {number: place + count for number, place in self.acknowledged.items()}
        wait_until(
            lambda: all(self.acknowledged[one] >= place for one, place in wanted.items()), SECONDS
        )
        assert not self.faults

    def check_offsets(self) -> None:
        """Check that each reachable broker finds all commits."""
        for servers in self._cluster.bootstrap_servers.split(","):
            with self._lock:
                before = dict(self.acknowledged)
            after = committed(servers)
            assert all(after[number] >= place for number, place in before.items()), (before, after)

    def end(self) -> None:
        """Read all records; each was read, and the last commit is the end."""
        self._stops_sending.set()
        self._threads[0].join(SECONDS)
        assert self._producer.flush(SECONDS) == 0
        ends = {number: len(range(number, self.sent, PARTITIONS)) for number in range(PARTITIONS)}
        wait_until(lambda: self.acknowledged == ends or bool(self.faults), SECONDS)
        self.stop()
        assert not self.faults
        assert [sorted(one) for one in self.read] == [[*range(end)] for end in ends.values()]
        assert committed(self._cluster.bootstrap_servers) == ends

    def stop(self) -> None:
        """End all threads."""
        self._stops_sending.set()
        self._stops_reading.set()
        for thread in self._threads:
            thread.join(SECONDS)


def dir_of_group(cluster: Cluster, broker: int) -> int:
    """Find the log dir in which a broker has the group's partition."""
    name = f"{NAME}-{partition_of(GROUP, CONFIG['offsets_topic_num_partitions'])}"
    found = [os.path.isdir(os.path.join(one, name)) for one in cluster.log_dirs(broker)]
    return found.index(True)


def test_a_group_goes_on_after_its_coordinator_died(cluster: Cluster) -> None:
    """After a kill, a cut, or a failed log dir, no commit is lost and no record is skipped."""
    number = partition_of(GROUP, CONFIG["offsets_topic_num_partitions"])
    work = Work(cluster)
    try:
        work.wait_for_commits()

        victim = coordinator_of(cluster)
        cluster.kill(victim)
        work.wait_for_commits()
        work.check_offsets()
        cluster.restart(victim)
        cluster.wait_in_sync(NAME, number)

        victim = coordinator_of(cluster)
        cluster.cut(victim)
        coordinator_of(cluster, other_than=victim)
        work.wait_for_commits()
        work.check_offsets()
        cluster.heal()
        cluster.wait_in_sync(NAME, number)

        victim = coordinator_of(cluster)
        failed = dir_of_group(cluster, victim)
        cluster.fail_dir(victim, failed)
        coordinator_of(cluster, other_than=victim)
        work.wait_for_commits()
        work.check_offsets()
        cluster.return_dir(victim, failed)
        work.end()
    finally:
        work.stop()
