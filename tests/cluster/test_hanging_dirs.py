"""Test that replicas leave and return by themselves if a log dir hangs for a moment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cluster import Cluster
from logstore import StoreEvent, StoreEventKind
from support.hanging import hang
from support.replica_nodes import wait_until

SECONDS = 60.0
PARTITIONS = 6


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster.start(brokers=3) as made:
        admin = AdminClient({"bootstrap.servers": made.bootstrap_servers})
        replicas = [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * (PARTITIONS // 3)
        topic = NewTopic("orders", PARTITIONS, replica_assignment=replicas)
        admin.create_topics([topic])["orders"].result(SECONDS)
        for number in range(PARTITIONS):
            made.wait_in_sync("orders", number)
        yield made


def test_replicas_come_back_after_a_hang(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """All replicas are in sync again, and have each record once, in order."""
    kinds: list[StoreEventKind] = []

    def heard(event: StoreEvent) -> None:
        kinds.append(event.kind)

    store = cluster._node(2).store
    store.add_listener(heard)
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True,
        "retry.backoff.ms": 20, "log_level": 0,
    }  # fmt: skip
    producer, sent = Producer(settings), 0

    def produce(count: int = 60) -> None:
        nonlocal sent
        for _ in range(count):
            producer.produce("orders", b"%d" % sent, partition=sent % PARTITIONS)
            sent += 1

    produce()
    assert producer.flush(SECONDS) == 0
    with hang(monkeypatch, cluster.log_dirs(2)[0], "pwrite", "pwritev"):
        produce()
        producer.poll(0)
        wait_until(lambda: StoreEventKind.LOG_DIR_SUSPECT in kinds, SECONDS)
    wait_until(lambda: StoreEventKind.LOG_DIR_ANSWERING in kinds, SECONDS)
    produce()
    assert producer.flush(SECONDS) == 0
    for number in range(PARTITIONS):
        cluster.wait_in_sync("orders", number, timeout=SECONDS)
    wait_until(lambda: all(has_all(cluster, one, sent) for one in (1, 2, 3)), SECONDS)


def has_all(cluster: Cluster, broker: int, sent: int) -> bool:
    store = cluster._node(broker).store
    return all(
        [int(record.value or b"") for record in store["orders", number]]
        == [*range(number, sent, PARTITIONS)]
        for number in range(PARTITIONS)
    )
