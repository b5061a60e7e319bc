"""Topics are created, described and deleted as clients ask for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.catalog import topics as catalog
from broker.catalog.topics import TopicCatalog
from broker.requests import metadata
from broker.wire import messages
from logstore import LogConfig, LogDirOfflineError, LogStore, LogStoreError, UnknownPartitionError
from support.hanging import QUIET, Caller
from support.kafka_client import KafkaClient

Topic = messages.CreateTopicsRequest.CreatableTopic
Config = messages.CreateTopicsRequest.CreatableTopicConfig
Assignment = messages.CreateTopicsRequest.CreatableReplicaAssignment


def described(client: KafkaClient, *names: str, version: int = 13, create: bool = False) -> Any:
    """Ask for the metadata of topics; without a name, of all topics."""
    asked = [messages.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return client.call(
        "Metadata", version, topics=asked or None if version else asked,
        allow_auto_topic_creation=create,
    )  # fmt: skip


def test_regression_one_request_creates_topics_for_a_limited_time(
    client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After this time, error 5 makes the client ask again. Before, its connection was closed."""
    client.create("known-long")
    names = ["known-long", "new-1", "a b"]
    monkeypatch.setattr(metadata, "CREATING_SECONDS", 0.0)
    assert [row.error_code for row in described(client, *names, create=True).topics] == [0, 5, 17]
    monkeypatch.undo()
    assert [row.error_code for row in described(client, *names, create=True).topics] == [0, 0, 17]


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_every_version(client: KafkaClient, broker: Broker, version: int) -> None:
    """The broker leads, and has the only replica; its address is that of the listener."""
    name = f"metadata-{version}"
    topic_id = client.create(name, 2)
    answer = described(client, name, version=version)
    (node,) = answer.brokers
    assert f"{node.host}:{node.port}" == broker.bootstrap_servers
    if version >= 1:
        assert answer.controller_id == node.node_id
    if version >= 2:
        assert answer.cluster_id == broker.store.cluster_id
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, name, False)
    if version >= 10:
        assert topic.topic_id == topic_id
    for number, row in enumerate(topic.partitions):
        assert (row.error_code, row.partition_index, row.leader_id) == (0, number, node.node_id)
        assert row.replica_nodes == row.isr_nodes == (node.node_id,) and not row.offline_replicas
    assert topic.topic_authorized_operations == -2147483648


def test_all_topics_or_none(client: KafkaClient) -> None:
    """An empty list means all topics only in version 0; in later versions, null does."""
    client.create("all-topics")
    assert "all-topics" in [topic.name for topic in described(client).topics]
    assert "all-topics" in [topic.name for topic in described(client, version=0).topics]
    assert client.call("Metadata", 5, topics=[]).topics == ()


def test_topics_by_id(client: KafkaClient) -> None:
    """An id without a topic gets 100."""
    topic_id = client.create("by-id")
    one = messages.MetadataRequest.MetadataRequestTopic
    asked = [one(topic_id=topic_id, name=None), one(topic_id=b"?" * 16, name=None)]
    rows = client.call("Metadata", 12, topics=asked).topics
    assert [(row.error_code, row.name) for row in rows] == [(0, "by-id"), (100, None)]
    rows = client.call("Metadata", 11, topics=asked).topics  # whose answer has no null names
    assert [(row.error_code, row.name) for row in rows] == [(0, "by-id"), (100, "")]


def test_a_name_that_differs_only_in_dots_is_refused(client: KafkaClient, broker: Broker) -> None:
    """Kafka refuses such a name, too, because both topics would have the same metrics."""
    client.create("dots.and_lines")
    asked = [Topic("dots_and.lines", 1, 1), Topic("dots_and-lines", 1, 1)]
    answer = client.call("CreateTopics", topics=asked)
    assert [row.error_code for row in answer.topics] == [17, 0]
    assert "dots.and_lines" in answer.topics[0].error_message
    assert described(client, "dots_and_lines", create=True).topics[0].error_code == 17
    assert described(client, "dots.and_lines", create=True).topics[0].error_code == 0


def test_a_missing_topic_is_created_only_if_wanted(client: KafkaClient, broker: Broker) -> None:
    """Client and broker must allow it; a bad name gets 17; internal topics are not created."""
    assert described(client, "wanted").topics[0].error_code == 3
    assert described(client, "wanted", create=True).topics[0].error_code == 0
    assert broker.store["wanted", 0].config == broker.config.log_config
    for name, code in (("no/slash", 17), ("", 17), ("__consumer_offsets", 3)):
        assert described(client, name, create=True).topics[0].error_code == code
    with (
        Broker.start(config={"auto_create_topics_enable": False}) as strict,
        KafkaClient(strict.bootstrap_servers) as other,
    ):
        assert described(other, "wanted", create=True).topics[0].error_code == 3


def test_many_clients_create_one_topic_once(broker: Broker) -> None:
    """Each client sees the topic at once, or has to ask again."""
    codes: list[int] = []

    def ask() -> None:
        with KafkaClient(broker.bootstrap_servers) as client:
            codes.append(described(client, "at-once", create=True).topics[0].error_code)

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 in codes and set(codes) <= {0, 5}
    assert [key for key in broker.store if key.topic == "at-once"] == [("at-once", 0)]


def created(client: KafkaClient, *topics: Any, dry: bool = False, version: int = 7) -> list[Any]:
    """Send a CreateTopics request."""
    fields = {"topics": topics, "timeout_ms": 1000, "validate_only": dry}
    return list(client.call("CreateTopics", version, **fields).topics)


@pytest.mark.parametrize("version", range(2, 8))
def test_create_in_every_version(client: KafkaClient, broker: Broker, version: int) -> None:
    """All partitions have one topic id, which the answer contains from version 7 on."""
    name = f"create-{version}"
    topic = Topic(name, 3, 1, (), [Config("retention.ms", "1234")])
    (row,) = created(client, topic, version=version)
    assert (row.name, row.error_code) == (name, 0)
    logs = [broker.store[name, number] for number in range(3)]
    assert {log.config.retention_ms for log in logs} == {1234}
    (topic_id,) = {log.topic_id for log in logs}
    if version >= 7:
        assert row.topic_id == topic_id
    if version >= 5:
        assert (row.num_partitions, row.replication_factor) == (3, 1)
        rows = {one.name: (one.value, one.config_source) for one in row.configs}
        assert rows["retention.ms"] == ("1234", 1) and rows["cleanup.policy"] == ("delete", 5)
    (again,) = created(client, topic, version=version)
    assert again.error_code == 36


REFUSED = {
    "name": (Topic("a/b", 1, 1, (), ()), 17),
    "partitions": (Topic("r", 0, 1, (), ()), 37),
    "fewer partitions": (Topic("r", -2, 1, (), ()), 37),
    "replicas": (Topic("r", 1, 3, (), ()), 38),
    "assignment": (Topic("r", -1, -1, [Assignment(0, [9])], ()), 39),
    "a gap": (Topic("r", -1, -1, [Assignment(1, [0])], ()), 39),
    "both": (Topic("r", 2, 1, [Assignment(0, [0])], ()), 42),
    "unknown setting": (Topic("r", 1, 1, (), [Config("retention.msec", "1")]), 40),
    "bad value": (Topic("r", 1, 1, (), [Config("retention.ms", "soon")]), 40),
    "out of range": (Topic("r", 1, 1, (), [Config("segment.bytes", "-5")]), 40),
    "no such codec": (Topic("r", 1, 1, (), [Config("compression.type", "none")]), 40),
    "three in sync": (Topic("r", 1, 1, (), [Config("min.insync.replicas", "3")]), 40),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("dry", [True, False])
def test_a_refused_topic_is_not_created(
    client: KafkaClient, broker: Broker, case: str, dry: bool
) -> None:
    """The answer has Kafka's code, and the reason."""
    topic, code = REFUSED[case]
    (row,) = created(client, topic, dry=dry)
    assert row.error_code == code and row.error_message
    assert ("r", 0) not in broker.store


def test_each_topic_of_a_request_for_itself(client: KafkaClient, broker: Broker) -> None:
    """A topic that is named twice is refused once; the others are created."""
    twice = Topic("twice", 1, 1, (), ())
    rows = created(client, twice, Topic("once", -1, -1, [Assignment(0, [0])], ()), twice)
    assert [(row.name, row.error_code) for row in rows] == [("twice", 42), ("once", 0)]
    (dry,) = created(client, twice, dry=True)
    assert (dry.error_code, dry.topic_id) == (0, bytes(16))
    assert ("twice", 0) not in broker.store


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_in_every_version(client: KafkaClient, broker: Broker, version: int) -> None:
    """All partitions are deleted; an unknown topic gets 3."""
    name = f"delete-{version}"
    client.create(name, 3)
    one = messages.DeleteTopicsRequest.DeleteTopicState
    named = (
        {"topics": [one(name), one("none")]} if version >= 6 else {"topic_names": [name, "none"]}
    )
    rows = client.call("DeleteTopics", version, timeout_ms=1000, **named).responses
    assert [(row.name, row.error_code) for row in rows] == [(name, 0), ("none", 3)]
    assert not [key for key in broker.store if key.topic == name]
    assert described(client, name).topics[0].error_code == 3


def test_delete_by_id(client: KafkaClient) -> None:
    """The answer has the name; an unknown id gets 100; a new topic has a new id."""
    topic_id = client.create("delete-by-id")
    one = messages.DeleteTopicsRequest.DeleteTopicState
    asked = [one(None, topic_id), one(None, b"?" * 16)]
    rows = client.call("DeleteTopics", topics=asked, timeout_ms=1000).responses
    assert [(row.name, row.error_code) for row in rows] == [("delete-by-id", 0), (None, 100)]
    topic_id = client.create("delete-by-id")
    for both in (one("delete-by-id", topic_id), one(None, bytes(16))):
        (row,) = client.call("DeleteTopics", topics=[both], timeout_ms=1000).responses
        assert row.error_code == 42
    assert described(client, "delete-by-id").topics[0].topic_id == topic_id
    with (
        Broker.start(config={"delete_topic_enable": False}) as strict,
        KafkaClient(strict.bootstrap_servers) as other,
    ):
        other.create("stays")
        rows = other.call("DeleteTopics", topics=[one("stays")], timeout_ms=1000).responses
        assert rows[0].error_code == 73


@pytest.mark.parametrize("version", [5, 6])
def test_regression_a_topic_that_is_named_twice_is_not_deleted(
    client: KafkaClient, version: int
) -> None:
    """It was deleted, and its second row had the error 3. As in Kafka, one row has the error 42."""
    topic_id = client.create(f"twice-{version}")
    client.create(f"once-{version}")
    one = messages.DeleteTopicsRequest.DeleteTopicState
    names = [f"twice-{version}", f"once-{version}", f"twice-{version}"]
    fields: dict[str, Any] = {"topic_names": names}
    if version == 6:
        fields = {"topics": [one(name) for name in names]}
    rows = client.call("DeleteTopics", version, timeout_ms=1000, **fields).responses
    assert sorted((row.name, row.error_code) for row in rows) == [(names[1], 0), (names[0], 42)]
    if version == 6:
        for pair in ([one(names[0]), one(None, topic_id)], [one(None, topic_id)] * 2):
            (row,) = client.call("DeleteTopics", topics=pair, timeout_ms=1000).responses
            assert (row.topic_id, row.error_code) == (topic_id, 42)
            assert row.name == pair[0].name
    assert described(client, names[0]).topics[0].topic_id == topic_id


def test_an_offline_log_dir_has_no_leader(tmp_path: Any) -> None:
    """Clients get 5 and no leader, so they wait; when the log dir returns, they are served."""
    with LogStore.open([tmp_path / "a", tmp_path / "b"]) as store:
        config = LogConfig(record_format="kafka")
        for number, path in enumerate(store.log_dirs):
            store.create("t", number, log_dir=path, config=config, topic_id=b"t" * 16)
        with Broker.start(store=store) as broker, KafkaClient(broker.bootstrap_servers) as client:
            assert described(client, "t").topics[0].topic_id == b"t" * 16
            store.create("u", 0, log_dir=store.log_dirs[0], config=config, topic_id=b"u" * 16)
            assert described(client, "u").topics[0].topic_id == b"u" * 16
            store.take_offline(store.log_dirs[0])
            client.create("other")  # so that the list of topics is made anew
            assert described(client, "u").topics[0].topic_id == b"u" * 16
            with pytest.raises(LogDirOfflineError):
                store.log("t", 0)
            topic = described(client, "t").topics[0]
            assert [row.error_code for row in topic.partitions] == [5, 0]
            offline = topic.partitions[0]
            assert (offline.leader_id, offline.isr_nodes) == (-1, ())
            assert offline.offline_replicas == offline.replica_nodes == (0,)
            assert topic.topic_id == b"t" * 16
            assert client.fetch("t", 0).error_code == 56
            store.reopen_dir(store.log_dirs[0])
            topic = described(client, "t").topics[0]
            assert [row.error_code for row in topic.partitions] == [0, 0]
            assert client.fetch("t", 0).error_code == 0


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_one_broker(client: KafkaClient, broker: Broker, version: int) -> None:
    """The broker is also the controller; it has no endpoint for controllers."""
    answer = client.call("DescribeCluster", version, endpoint_type=1)
    assert (answer.error_code, answer.cluster_id) == (0, broker.store.cluster_id)
    assert [node.broker_id for node in answer.brokers] == [answer.controller_id]
    if version:
        assert client.call("DescribeCluster", version, endpoint_type=2).error_code == 115


def test_partitions_are_described_in_pages(client: KafkaClient) -> None:
    """A cursor shows where the next request continues; no list is null."""
    client.create("pages-a", 3)
    client.create("pages-b", 2)
    request = messages.DescribeTopicPartitionsRequest
    asked = [request.TopicRequest(name) for name in ("pages-b", "pages-a", "pages-none")]
    found: list[tuple[str, int]] = []
    errors, cursor = [], None
    for _ in range(10):
        answer = client.call(
            "DescribeTopicPartitions", topics=asked, response_partition_limit=2, cursor=cursor
        )
        for topic in answer.topics:
            found += [(topic.name, row.partition_index) for row in topic.partitions]
            errors += [topic.name] * (topic.error_code == 3)
            assert all(row.eligible_leader_replicas == () for row in topic.partitions)
        if answer.next_cursor is None:
            break
        cursor = request.Cursor(*answer.next_cursor)
    assert found == [("pages-a", 0), ("pages-a", 1), ("pages-a", 2), ("pages-b", 0), ("pages-b", 1)]
    assert errors == ["pages-none"]


def test_regression_a_creation_that_hangs_holds_no_other_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, one lock for all topics made each creation wait for the disk."""
    monkeypatch.setattr(catalog, "CHANGE_SECONDS", 0.05)
    began, released = threading.Event(), threading.Event()
    with LogStore.open(tmp_path, config=QUIET) as store:
        topics, create = TopicCatalog(store), store.create_topic

        def hanging(name: str, *arguments: Any, **options: Any) -> Any:
            if name == "hangs":
                began.set()
                assert released.wait(60)
            return create(name, *arguments, **options)

        monkeypatch.setattr(store, "create_topic", hanging)
        config = store.config.log_config
        first = Caller(lambda: topics.create("hangs", 1, config))
        assert began.wait(30)
        assert topics.create("other", 1, config).partitions == (0,)
        with pytest.raises(LogStoreError, match="still being changed"):
            topics.create("hangs", 1, config)
        released.set()
        assert first.outcome().name == "hangs"
        topics.close()


def test_regression_no_partition_is_added_to_a_deleted_topic(tmp_path: Path) -> None:
    """If another client deletes the topic in between, no partition may come back."""
    with LogStore.open(tmp_path, config=QUIET) as store:
        topics, config = TopicCatalog(store), store.config.log_config
        topic = topics.create("t", 1, config)
        topics.delete(topic)
        topics.create("t", 1, config)
        with pytest.raises(UnknownPartitionError):
            topics.add_partitions(topic, 3)
        assert list(store) == [("t", 0)]
        topics.close()


def test_regression_a_topic_is_found_or_not_before_the_store_reports_it(tmp_path: Path) -> None:
    """Clients see a program's creation or deletion at once, and may create the topic again."""
    with LogStore.open(tmp_path) as store:
        catalog = TopicCatalog(store)
        catalog.close()  # it hears no event from here on
        assert catalog.get("t") is None
        store.create("t", 0)
        assert catalog.get("t") is not None
        store.delete("t", 0)
        assert catalog.get("t") is None
