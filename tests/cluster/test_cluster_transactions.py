"""Transactions in a cluster: their coordinator moves, and each ends in the same way everywhere.

`LOGSTORE_TRANSACTION_KILLS` sets how often a broker is killed; `make kill-transactions` sets it.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import confluent_kafka
import pytest

from broker.coordinator.internal_topic import partition_of
from broker.transaction_coordinator.state_topic import TRANSACTION_STATE
from broker.wire import messages as m
from cluster import Cluster
from support.cluster_asking import coordinator_of, running, stable, until
from support.exactly_once import (
    CLIENTS,
    KILLS_KEY,
    Feeder,
    create_topics,
    judge,
    program_of,
    wait_for_outputs,
    worker,
)
from support.kafka_client import KafkaClient
from support.places import fast_directory
from support.transaction_requests import RawProducer, fetch_offset

KILLS = int(os.environ.get(KILLS_KEY, "1"))
STATES = 2
INPUTS = 100  # for each round
CONFIG = {
    "offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": STATES,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 100, "min_insync_replicas": 1,
    "default_replication_factor": 3,
}  # fmt: skip


@pytest.mark.timeout(240 + 20 * KILLS)
@pytest.mark.parametrize("client", CLIENTS)
def test_exactly_once_while_brokers_are_killed(client: str, tmp_path: Path) -> None:
    """Each input has exactly one committed output, and no transaction is split."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng, program = random.Random(seed), program_of(client, tmp_path)
    with (
        fast_directory() as root,
        Cluster.start(3, directory=root, config=CONFIG, session_seconds=1.5) as cluster,
    ):
        servers = cluster.bootstrap_servers
        create_topics(servers, 3, **{"min.insync.replicas": "2"})
        feeder = Feeder(servers, INPUTS)
        with worker(servers, "worker", seed, program) as running_worker:
            running_worker.wait_for_progress()
            for _ in range(KILLS):
                feeder.limit += INPUTS
                victim = coordinator_of(cluster, "worker")[0]
                broker = rng.choice([victim, 1, 2, 3])
                threading.Event().wait(rng.random() * 0.2)
                cluster.kill(broker)
                running_worker.wait_for_progress()
                cluster.restart(broker)
                cluster.wait_in_sync("outputs")
                running_worker.wait_for_progress()
            count = feeder.stop()
            wait_for_outputs(servers, count)
        print(client, judge(servers, count))


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_new_coordinator_continues(is_commit: bool) -> None:
    """The transaction that was open when its coordinator died is ended by its producer.

    The partitions and the group have other leaders, which ask the coordinator, and get markers.
    """
    with (
        fast_directory() as root,
        Cluster.start(3, directory=root, config=CONFIG, session_seconds=1.5) as cluster,
    ):
        with KafkaClient(cluster.bootstrap_servers) as client:
            client.create("t", 3)
        until(lambda: all(cluster.partition("t", number) for number in range(3)))
        leaders = {number: cluster.wait_for_leader("t", number) for number in range(3)}
        assert len(set(leaders.values())) == 3
        broker, address = coordinator_of(cluster, "tx")
        addresses = running(cluster)
        with KafkaClient(address) as client:
            producer = RawProducer(client, "tx").begin()
            assert producer.again(lambda: producer.add(*(("t", n) for n in range(3)))) == 0
        for number, leader in leaders.items():
            with KafkaClient(addresses[leader]) as client:
                producer.client = client
                assert producer.produce("t", b"x", partition=number) == 0
                producer.name = "other"
                assert producer.produce("t", b"y", partition=number) == 0  # it is open here
                producer.name = "tx"
        group = next(
            name for name in (f"g{n}" for n in range(100))
            if coordinator_of(cluster, name, 0)[0] != broker
        )  # fmt: skip
        with KafkaClient(address) as client:
            producer.client = client
            assert producer.again(lambda: producer.add_offsets(group)) == 0
        with KafkaClient(coordinator_of(cluster, group, 0)[1]) as client:
            producer.client = client
            assert producer.again(lambda: producer.commit_offset(group, "t", 5)) == 0
            assert fetch_offset(client, group, "t", stable=True) == (88, -1)
        cluster.kill(broker)
        number = partition_of("tx", STATES)
        cluster.wait_for_leader(TRANSACTION_STATE.name, number, other_than=broker)
        until(lambda: coordinator_of(cluster, "tx")[0] != broker)
        with KafkaClient(coordinator_of(cluster, "tx")[1]) as client:
            producer.client = client
            assert producer.again(lambda: producer.end(commit=is_commit)) == 0
            producer.wait_for("CompleteCommit" if is_commit else "CompleteAbort")
        for number in range(3):
            leader = cluster.wait_for_leader("t", number, other_than=broker)
            with KafkaClient(running(cluster)[leader]) as client:
                until(lambda: stable(client, number) == 3)  # noqa: B023 - called at once
        with KafkaClient(coordinator_of(cluster, group, 0)[1]) as client:
            expected = (0, 5 if is_commit else -1)
            until(lambda: fetch_offset(client, group, "t", stable=True) == expected)


def test_a_broker_that_does_not_lead_refuses() -> None:
    """Without the coordinator's role, a broker returns 16, whichever broker leads."""
    with (
        fast_directory() as root,
        Cluster.start(2, directory=root, config=CONFIG) as cluster,
    ):
        broker, address = coordinator_of(cluster, "tx")
        with KafkaClient(address) as client:
            producer = RawProducer(client, "tx").begin()
        other = next(where for one, where in running(cluster).items() if one != broker)
        with KafkaClient(other) as client:
            producer.client = client
            assert producer.init() == 16 and producer.end(commit=True) == 16
            assert producer.state().error_code == 16
            answer = client.call("ListTransactions", duration_filter=-1)
            assert answer.error_code == 0 and not answer.transaction_states


def test_regression_each_replica_names_the_producers() -> None:
    """As in Kafka: kafka-transactions find-hanging asks a broker for all its replicas."""
    with fast_directory() as root, Cluster.start(3, directory=root, config=CONFIG) as cluster:
        servers = cluster.bootstrap_servers.split(",")
        with KafkaClient(servers[0]) as client:
            client.create("t", 1)
        cluster.wait_for_leader("t")
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": ",".join(servers), "transactional.id": "tx"}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("t", b"value")
        assert producer.flush(60) == 0
        until(lambda: [open_offsets_at(address) for address in servers] == [[0]] * 3)
        producer.abort_transaction(60)


def open_offsets_at(address: str) -> list[int]:
    """Ask a broker where the open transactions begin, for each producer that it knows."""
    topic = m.DescribeProducersRequest.TopicRequest("t", [0])
    with KafkaClient(address) as client:
        (told,) = client.call("DescribeProducers", topics=[topic]).topics[0].partitions
    assert told.error_code == 0, told
    return [one.current_txn_start_offset for one in told.active_producers]
