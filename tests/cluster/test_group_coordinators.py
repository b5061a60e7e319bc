"""Test that any broker names a group's coordinator, and that only that one answers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from broker.catalog.leadership import Node, NotServedError
from broker.coordinator.offsets_topic import NAME
from broker.listener_config import Endpoint
from broker.wire import messages as m
from broker.wire.error_codes import ErrorCode
from cluster import Cluster
from cluster.serve.cluster_group_logs import ClusterGroupLogs, GroupAppend, LedGroupLog
from cluster.serve.cluster_leadership import ClusterLeadership
from logstore import LogConfig, LogStore
from support.cluster_groups import (
    CONFIG,
    GROUP,
    PARTITIONS,
    SECONDS,
    TOPIC,
    committed,
    coordinator_of,
    group_cluster,
)
from support.kafka_client import KafkaClient
from support.places import fast_directory
from support.replica_nodes import wait_until


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three brokers with two log dirs each, and a topic."""
    with group_cluster() as made:
        yield made


def test_tools_find_groups_at_any_broker(cluster: Cluster) -> None:
    """Any broker can be asked to list, describe and delete groups and offsets."""
    names = ["a", "b", "c"]
    for name, servers in zip(names, cluster.bootstrap_servers.split(","), strict=True):
        admin = AdminClient({"bootstrap.servers": servers})
        places = [TopicPartition(TOPIC, number, 7) for number in range(PARTITIONS)]
        asked = confluent_kafka.ConsumerGroupTopicPartitions(name, places)
        (done,) = admin.alter_consumer_group_offsets([asked]).values()
        errors = [one.error for one in done.result(SECONDS).topic_partitions]
        assert errors == [None] * PARTITIONS
    leaders = {coordinator_of(cluster, name) for name in names}
    assert len(leaders) == 2  # groups of two coordinators are seen at each broker
    for name, servers in zip(names, cluster.bootstrap_servers.split(","), strict=True):
        admin = AdminClient({"bootstrap.servers": servers})
        listed = admin.list_consumer_groups().result(SECONDS)
        assert listed.errors == [] and {one.group_id for one in listed.valid} >= {name}
        described = admin.describe_consumer_groups([name])[name].result(SECONDS)
        assert described.coordinator.id == coordinator_of(cluster, name)
        assert described.state is confluent_kafka.ConsumerGroupState.EMPTY
        assert committed(servers, name) == {0: 7, 1: 7}
        admin.delete_consumer_groups([name])[name].result(SECONDS)
        left = admin.list_consumer_groups().result(SECONDS)
        assert name not in {one.group_id for one in left.valid}
        assert set(committed(servers, name).values()) <= {-1001}


def test_offsets_of_a_deleted_topic_are_deleted_everywhere(cluster: Cluster) -> None:
    """A new topic with the same name begins without offsets, at all brokers."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    victim = coordinator_of(cluster)
    with KafkaClient(cluster.bootstrap_servers.split(",")[victim - 1]) as client:
        wait_until(lambda: commit_to(client, 7) is ErrorCode.NONE, SECONDS)
    for servers in cluster.bootstrap_servers.split(","):
        assert committed(servers) == {0: 7}
    admin.delete_topics([TOPIC])[TOPIC].result(SECONDS)
    wait_until(lambda: committed(cluster.bootstrap_servers) == {}, SECONDS)
    assert coordinator_of(cluster) == victim


def commit_to(client: KafkaClient, offset: int) -> ErrorCode:
    """Commit an offset by a request to one broker; return its answer."""
    Topic, Row = (  # noqa: N806 - classes
        m.OffsetCommitRequest.OffsetCommitRequestTopic,
        m.OffsetCommitRequest.OffsetCommitRequestPartition,
    )
    topics = [Topic(name=TOPIC, partitions=[Row(0, offset, -1, None)])]
    answer = client.call(
        "OffsetCommit", 9, group_id=GROUP, generation_id_or_member_epoch=-1, topics=topics
    )
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def fetch_from(client: KafkaClient) -> tuple[ErrorCode, int]:
    """Ask one broker for the committed offset."""
    ask_for_offsets(client)
    (group,) = client.receive("OffsetFetch", 9)[1].groups
    offset = group.topics[0].partitions[0].committed_offset if group.topics else -1
    return ErrorCode(group.error_code), offset


def ask_for_offsets(client: KafkaClient) -> None:
    """Send a request for the committed offset."""
    Group, Topic = (  # noqa: N806 - classes
        m.OffsetFetchRequest.OffsetFetchRequestGroup,
        m.OffsetFetchRequest.OffsetFetchRequestTopics,
    )
    topics = [Topic(name=TOPIC, partition_indexes=[0])]
    client.send("OffsetFetch", 9, groups=[Group(group_id=GROUP, topics=topics)])


def is_sent_away(address: str) -> bool:
    """Report whether a broker closes the connection of a client that asks for offsets."""
    with KafkaClient(address) as client:
        ask_for_offsets(client)
        return client.is_closed_by_broker


def find_at(client: KafkaClient) -> tuple[ErrorCode, int]:
    """Ask one broker for the coordinator."""
    (row,) = client.call("FindCoordinator", 4, coordinator_keys=[GROUP]).coordinators
    return ErrorCode(row.error_code), row.node_id


def clients_of(cluster: Cluster) -> dict[int, KafkaClient]:
    """Connect to each broker."""
    found = cluster.bootstrap_servers.split(",")
    return {number: KafkaClient(one) for number, one in zip(cluster.broker_ids, found, strict=True)}


def test_a_coordinator_that_was_cut_off_acknowledges_nothing() -> None:
    """Within its lease, a commit waits and is refused; later, clients are sent away."""
    with (
        fast_directory() as root,
        Cluster.start(3, directory=root, config=CONFIG, session_seconds=4.5) as cluster,
        contextlib.ExitStack() as stack,
    ):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(SECONDS)
        clients = clients_of(cluster)
        for one in clients.values():
            stack.enter_context(one)
        wait_until(lambda: find_at(clients[1])[0] is ErrorCode.NONE, SECONDS)
        zombie = coordinator_of(cluster)
        addresses = cluster.bootstrap_servers.split(",")
        zombie_at = addresses.pop(zombie - 1)
        others = [one for number, one in clients.items() if number != zombie]
        wait_until(lambda: commit_to(clients[zombie], 5) is ErrorCode.NONE, SECONDS)
        assert {find_at(one) for one in clients.values()} == {(ErrorCode.NONE, zombie)}
        for one, address in zip(others, addresses, strict=True):
            assert commit_to(one, 9) is ErrorCode.NOT_COORDINATOR and is_sent_away(address)

        cluster.cut(zombie)
        assert commit_to(clients[zombie], 6) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert fetch_from(clients[zombie]) == (ErrorCode.NONE, 5)
        new = coordinator_of(cluster, other_than=zombie)
        assert commit_to(clients[zombie], 7) is ErrorCode.NOT_COORDINATOR
        assert is_sent_away(zombie_at)
        with KafkaClient(zombie_at) as client:
            client.send("FindCoordinator", 4, coordinator_keys=[GROUP])
            assert client.is_closed_by_broker
        wait_until(lambda: fetch_from(clients[new])[0] is ErrorCode.NONE, SECONDS)
        assert fetch_from(clients[new]) == (ErrorCode.NONE, 5)
        assert commit_to(clients[new], 8) is ErrorCode.NONE

        cluster.heal()
        wait_until(lambda: find_once(zombie_at) == (ErrorCode.NONE, new), SECONDS)
        said: list[ErrorCode] = []

        def is_sent_elsewhere() -> bool:
            said.append(commit_to(clients[zombie], 9))
            return said[-1] is ErrorCode.NOT_COORDINATOR

        wait_until(is_sent_elsewhere, SECONDS)  # its replica hears of the leader after the broker
        assert set(said) <= {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert fetch_from(clients[new]) == (ErrorCode.NONE, 8)


def test_a_consumer_that_was_sent_to_the_wrong_broker_reads(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error instead, librdkafka 2.16 would never ask for the offsets again."""
    coordinator = coordinator_of(cluster)
    real, wrong = ClusterGroupLogs.find, [True, True]

    def find(logs: ClusterGroupLogs, partition: int, endpoint: Endpoint) -> Node:
        node = real(logs, partition, endpoint)
        if node.id == coordinator and wrong:
            address = cluster.bootstrap_servers.split(",")[coordinator % 3]
            wrong.pop()
            return Node(coordinator % 3 + 1, node.host, int(address.rsplit(":")[-1]), None)
        return node

    monkeypatch.setattr(ClusterGroupLogs, "find", find)
    with KafkaClient(cluster.bootstrap_servers.split(",")[coordinator - 1]) as client:
        wait_until(lambda: commit_to(client, 0) is ErrorCode.NONE, SECONDS)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(TOPIC, b"x", partition=0)
    assert producer.flush(SECONDS) == 0
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": GROUP, "log_level": 0}
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.assign([TopicPartition(TOPIC, 0, confluent_kafka.OFFSET_STORED)])
        (record,) = consumer.consume(1, SECONDS)
        assert record.value() == b"x" and not wrong
    finally:
        consumer.close()


def test_a_broker_that_is_about_to_lead_lets_clients_ask_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """14: the controller has announced this leader, but its replica does not lead yet."""
    coordinator = coordinator_of(cluster)
    with KafkaClient(cluster.bootstrap_servers.split(",")[coordinator - 1]) as client:
        wait_until(lambda: commit_to(client, 3) is ErrorCode.NONE, SECONDS)
        real = ClusterLeadership.leading

        def leading(self: ClusterLeadership, name: str, number: int, epoch: int = -1) -> Any:
            if name == NAME and self.broker_id == coordinator:
                raise NotServedError(code=ErrorCode.NOT_LEADER_OR_FOLLOWER, reason="not yet")
            return real(self, name, number, epoch)

        monkeypatch.setattr(ClusterLeadership, "leading", leading)
        monkeypatch.setattr(LedGroupLog, "is_led", False)
        later = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert commit_to(client, 4) is fetch_from(client)[0] is later
        monkeypatch.undo()
        wait_until(lambda: fetch_from(client) == (ErrorCode.NONE, 3), SECONDS)


def test_the_topic_is_created_once() -> None:
    """Several brokers are asked at once; the replicas are on different live brokers."""
    with fast_directory() as root, Cluster.start(2, directory=root, config=CONFIG) as cluster:
        servers = cluster.bootstrap_servers.split(",")
        with ThreadPoolExecutor(4) as pool:
            asked = [
                pool.submit(find_once, one) for one in cluster.bootstrap_servers.split(",") * 2
            ]
            assert {one.result()[0] for one in asked} <= {
                ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE,
            }  # fmt: skip
        coordinator_of(cluster)  # the brokers hear of this leader one after another
        wait_until(lambda: {find_once(one)[0] for one in servers} == {ErrorCode.NONE}, SECONDS)
        for number in range(CONFIG["offsets_topic_num_partitions"]):
            view = cluster.partition(NAME, number)
            assert view is not None and set(view.replicas) == {1, 2}
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        resource = ConfigResource(ConfigResource.Type.TOPIC, NAME)
        found = admin.describe_configs([resource])[resource].result(SECONDS)
        assert found["cleanup.policy"].value == "compact"


def find_once(servers: str) -> tuple[ErrorCode, int]:
    """Ask a broker for the coordinator, over a separate connection."""
    with KafkaClient(servers) as client:
        try:
            return find_at(client)
        except EOFError:  # the broker does not know, and sends the client away
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, -1


def test_an_append_of_another_epoch_is_refused(tmp_path: Path) -> None:
    """Another broker may have led in between, so the groups in memory may be old."""
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store.create(NAME, 0, config=LogConfig(record_format="kafka"))
        log.leader_epoch = 4
        led = LedGroupLog(cast(Any, None), log, 4, lambda: True)
        for epoch in (3, 5):
            with pytest.raises(NotServedError) as caught:
                GroupAppend(led, [b"key"], [b"value"], 1).written(log, epoch)
            assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        late = GroupAppend(led._replace(leader_epoch=3), [b"key"], [b"value"], 1)
        with pytest.raises(NotServedError):  # the log knows of a later leader
            late.written(log, 3)
        assert log.log_end_offset == 0
        assert GroupAppend(led, [b"key"], [b"value"], 1).written(log, 4) == range(1)
