"""Test that consumers read from a replica in their own rack (KIP-392), without losses."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from broker.wire.error_codes import ErrorCode
from cluster import Cluster
from support.kafka_client import KafkaClient, batch_of, fetch_fields, values_in

RACKS = ("a", "b", "c")
AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
CONFIG = {
    "replica_selector_class": AWARE, "min_insync_replicas": 2, "default_replication_factor": 3,
}  # fmt: skip
TOPIC = "t"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.start(3, config=CONFIG, racks=RACKS) as running:
        with KafkaClient(running.bootstrap_servers) as client:
            client.create(TOPIC)
        running.wait_in_sync(TOPIC)
        leader, _ = leader_and_follower(running)
        deadline = time.monotonic() + 20
        with client_of(running, leader) as client:
            while client.produce(TOPIC, batch_of(b"first")).error_code:
                assert time.monotonic() < deadline, "the leader has not heard of its role"
        yield running


def client_of(cluster: Cluster, broker: int) -> KafkaClient:
    """Connect to one broker; all brokers run."""
    return KafkaClient(cluster.bootstrap_servers.split(",")[broker - 1])


def leader_and_follower(cluster: Cluster) -> tuple[int, int]:
    """Find the leader, and another in-sync replica."""
    view = cluster.partition(TOPIC)
    assert view is not None
    return view.leader, next(one for one in view.isr if one != view.leader)


def topic_id_of(client: KafkaClient) -> bytes:
    """Ask for the id of the topic."""
    (topic,) = client.call("Metadata", topics=None).topics
    return bytes(topic.topic_id)


def test_the_leader_names_a_replica_in_the_rack_of_the_client(cluster: Cluster) -> None:
    """Clients in the leader's rack, without a rack, or in an unknown rack read from the leader."""
    leader, follower = leader_and_follower(cluster)
    with client_of(cluster, leader) as client:
        topic_id = topic_id_of(client)
        client.produce(TOPIC, batch_of(b"x"), acks=-1)
        for rack, wanted in ((RACKS[follower - 1], follower), (RACKS[leader - 1], -1), ("", -1)):
            fields = fetch_fields({(topic_id, 0): 0})
            (topic,) = client.call("Fetch", **fields, rack_id=rack).responses
            (data,) = topic.partitions
            assert (data.error_code, data.preferred_read_replica) == (0, wanted), rack
            assert bool(data.records) is (wanted < 0)
        fields = fetch_fields({(topic_id, 0): 0})
        (topic,) = client.call("Fetch", **fields, rack_id="elsewhere").responses
        assert topic.partitions[0].records
        fields = fetch_fields({(topic_id, 0): 10**6})
        (topic,) = client.call("Fetch", **fields, rack_id=RACKS[follower - 1]).responses
        assert topic.partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_serves_clients_of_its_rack(cluster: Cluster) -> None:
    """It serves up to its high watermark; it refuses other clients, and old leader epochs."""
    leader, follower = leader_and_follower(cluster)
    with client_of(cluster, leader) as client:
        topic_id = topic_id_of(client)
        client.produce(TOPIC, batch_of(b"served by a follower"), acks=-1)
        end = client.fetch(TOPIC, 0).high_watermark
    rack = RACKS[follower - 1]
    with client_of(cluster, follower) as client:
        fields = fetch_fields({(topic_id, 0): end - 1}, max_wait_ms=10_000)
        (topic,) = client.call("Fetch", **fields, rack_id=rack).responses
        (data,) = topic.partitions
        assert (data.error_code, data.high_watermark) == (0, end)
        assert values_in(data.records) == [b"served by a follower"]
        for asked_rack, code in (("", 6), (RACKS[leader - 1], 6)):
            (topic,) = client.call("Fetch", **fields, rack_id=asked_rack).responses
            assert topic.partitions[0].error_code == code
        view = cluster.partition(TOPIC)
        assert view is not None
        for epoch, code in ((view.leader_epoch - 1, 74), (view.leader_epoch + 1, 75)):
            fields = fetch_fields({(topic_id, 0): 0}, current_leader_epoch=epoch)
            (topic,) = client.call("Fetch", **fields, rack_id=rack).responses
            assert topic.partitions[0].error_code == code
        fields = fetch_fields({(topic_id, 0): end + 5})
        (topic,) = client.call("Fetch", **fields, rack_id=rack).responses
        assert topic.partitions[0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE


def test_a_request_that_waits_at_a_follower_gets_new_records_soon(cluster: Cluster) -> None:
    """The follower wakes the request when its high watermark rises."""
    leader, follower = leader_and_follower(cluster)
    with client_of(cluster, leader) as producer, client_of(cluster, follower) as client:
        topic_id = topic_id_of(client)
        end = producer.fetch(TOPIC, 0).high_watermark
        fields = fetch_fields({(topic_id, 0): end}, max_wait_ms=20_000)
        began = time.monotonic()
        client.send("Fetch", **fields, rack_id=RACKS[follower - 1])
        producer.produce(TOPIC, batch_of(b"new"), acks=-1)
        (topic,) = client.receive("Fetch")[1].responses
        assert values_in(topic.partitions[0].records) == [b"new"]
        assert time.monotonic() - began < 10


def test_a_real_consumer_reads_from_its_rack_and_outlives_its_broker() -> None:
    """A consumer reads all records once, in order, while its replica's broker dies."""
    with Cluster.start(3, config=CONFIG, racks=RACKS) as cluster:
        with KafkaClient(cluster.bootstrap_servers) as client:
            client.create(TOPIC)
        cluster.wait_in_sync(TOPIC)
        _, follower = leader_and_follower(cluster)
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        producer = Producer({**servers, "enable.idempotence": True})
        sources: set[int] = set()  # the brokers from which the consumer has read

        def note(stats: str) -> None:
            for one in json.loads(stats)["topics"].values():
                sources.update(part["broker"] for part in one["partitions"].values())

        consumer = Consumer({
            **servers, "group.id": "g", "auto.offset.reset": "earliest",
            "client.rack": RACKS[follower - 1], "statistics.interval.ms": 50, "stats_cb": note,
        })  # fmt: skip
        consumer.subscribe([TOPIC])
        found: list[bytes] = []
        is_alive = True
        for number in range(200):
            producer.produce(TOPIC, b"%d" % number)
        assert producer.flush(20) == 0
        deadline = time.monotonic() + 40
        while len(found) < 300 and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append(message.value())
            if len(found) == 200 and is_alive and follower in sources:
                cluster.kill(follower)
                is_alive = False
                for number in range(200, 300):
                    producer.produce(TOPIC, b"%d" % number)
                assert producer.flush(20) == 0
        consumer.close()
        assert follower in sources, "the consumer did not read in its rack"
        assert found == [b"%d" % number for number in range(300)]


def test_racks_must_be_as_many_as_brokers() -> None:
    """With a wrong number of racks, no broker starts."""
    with pytest.raises(ValueError, match="2 racks for 3 brokers"):
        Cluster.start(3, racks=("a", "b"))
