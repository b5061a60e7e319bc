"""Test that a broker of a cluster answers like Kafka for wrong leaders, epochs and ids."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from broker.config import BrokerConfig
from broker.coordination.errors import NodeExistsError
from broker.wire import messages as m
from broker.wire.error_codes import ErrorCode
from cluster.run.member import MemberSettings
from cluster.serve.cluster_broker import ClusterBroker
from cluster.serve.producer_blocks import PATH
from cluster.sessions.lasting_session import LastingSession
from logstore import LogStore
from support.cluster_brokers import ClusterBrokers, Running
from support.cluster_questions import (
    are_too_few,
    code,
    create,
    end_of_epoch,
    list_offsets,
    parts,
    replica_of,
)
from support.kafka_client import KafkaClient, batch_of, fetch_fields, produce_fields
from support.places import fast_directory
from support.replica_nodes import wait_until

LONG_MS = 15_000
SOFTWARE: dict[str, Any] = {"client_software_name": "raw", "client_software_version": "1"}


@pytest.fixture(scope="module")
def shared() -> Iterator[ClusterBrokers]:
    """A cluster whose brokers stay alive, for several tests."""
    with fast_directory() as root, cluster(root) as brokers:
        yield brokers


@pytest.fixture
def own() -> Iterator[ClusterBrokers]:
    """A cluster for one test."""
    with fast_directory() as root, cluster(root) as brokers:
        yield brokers


def cluster(root: Any) -> ClusterBrokers:
    # A follower that is silent for a while stays in sync.
    return ClusterBrokers(root, lag_seconds_max=30.0, default_replication_factor=3)


# --- who leads ------------------------------------------------------------------------------------


def test_another_broker_names_the_leader(shared: ClusterBrokers) -> None:
    """Produce and Fetch are refused, and their answers name the leader (KIP-951)."""
    topic_id = create(shared, "elsewhere")
    leader, others = parts(shared, "elsewhere")
    epoch = replica_of(leader, "elsewhere").leader_epoch
    node = (leader.id, "127.0.0.1", shared.ports[leader.id], None)
    for other in others:
        with KafkaClient(other.servers) as client:
            answer = client.call("Produce", 13, **produce_fields({(topic_id, 0): batch_of(b"x")}))
            (row,) = answer.responses[0].partition_responses
            assert code(row) is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert tuple(row.current_leader) == (leader.id, epoch)
            assert [tuple(one) for one in answer.node_endpoints] == [node]
            answer = client.call("Fetch", 18, **fetch_fields({(topic_id, 0): 0}))
            (row,) = answer.responses[0].partitions
            assert code(row) is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert tuple(row.current_leader) == (leader.id, epoch)
            assert [tuple(one) for one in answer.node_endpoints] == [node]
            assert list_offsets(client, "elsewhere")[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert end_of_epoch(client, "elsewhere", 0)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.store["elsewhere", 0].log_end_offset == 0


def test_without_acks_a_wrong_leader_closes_the_connection(shared: ClusterBrokers) -> None:
    """There is no answer that could report it, so the connection is closed."""
    create(shared, "quiet")
    leader, (other, _) = parts(shared, "quiet")
    fields = produce_fields({("quiet", 0): batch_of(b"x")}, acks=0)
    with KafkaClient(other.servers) as client:
        client.send("Produce", 12, **fields)
        assert client.is_closed_by_broker
    with KafkaClient(leader.servers) as client:
        client.send("Produce", 12, **fields)
        assert (
            client.call("ApiVersions", **SOFTWARE).error_code == 0
        )  # the next answer is for the next request
    assert leader.store["quiet", 0].log_end_offset == 1


def test_leader_epochs_are_compared(own: ClusterBrokers) -> None:
    """Leaders and other brokers return 74 for an older epoch, and 75 for a newer epoch."""
    create(own, "epochs")
    first, _ = parts(own, "epochs")
    first.kill()
    own.leader("epochs", other_than=first.id)
    own.start(first.id)
    own.wait_in_sync("epochs", 1, 2, 3)
    leader, (other, _) = parts(own, "epochs")
    epoch = replica_of(leader, "epochs").leader_epoch
    assert epoch >= 1
    with KafkaClient(leader.servers) as client:
        assert end_of_epoch(client, "epochs", epoch) == (ErrorCode.NONE, epoch, 0)
        assert code(client.produce("epochs", batch_of(b"x"))) is ErrorCode.NONE
        assert end_of_epoch(client, "epochs", epoch) == (ErrorCode.NONE, epoch, 1)
        assert end_of_epoch(client, "epochs", epoch - 1) == (ErrorCode.NONE, epoch - 1, 0)
        assert end_of_epoch(client, "epochs", epoch + 1) == (ErrorCode.NONE, -1, -1)
    for running, same in (
        (leader, ErrorCode.NONE),
        (other, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        codes = {
            -1: same, epoch - 1: ErrorCode.FENCED_LEADER_EPOCH, epoch: same,
            epoch + 1: ErrorCode.UNKNOWN_LEADER_EPOCH,
        }  # fmt: skip
        with KafkaClient(running.servers) as client:
            for asked, expected in codes.items():
                row = client.fetch("epochs", 0, current_leader_epoch=asked)
                assert code(row) is expected
                assert list_offsets(client, "epochs", epoch=asked)[0] is expected
                assert end_of_epoch(client, "epochs", 0, asked)[0] is expected


def test_what_does_not_exist(shared: ClusterBrokers) -> None:
    """An unknown name or partition gets 3, an unknown id 100."""
    create(shared, "known")
    for broker in (1, 2, 3):
        with shared.client(broker) as client:
            for name, partition in (("unknown", 0), ("known", 7)):
                row = client.produce(name, batch_of(b"x"), partition)
                assert code(row) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                row = client.fetch(name, 0, partition)
                assert code(row) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            fields = produce_fields({(bytes(16), 0): batch_of(b"x")})
            answer = client.call("Produce", 13, **fields)
            (row,) = answer.responses[0].partition_responses
            assert code(row) is ErrorCode.UNKNOWN_TOPIC_ID


def test_each_broker_describes_the_same_cluster(shared: ClusterBrokers) -> None:
    """Brokers, controller, leaders, replicas and ids agree; peers' requests are not announced."""
    create(shared, "described", 3)
    found = []
    for broker in (1, 2, 3):
        with shared.client(broker) as client:
            asked = [m.MetadataRequest.MetadataRequestTopic(name="described")]
            one = client.call("Metadata", topics=asked)
            two = client.call("DescribeCluster")
            names = [m.DescribeTopicPartitionsRequest.TopicRequest("described")]
            three = client.call(
                "DescribeTopicPartitions", topics=names, response_partition_limit=10
            )
            found.append((one, two.brokers, two.controller_id, two.cluster_id, three))
            announced = {row.api_key for row in client.call("ApiVersions", **SOFTWARE).api_keys}
            assert announced >= {0, 1, 3} and not announced & {4, 5, 6, 7, 56}
    assert found[0] == found[1] == found[2]
    metadata = found[0][0]
    assert [one.node_id for one in metadata.brokers] == [1, 2, 3]
    assert metadata.controller_id in (1, 2, 3) and metadata.cluster_id
    rows = metadata.topics[0].partitions
    assert [row.error_code for row in rows] == [0, 0, 0]
    assert all(row.leader_id == row.replica_nodes[0] for row in rows)
    assert all(sorted(row.isr_nodes) == [1, 2, 3] for row in rows)


def test_a_partition_without_a_leader(own: ClusterBrokers) -> None:
    """If two of three brokers are gone, the third names no leader, and lists both as offline."""
    create(own, "alone", min_insync_replicas="2")
    leader, (other, last) = parts(own, "alone")
    other.kill()
    own.wait_in_sync("alone", leader.id, last.id)
    leader.kill()
    own.wait_in_sync("alone", last.id)
    asked = [m.MetadataRequest.MetadataRequestTopic(name="alone")]
    with KafkaClient(last.servers) as client:

        def row() -> Any:
            return client.call("Metadata", topics=asked).topics[0].partitions[0]

        wait_until(lambda: set(row().offline_replicas) == {leader.id, other.id})
        assert (code(row()), row().leader_id) == (ErrorCode.NONE, last.id)
        wait_until(lambda: are_too_few(client, "alone"))
        assert code(client.produce("alone", batch_of(b"x"), acks=1)) is ErrorCode.NONE
        assert client.fetch("alone", 0).high_watermark == 0  # nothing is promised below min (P8)


def test_each_broker_describes_the_eligible_leader_replicas(own: ClusterBrokers) -> None:
    """A leader that dies while the ISR is below min stays eligible, until min are in sync again."""
    create(own, "eligible", min_insync_replicas="2")
    leader, (other, last) = parts(own, "eligible")
    assert [described(one, "eligible") for one in own.up()] == [((), ())] * 3
    other.kill()
    own.wait_in_sync("eligible", leader.id, last.id)
    leader.kill()
    own.wait_in_sync("eligible", last.id)
    wait_until(lambda: described(last, "eligible") == ((leader.id,), ()))
    own.start(leader.id)
    own.wait_in_sync("eligible", leader.id, last.id)
    assert [described(one, "eligible") for one in own.up()] == [((), ())] * 2


def described(running: Running, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ask a broker for the ELR of a partition, and for its last known members."""
    with KafkaClient(running.servers) as client:
        names = [m.DescribeTopicPartitionsRequest.TopicRequest(name)]
        answer = client.call("DescribeTopicPartitions", topics=names, response_partition_limit=10)
    (row,) = answer.topics[0].partitions
    return row.eligible_leader_replicas, row.last_known_elr


# --- producers ------------------------------------------------------------------------------------


def test_no_two_brokers_give_one_producer_id(shared: ClusterBrokers) -> None:
    """Each broker takes blocks from the coordination store, as in Kafka."""
    found: list[int] = []
    for _ in range(3):
        for broker in (1, 2, 3):
            with shared.client(broker) as client:
                found.append(client.call("InitProducerId", transactional_id=None).producer_id)
    assert len(set(found)) == 9
    block = json.loads(shared.admin.get(PATH).data)
    assert block["version"] == 1 and block["broker"] in (1, 2, 3)
    assert int(block["block_end"]) - int(block["block_start"]) == 999
    assert max(found) <= int(block["block_end"])


def test_the_next_leader_knows_the_duplicates(own: ClusterBrokers) -> None:
    """A batch that is sent again after a lost answer gets its old offset from the new leader."""
    create(own, "once")
    leader, _ = parts(own, "once")
    batches = [batch_of(b"%d" % number, producer=(7, 0, number)) for number in range(3)]
    with KafkaClient(leader.servers) as client:
        assert [client.produce("once", one).base_offset for one in batches] == [0, 1, 2]
        assert client.produce("once", batches[1]).base_offset == 1
    leader.kill()
    with KafkaClient(own.leader("once", other_than=leader.id).servers) as client:
        assert [client.produce("once", one).base_offset for one in batches] == [0, 1, 2]
        gap = client.produce("once", batch_of(b"x", producer=(7, 0, 9)))
        assert code(gap) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_bad_batch_is_refused_by_the_log(shared: ClusterBrokers) -> None:
    """As without a cluster, the next batch is accepted."""
    create(shared, "bad")
    leader, _ = parts(shared, "bad")
    damaged = bytearray(batch_of(b"value"))
    damaged[-1] ^= 1
    with KafkaClient(leader.servers) as client:
        assert code(client.produce("bad", bytes(damaged))) is ErrorCode.CORRUPT_MESSAGE
        assert code(client.produce("bad", batch_of(b"x", attributes=6))) is ErrorCode.INVALID_RECORD
        assert client.produce("bad", batch_of(b"value")).base_offset == 0


# --- topics, groups, followers --------------------------------------------------------------------


def test_a_topic_that_is_created_again_has_another_id(own: ClusterBrokers) -> None:
    """A producer that names the old id does not write into the new topic."""
    old = create(own, "again")
    with own.client(2) as client:
        topics = [m.DeleteTopicsRequest.DeleteTopicState("again")]
        answer = client.call("DeleteTopics", topics=topics, timeout_ms=LONG_MS)
        assert code(answer.responses[0]) is ErrorCode.NONE
    new = create(own, "again")
    assert new != old
    leader, _ = parts(own, "again")
    with KafkaClient(leader.servers) as client:
        for topic_id, expected in (
            (old, ErrorCode.UNKNOWN_TOPIC_ID),
            (new, ErrorCode.NONE),
        ):
            answer = client.call("Produce", 13, **produce_fields({(topic_id, 0): batch_of(b"x")}))
            assert code(answer.responses[0].partition_responses[0]) is expected
    assert leader.store["again", 0].log_end_offset == 1


def test_a_fetch_of_a_stranger_that_claims_to_follow(shared: ClusterBrokers) -> None:
    """Such a client gets no record, because only the rules of replication answer followers."""
    topic_id = create(shared, "strange")
    leader, _ = parts(shared, "strange")
    epoch = replica_of(leader, "strange").leader_epoch
    with KafkaClient(leader.servers) as client:
        client.produce("strange", batch_of(b"x"))
        fields = fetch_fields(
            {(topic_id, 0): 0},
            current_leader_epoch=epoch,
            last_fetched_epoch=-1,
            log_start_offset=0,
        )
        state = m.FetchRequest.ReplicaState(9, 1)
        answer = client.call("Fetch", 15, replica_state=state, **fields)
        (row,) = answer.responses[0].partitions
        assert code(row) is ErrorCode.NOT_LEADER_OR_FOLLOWER and not row.records
        client.send("Fetch", 12, replica_id=2, **fetch_fields({("strange", 0): 0}))
        assert client.is_closed_by_broker  # brokers of this cluster name themselves in another way


# --- starts and stops -----------------------------------------------------------------------------


def test_a_start_that_fails_leaves_nothing(own: ClusterBrokers) -> None:
    """No thread and no registration remains; a later start of the same broker works."""
    with (
        LogStore.open(own.root / "4", admin_socket=False) as store,
        LastingSession(own.coordination.connect) as session,
    ):
        settings = MemberSettings(4, str(own.root / "records-4"), look_seconds=0.3)
        before = set(threading.enumerate())
        taken = BrokerConfig(listeners=f"PLAINTEXT://127.0.0.1:{own.ports[1]}")
        with pytest.raises(OSError, match="in use"):
            ClusterBroker(store, session, settings, taken)
        with pytest.raises(NodeExistsError):  # broker 1 is registered already
            ClusterBroker(store, session, settings._replace(broker=1))
        wait_until(lambda: set(threading.enumerate()) <= before)
        with ClusterBroker(store, session, settings) as started:
            with KafkaClient(started.bootstrap_servers) as client:
                brokers = client.call("DescribeCluster").brokers
                assert [one.broker_id for one in brokers] == [1, 2, 3, 4]
            assert started.bootstrap_servers in repr(started)
        wait_until(own.know_each_other)
