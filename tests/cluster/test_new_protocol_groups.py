"""Test that groups of the new protocol continue while their coordinator dies."""

from __future__ import annotations

import os
from collections import Counter

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from broker.coordinator.internal_topic import partition_of
from broker.coordinator.offsets_topic import NAME
from cluster import Cluster
from support.cluster_groups import CONFIG, GROUP, coordinator_of
from support.kafka_client import KafkaClient
from support.new_protocol_clients import FAST, Reader, wait_until
from support.places import fast_directory

KILLS = int(os.environ.get("LOGSTORE_CONSUMER_GROUP_COORDINATOR_KILLS", "1"))
COUNT, PARTITIONS = 400, 4
FAST_CLIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


def epochs(address: str) -> dict[str, int]:
    """Return the epoch of each member, and of the group."""
    found: dict[str, int] = {}

    def is_known() -> bool:
        with KafkaClient(address) as client:
            row = client.call("ConsumerGroupDescribe", group_ids=[GROUP]).groups[0]
        found.clear()
        found.update({one.member_id: one.member_epoch for one in row.members})
        found[""] = row.group_epoch
        return bool(row.error_code == 0)

    wait_until(is_known, "the coordinator knows the group")
    return found


def fill(servers: str, numbers: range) -> None:
    """Append numbers; all in-sync replicas acknowledge each of them."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "acks": "all", "log_level": 0, **FAST_CLIENT}
    )
    for number in numbers:
        producer.produce("t", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60.0) == 0


@pytest.mark.timeout(180 + 60 * KILLS)
def test_members_keep_their_epochs_when_the_coordinator_dies() -> None:
    """The next coordinator reads the group; each record is read, and no partition moves."""
    config = CONFIG | FAST | {"group_consumer_session_timeout_ms": 20_000}
    with (
        fast_directory() as root,
        Cluster.start(3, directory=root, config=config, session_seconds=1.5) as cluster,
    ):
        servers, count = cluster.bootstrap_servers, 0
        addresses = dict(zip(cluster.broker_ids, servers.split(","), strict=True))
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        topic = confluent_kafka.admin.NewTopic("t", PARTITIONS, 3)
        admin.create_topics([topic])["t"].result(60.0)
        readers = [Reader(servers, GROUP, ["t"]) for _ in "12"]
        wait_until(lambda: all(len(one.share) == 2 for one in readers), "a share each")
        shares = [one.share for one in readers]
        for _ in range(KILLS):
            victim = coordinator_of(cluster)
            before = epochs(addresses[victim])
            cluster.kill(victim)
            new = coordinator_of(cluster, other_than=victim)
            fill(servers, range(count, count + COUNT))
            count += COUNT
            wait_until(lambda: len(read(readers)) >= count, "all records")  # noqa: B023
            assert epochs(addresses[new]) == before
            assert [one.share for one in readers] == shares
            cluster.restart(victim)
            cluster.wait_in_sync(NAME, partition_of(GROUP, CONFIG["offsets_topic_num_partitions"]))
        for one in readers:
            one.close()
    assert read(readers) == Counter(range(count))


def read(readers: list[Reader]) -> Counter[int]:
    """Count how often each number was read."""
    return Counter(value for one in readers for _, value in one.read)
