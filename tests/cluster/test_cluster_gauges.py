"""Test that Prometheus gets a cluster's values under Kafka's names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.pure.exchange import Opened
from cluster.run import replica_facts
from cluster.view import PartitionView
from logstore import Log, LogStore, ReplicaOfflineError
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


def test_regression_a_broker_starts_although_one_replica_cannot_be_read(
    brokers: ClusterBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only this replica is offline, for all brokers; the other replicas of the broker serve."""
    create(brokers, "orders", 6)
    brokers.wait_in_sync("orders", 1, 2, 3)
    brokers[2].stop()
    real = replica_facts.describe

    def describe(store: LogStore, log: Log) -> Opened:
        if log.log_dir in brokers[2].store.log_dirs and log.partition == 4:
            raise RuntimeError("a bug")
        return real(store, log)

    def partition(number: int) -> PartitionView:
        return brokers[1].broker.member.metadata.view.topics["orders"].partitions[number]

    with monkeypatch.context() as patch:
        patch.setattr(replica_facts, "describe", describe)
        brokers.start(2)
        wait_until(lambda: all(2 in partition(number).isr for number in (0, 1, 2, 3, 5)))
        wait_until(lambda: partition(4).offline == (2,))
        assert gauges(brokers[2])[f"{REPLICAS}offlinereplicacount"] == 1
        assert gauges(brokers[2])["logstore_cluster_alarms"] == 1
        leadership = brokers[2].broker.broker._services.leadership
        assert leadership.facts_of("orders", 4).unread_reason == "RuntimeError: a bug"
        with pytest.raises(ReplicaOfflineError, match="RuntimeError: a bug"):
            leadership.log("orders", 4)
    brokers[2].kill()
    brokers.start(2)
    brokers.wait_in_sync("orders", 1, 2, 3)
    assert gauges(brokers[2])[f"{REPLICAS}offlinereplicacount"] == 0
