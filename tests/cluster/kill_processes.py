"""Brokers of a cluster as processes of their own, over a real ZooKeeper, with a real client.

`LOGSTORE_CLUSTER_KILLS` sets how often brokers are killed; `make kill-cluster` does it 100 times.
"""

from __future__ import annotations

import random
import threading

import pytest

from cluster import znodes
from cluster.zookeeper import ZooKeeperStore
from logstore import LogStore
from support.cluster_processes import KILLS, SECONDS, BrokerProcesses, Client, broker_processes
from support.places import fast_directory
from support.replica_nodes import wait_until
from support.zookeeper_process import ZooKeeperProcess

BROKERS = (1, 2, 3)
SESSION_MS = 3_000
PARTITIONS = 3


def kill_some(brokers: BrokerProcesses, client: Client, rng: random.Random) -> None:
    """Kill one broker, two, or all at about the same time, and start them again."""
    dying = rng.sample(BROKERS, rng.choice((1, 1, 2, 3)))
    for broker in dying:
        threading.Event().wait(rng.random() * 0.1)
        brokers.kill(broker)
    if len(dying) == 1:
        client.wait_for_progress()
    brokers.start(*dying)
    client.wait_for_progress()
    client.wait_in_sync(len(BROKERS))


def stop_zookeeper(server: ZooKeeperProcess, client: Client) -> None:
    """Stop ZooKeeper for longer than a session lasts; the producer continues."""
    server.pause()
    try:
        threading.Event().wait(SESSION_MS / 1000 * 1.3)
        client.wait_for_progress()
    finally:
        server.resume()


def values_of(store: LogStore, topic: str, partition: int) -> list[int]:
    """Read all records of a replica."""
    return [int(record.value or b"-1") for record in store[topic, partition]]


@pytest.mark.timeout(180 + 15 * KILLS)
def test_a_cluster_of_processes(zookeeper_store: ZooKeeperStore, server: ZooKeeperProcess) -> None:
    """No acknowledged record is lost, doubled or out of order, and all replicas have the same.

    Brokers are killed, ZooKeeper is away for longer than a session, and brokers stop in order.
    """
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    hosts = server.hosts + zookeeper_store.chroot
    with fast_directory() as base, broker_processes(base, hosts, BROKERS, SESSION_MS) as brokers:
        client = Client(brokers.servers, "orders", PARTITIONS)
        client.create("orders", PARTITIONS)
        client.wait_in_sync(len(BROKERS))
        client.start()
        client.wait_for_progress()
        for _ in range(KILLS):
            kill_some(brokers, client, rng)
        stop_zookeeper(server, client)
        wait_until(lambda: client.creates("later"), SECONDS)  # with three replicas
        with zookeeper_store.connect() as session:
            wait_until(lambda: session.children(znodes.BROKERS) == ["1", "2", "3"], SECONDS)
        client.wait_for_progress()
        brokers.stop(1)
        client.wait_for_progress()
        brokers.start(1)
        client.wait_in_sync(len(BROKERS))
        counts = client.finish()
        client.wait_in_sync(len(BROKERS))
        for broker in BROKERS:
            assert "stopping: answering the running requests" in brokers.stop(broker)
        for broker in BROKERS:
            with LogStore.open(brokers.dirs(broker)) as store:
                for partition, count in enumerate(counts):
                    found = values_of(store, "orders", partition)
                    assert found == list(range(count)), f"broker {broker}, seed {seed}"
                assert store.describe_dirs().log_dirs
    assert min(counts) > 100
