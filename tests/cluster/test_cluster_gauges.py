"""Test that Prometheus gets a cluster's values under Kafka's names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.cluster_brokers import ClusterBrokers, Running
from support.cluster_questions import create
from support.places import fast_directory
from support.replica_nodes import wait_until

REPLICAS, CONTROLLER = "kafka_server_replicamanager_", "kafka_controller_kafkacontroller_"


@pytest.fixture
def brokers() -> Iterator[ClusterBrokers]:
    with (
        fast_directory() as root,
        ClusterBrokers(root, default_replication_factor=3, min_insync_replicas=2) as made,
    ):
        yield made


def gauges(one: Running) -> dict[str, float]:
    return {gauge.name: gauge.value for gauge in one.broker.broker.gauges()}


def total(brokers: ClusterBrokers, name: str) -> float:
    """Sum a gauge over the running brokers, as a dashboard does."""
    return sum(gauges(one)[name] for one in brokers.up())


def test_a_broker_dies(brokers: ClusterBrokers) -> None:
    """Its partitions are under-replicated; two of three in the ISR are exactly the minimum."""
    create(brokers, "orders", 6)
    assert total(brokers, f"{CONTROLLER}activecontrollercount") == 1
    assert total(brokers, f"{CONTROLLER}globaltopiccount") == 1
    assert total(brokers, f"{CONTROLLER}globalpartitioncount") == 6
    wait_until(lambda: total(brokers, f"{REPLICAS}partitioncount") == 18)
    wait_until(lambda: total(brokers, f"{REPLICAS}leadercount") == 6)
    wait_until(lambda: total(brokers, f"{REPLICAS}underreplicatedpartitions") == 0)
    for name in ("underminisrpartitioncount", "atminisrpartitioncount", "offlinereplicacount"):
        assert total(brokers, REPLICAS + name) == 0
    assert total(brokers, "logstore_cluster_session") == 3
    assert total(brokers, "logstore_cluster_alarms") == 0
    brokers.up()[0].kill()
    wait_until(lambda: total(brokers, f"{REPLICAS}leadercount") == 6)
    wait_until(lambda: total(brokers, f"{REPLICAS}underreplicatedpartitions") == 6)
    assert total(brokers, f"{REPLICAS}atminisrpartitioncount") == 6
    wait_until(lambda: total(brokers, f"{CONTROLLER}activecontrollercount") == 1)
    wait_until(lambda: total(brokers, f"{CONTROLLER}preferredreplicaimbalancecount") == 2)
    brokers.up()[0].kill()
    wait_until(lambda: total(brokers, f"{REPLICAS}underminisrpartitioncount") == 6)
