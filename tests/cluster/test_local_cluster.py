"""Test a cluster in this process, as users' tests see it: clients, faults, and its end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import cluster as package
from cluster import Cluster
from cluster.errors import ClusterTimeoutError
from support.places import environment, fast_directory


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with fast_directory() as root, Cluster.start(3, 2, directory=root) as made:
        yield made


def create(cluster: Cluster, name: str, partitions: int = 1, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    config = {key.replace("_", "."): value for key, value in settings.items()}
    topic = NewTopic(name, partitions, 3, config=config)
    admin.create_topics([topic])[name].result(20)


def produce(cluster: Cluster, name: str, *values: bytes) -> None:
    """Produce with acks=all; the client's own retries hide faults."""
    refused: list[str] = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True}
    )
    for value in values:
        producer.produce(
            name, value, on_delivery=lambda error, _: refused.append(str(error)) if error else None
        )
    assert producer.flush(30) == 0
    assert refused == []


def consume(cluster: Cluster, name: str, count: int) -> list[bytes]:
    from confluent_kafka import TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g",
         "enable.auto.commit": False}
    )  # fmt: skip
    try:
        consumer.assign([TopicPartition(name, 0, 0)])
        found: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(count, 0.5):
                if message.error() is None:
                    found.append(message.value())
        return found
    finally:
        consumer.close()


def test_faults_lose_nothing(cluster: Cluster) -> None:
    """A death, a cut and a failed log dir come one after another, with records in between."""
    create(cluster, "orders")
    written = [b"v%d" % number for number in range(100)]
    produce(cluster, "orders", *written)
    first = cluster.wait_for_leader("orders")
    cluster.kill(first)
    second = cluster.wait_for_leader("orders", other_than=first)
    produce(cluster, "orders", b"after a death")
    cluster.restart(first)
    cluster.wait_in_sync("orders")
    cluster.cut(second)
    third = cluster.wait_for_leader("orders", other_than=second)
    assert third != second
    produce(cluster, "orders", b"after a cut")
    cluster.heal()
    cluster.wait_in_sync("orders")
    failed = cluster.wait_for_leader("orders")
    cluster.fail_dir(failed, 0)
    cluster.fail_dir(failed, 1)
    cluster.wait_for_leader("orders", other_than=failed)
    produce(cluster, "orders", b"after a failed disk")
    cluster.return_dir(failed, 0)
    cluster.return_dir(failed, 1)
    cluster.wait_in_sync("orders")
    expected = [*written, b"after a death", b"after a cut", b"after a failed disk"]
    assert consume(cluster, "orders", len(expected)) == expected


def test_a_broker_that_stops_in_order_comes_back(cluster: Cluster) -> None:
    """It returns at the same address; a broker that is down is not among the servers."""
    create(cluster, "orders", 3)
    before = cluster.bootstrap_servers
    cluster.stop(2)
    assert len(cluster.bootstrap_servers.split(",")) == 2
    produce(cluster, "orders", b"without it")
    cluster.restart(2)
    assert cluster.bootstrap_servers == before
    for partition in range(3):
        cluster.wait_in_sync("orders", partition)
    with pytest.raises(RuntimeError, match="broker 3 is down"):
        cluster.kill(3)
        cluster.fail_dir(3, 0)


def test_wrong_arguments(cluster: Cluster) -> None:
    """Wrong arguments are refused at once, and the error has the allowed values."""
    for wrong in ({"brokers": 0}, {"log_dirs": 0}, {"brokers": True}):
        with pytest.raises(ValueError, match="must be a positive integer"):
            Cluster.start(**wrong)
    with pytest.raises(ValueError, match="the brokers are"):
        cluster.kill(4)
    with pytest.raises(ClusterTimeoutError, match="no-such-topic-0 has no leader"):
        cluster.wait_for_leader("no-such-topic", timeout=0.05)
    with pytest.raises(AttributeError, match="has no attribute 'Clusters'"):
        getattr(package, "Clusters")  # noqa: B009 - mypy knows that it is not there


def test_the_plugin_gives_a_cluster(tmp_path: Path) -> None:
    """The fixture alone gives a user's test three brokers."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["cluster.pytest_plugin"]\n')
    (tmp_path / "test_users.py").write_text(
        "def test_it(kafka_cluster):\n"
        "    assert len(kafka_cluster.bootstrap_servers.split(',')) == 3\n"
        "    kafka_cluster.kill(1)\n"
        "    assert len(kafka_cluster.bootstrap_servers.split(',')) == 2\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_users.py"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment(), check=False, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout + ran.stderr


def test_it_starts_fast_and_leaves_nothing() -> None:
    """Three brokers with two log dirs each run in a separate process."""
    program = (
        "import time, json\n"
        "began = time.monotonic()\n"
        "from cluster import Cluster\n"
        "with Cluster.start(brokers=3, log_dirs=2) as cluster:\n"
        "    took = time.monotonic() - began\n"
        "    place = str(cluster.directory)\n"
        "print(json.dumps([took, place]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        env=environment(),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    took, place = json.loads(done.stdout)
    print(f"a cluster of three brokers starts in {took:.2f} s")
    assert took < 20
    assert not Path(place).exists()
