"""Test administrative requests to a cluster, with Kafka's clients and one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AsyncTopic
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from broker.wire import messages as m
from support.cluster_brokers import ClusterBrokers
from support.kafka_client import KafkaClient
from support.places import fast_directory
from support.replica_nodes import wait_until

SECONDS = 20
TOPIC, BROKER = 2, 4
pytestmark = [
    pytest.mark.usefixtures("leaky_clients"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterBrokers]:
    with (
        fast_directory() as root,
        ClusterBrokers(root, default_replication_factor=3, num_partitions=2) as made,
    ):
        yield made


def shown(client: KafkaClient, name: str, create: bool = False) -> tuple[int, list[int]]:
    """Ask a broker for a topic; return the error, and the leaders of its partitions."""
    asked = [m.MetadataRequest.MetadataRequestTopic(name=name)]
    answer = client.call("Metadata", 12, topics=asked, allow_auto_topic_creation=create)
    return answer.topics[0].error_code, [row.leader_id for row in answer.topics[0].partitions]


def created(
    client: KafkaClient, name: str, partitions: int, factor: int, timeout_ms: int = 20_000
) -> Any:
    topic = m.CreateTopicsRequest.CreatableTopic(name, partitions, factor, (), ())
    answer = client.call("CreateTopics", topics=[topic], timeout_ms=timeout_ms)
    return answer.topics[0]


def deleted(client: KafkaClient, name: str, timeout_ms: int = 20_000) -> int:
    topic = m.DeleteTopicsRequest.DeleteTopicState(name)
    answer = client.call("DeleteTopics", topics=[topic], timeout_ms=timeout_ms)
    return int(answer.responses[0].error_code)


def grown(client: KafkaClient, name: str, count: int, timeout_ms: int = 20_000) -> int:
    topic = m.CreatePartitionsRequest.CreatePartitionsTopic(name, count, None)
    answer = client.call("CreatePartitions", topics=[topic], timeout_ms=timeout_ms)
    return int(answer.results[0].error_code)


def settings_of(client: KafkaClient, kind: int, name: str) -> dict[str, tuple[str, int]]:
    asked = [m.DescribeConfigsRequest.DescribeConfigsResource(kind, name, None)]
    (result,) = client.call("DescribeConfigs", resources=asked).results
    assert result.error_code == 0
    return {row.name: (row.value, row.config_source) for row in result.configs}


@pytest.mark.parametrize("broker", [1, 2, 3])
def test_the_next_request_of_the_client_does_not_fail(cluster: ClusterBrokers, broker: int) -> None:
    """The answer waits for the metadata of the broker that was asked, whichever broker it is."""
    with cluster.client(broker) as client:
        for number in range(5):
            name = f"next-{broker}-{number}"
            row = created(client, name, 3, 3)
            assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 3, 3)
            error, leaders = shown(client, name)
            assert error == 0 and sorted(leaders) == [1, 2, 3]
            assert grown(client, name, 6) == 0
            error, leaders = shown(client, name)
            assert error == 0 and sorted(leaders) == [1, 1, 2, 2, 3, 3]
            assert deleted(client, name) == 0
            assert shown(client, name) == (3, [])


def test_a_client_that_does_not_wait(cluster: ClusterBrokers) -> None:
    """As in Kafka, such a client gets REQUEST_TIMED_OUT, but the change is made."""
    with cluster.client(2) as client:
        assert created(client, "hasty", 2, 3, timeout_ms=0).error_code in (0, 7)
        wait_until(lambda: shown(client, "hasty")[0] == 0)
        wait_until(lambda: min(shown(client, "hasty")[1]) > 0)
        assert grown(client, "hasty", 3, timeout_ms=-1) in (0, 7)
        wait_until(lambda: len(shown(client, "hasty")[1]) == 3)
        assert deleted(client, "hasty", timeout_ms=0) in (0, 7)
        wait_until(lambda: shown(client, "hasty")[0] == 3)


def test_a_topic_is_created_by_its_first_use(cluster: ClusterBrokers) -> None:
    """The topic has the broker's defaults; at first it has no leader, as in Kafka."""
    with cluster.client(3) as client:
        error, _ = shown(client, "first-use", create=True)
        assert error in (0, 5)
        wait_until(lambda: shown(client, "first-use", create=True)[0] == 0)
        wait_until(lambda: len(shown(client, "first-use")[1]) == 2)
        assert settings_of(client, TOPIC, "first-use")["min.insync.replicas"] == ("2", 1)
        assert settings_of(client, BROKER, "3")["default.replication.factor"] == ("3", 4)


def test_refusals_have_kafkas_codes(cluster: ClusterBrokers) -> None:
    """All brokers return the same codes, even if they are not the controller."""
    for broker in (1, 2, 3):
        with cluster.client(broker) as client:
            assert created(client, "r", 1, 4).error_code == 38
            assert created(client, "r", 0, 3).error_code == 37
            assert created(client, "a/b", 1, 3).error_code == 17
            assert deleted(client, "r") == 3 and grown(client, "r", 5) == 3


def altered(client: KafkaClient, api: str, kind: int, name: str, *changes: Any) -> int:
    """Change settings; returns the code of the only resource."""
    asked = getattr(m, f"{api}Request")
    resource = asked.AlterConfigsResource(kind, name, [asked.AlterableConfig(*c) for c in changes])
    return int(client.call(api, resources=[resource]).responses[0].error_code)


def test_alter_configs_resets_the_settings_of_the_rules_too(cluster: ClusterBrokers) -> None:
    """If an unclean election stayed allowed, records could be lost."""
    with cluster.client(2) as client:
        assert created(client, "reset", 1, 3).error_code == 0
        usual = settings_of(client, TOPIC, "reset")
        risky = (
            ("min.insync.replicas", 0, "1"), ("unclean.leader.election.enable", 0, "true"),
            ("leader.replication.throttled.replicas", 0, "*"), ("flush.before.ack", 0, "true"),
        )  # fmt: skip
        assert altered(client, "IncrementalAlterConfigs", TOPIC, "reset", *risky) == 0
        assert altered(client, "AlterConfigs", TOPIC, "reset", ("retention.ms", "5")) == 0
        assert settings_of(client, TOPIC, "reset") == usual | {"retention.ms": ("5", 1)}
        twice = [("retention.ms", "5"), ("retention.ms", "6")]
        assert altered(client, "AlterConfigs", TOPIC, "reset", *twice) == 42


def test_the_settings_of_all_brokers_are_not_changed_at_one(cluster: ClusterBrokers) -> None:
    """A client that wants to change all brokers must learn that it has to name each of them."""
    with cluster.client(2) as client:
        change = ("leader.replication.throttled.rate", 0, "12345")
        before = settings_of(client, BROKER, "2")
        assert altered(client, "IncrementalAlterConfigs", BROKER, "", change) == 42
        assert settings_of(client, BROKER, "2") == before


def test_confluents_administrator(cluster: ClusterBrokers) -> None:
    """Create, describe, alter, extend and delete."""
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    topic = NewTopic("confluent", 3, 3, config={"retention.ms": "123456"})
    for future in admin.create_topics([topic], operation_timeout=SECONDS).values():
        future.result(SECONDS)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([topic])["confluent"].result(SECONDS)
    found = admin.list_topics("confluent", timeout=SECONDS).topics["confluent"].partitions
    assert {len(one.replicas) for one in found.values()} == {3}
    resource = ConfigResource(
        ResourceType.TOPIC,
        "confluent",
        incremental_configs=[
            ConfigEntry("retention.ms", "7000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(SECONDS)
    for broker in (1, 2, 3):
        with cluster.client(broker) as client:
            rows = settings_of(client, TOPIC, "confluent")
            assert (rows["retention.ms"], rows["min.insync.replicas"]) == (("7000", 1), ("1", 1))
    wait_until(
        lambda: (
            [
                one.store.log(name, number).config.retention_ms
                for one in cluster.up()
                for name, number in one.store
                if name == "confluent"
            ]
            == [7000] * 9
        )
    )
    for future in admin.create_partitions([NewPartitions("confluent", 5)]).values():
        future.result(SECONDS)
    for future in admin.delete_topics(["confluent"], operation_timeout=SECONDS).values():
        future.result(SECONDS)
    assert "confluent" not in admin.list_topics(timeout=SECONDS).topics


@pytest.mark.filterwarnings(r"ignore:(read|open)_text is deprecated:DeprecationWarning")
def test_kafka_pythons_administrator(cluster: ClusterBrokers) -> None:
    """Create and delete, with its own waiting."""
    from kafka.admin import KafkaAdminClient  # it warns while it is imported
    from kafka.admin import NewTopic as PythonTopic

    admin = KafkaAdminClient(bootstrap_servers=cluster.servers.split(","))
    admin.create_topics([PythonTopic("python", 2, 3)])
    assert "python" in admin.list_topics()
    admin.delete_topics(["python"])
    wait_until(lambda: "python" not in admin.list_topics())  # it asks any broker
    admin.close()


def test_aiokafkas_administrator(cluster: ClusterBrokers) -> None:
    """Create and delete in one event loop."""

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.servers)
        await admin.start()
        try:
            await admin.create_topics([AsyncTopic("async", 2, 3)])
            assert "async" in await admin.list_topics()
            await admin.delete_topics(["async"])
            assert "async" not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(run())
