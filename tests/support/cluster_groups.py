"""Consumer groups of a cluster in this process: where they are, and what was committed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from broker.coordinator.internal_topic import partition_of
from broker.coordinator.offsets_topic import NAME
from cluster import Cluster
from support.places import fast_directory

SECONDS = 60.0  # also a crowded machine is faster
GROUP, TOPIC, PARTITIONS = "readers", "orders", 2
CONFIG = {
    "offsets_topic_num_partitions": 2, "group_min_session_timeout_ms": 1000,
    "offsets_commit_timeout_ms": 1000,
}  # fmt: skip
Places = dict[int, int]  # an offset by partition


@contextmanager
def group_cluster() -> Iterator[Cluster]:
    """Start three brokers with two log dirs each, and create a topic.

    Its replicas are on two brokers, but not on the one that coordinates the group if the first
    coordinator dies. So the test can cut this broker off, and only the group has to move.
    """
    with (
        fast_directory() as root,
        Cluster.start(3, 2, directory=root, config=CONFIG, session_seconds=1.5) as made,
    ):
        admin = AdminClient({"bootstrap.servers": made.bootstrap_servers})
        # The first question creates the topic of the groups. Each partition of it has an answer
        # only when its leader coordinates.
        for name in (GROUP, "a", "b", "c"):
            committed(made.bootstrap_servers, name)
        coordinator_of(made)
        view = made.partition(NAME, partition_of(GROUP, CONFIG["offsets_topic_num_partitions"]))
        assert view is not None
        first, _, third = view.replicas
        topic = NewTopic(
            TOPIC, PARTITIONS, replica_assignment=[[third, first]] * PARTITIONS,
            config={"min.insync.replicas": "1"},
        )  # fmt: skip
        admin.create_topics([topic])[TOPIC].result(SECONDS)
        yield made


def coordinator_of(cluster: Cluster, group: str = GROUP, other_than: int | None = None) -> int:
    """Wait until the partition of a group has a leader, and give it."""
    number = partition_of(group, CONFIG["offsets_topic_num_partitions"])
    return cluster.wait_for_leader(NAME, number, other_than=other_than)


def committed(servers: str, group: str = GROUP) -> Places:
    """Ask for the committed offsets of a group."""
    admin = AdminClient({"bootstrap.servers": servers})
    asked = confluent_kafka.ConsumerGroupTopicPartitions(group)
    (future,) = admin.list_consumer_group_offsets([asked]).values()
    return {one.partition: one.offset for one in future.result(SECONDS).topic_partitions}
