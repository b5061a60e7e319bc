"""Test that a topic whose cleanup.policy has changed can still be copied to new replicas."""

from __future__ import annotations

from typing import Any

from broker.wire import messages as m
from cluster.run.hosted_replica import HostedReplica
from support.bad_dirs import NAME, SECONDS, reassign
from support.cluster_brokers import ClusterBrokers
from support.kafka_client import KafkaClient, batch_of
from support.places import fast_directory
from support.replica_nodes import wait_until

KEYS, RECORDS = 3, 60


def log_of(brokers: ClusterBrokers, broker: int) -> Any:
    return brokers[broker].store.log(NAME, 0)


def create(client: KafkaClient) -> None:
    """Create a compacted topic with its replicas on the brokers 1 and 2."""
    request = m.CreateTopicsRequest
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": "1000",
        "min.cleanable.dirty.ratio": "0",
    }
    rows = [request.CreatableTopicConfig(key, text) for key, text in settings.items()]
    placed = [request.CreatableReplicaAssignment(0, [1, 2])]
    (row,) = client.call(
        "CreateTopics", topics=[request.CreatableTopic(NAME, -1, -1, placed, rows)]
    ).topics
    assert not row.error_code, row.error_message


def stop_compacting(brokers: ClusterBrokers, client: KafkaClient) -> None:
    """Change the policy of the topic to "delete"; all its logs know it."""
    request = m.IncrementalAlterConfigsRequest
    change = request.AlterableConfig("cleanup.policy", 0, "delete")
    (row,) = client.call(
        "IncrementalAlterConfigs", resources=[request.AlterConfigsResource(2, NAME, [change])]
    ).responses
    assert not row.error_code, row.error_message
    wait_until(
        lambda: all(log_of(brokers, one).config.cleanup_policy == "delete" for one in (1, 2)),
        SECONDS,
    )


def test_regression_a_topic_that_was_compacted_gets_a_new_replica() -> None:
    """The new replica refused the first batch after a gap again and again, for ever."""
    with fast_directory() as root, ClusterBrokers(root, default_replication_factor=2) as brokers:
        with brokers.client(1) as client:
            create(client)
        leader = brokers.leader(NAME)
        with brokers.client(leader.id) as client:
            for number in range(RECORDS):
                key = b"%d" % (number % KEYS) if number else b"first"
                sent = batch_of(b"%d" % number, keys=[key])
                assert not client.produce(NAME, sent).error_code
            log_of(brokers, leader.id).flush()
            log_of(brokers, leader.id).compact()
            offsets = [record.offset for record in log_of(brokers, leader.id)]
            assert offsets[0] == 0 and len(offsets) < RECORDS
            stop_compacting(brokers, client)
        reassign(brokers, {0: [1, 2, 3]})
        brokers.wait_in_sync(NAME, 1, 2, 3)
        assert [record.offset for record in log_of(brokers, 3)] == offsets
        replica = brokers[3].broker.member.replicas.at(NAME, 0)
        assert isinstance(replica, HostedReplica) and replica.log is not None
