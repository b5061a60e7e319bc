"""Test brokers of a cluster with an authorizer: CLUSTER_ACTION, and shared ACLs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.authorization.authorizer import AuthorizerSettings
from broker.authorization.bindings import Binding, Operation, ResourceType
from broker.catalog.admin.acls import Acls
from broker.wire import messages as m
from broker.wire.schemas import api_names
from broker.wire.versions import MILESTONES
from cluster.admin.documents import documents_of
from cluster.serve.cluster_broker import PEER_APIS
from support.cluster_brokers import ClusterBrokers
from support.guarded_broker import allowing
from support.kafka_client import KafkaClient, batch_of, fetch_fields
from support.serving import wait_until

BROKERS, STRANGER, ADMIN = "127.0.0.1", "127.0.0.2", "127.0.0.3"
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALL = Operation.ALL


def right(operation: Operation, kind: ResourceType, name: str, host: str) -> Binding:
    """Allow the clients of a host to do something; clients have no names here."""
    return allowing(operation, kind, name, "User:ANONYMOUS", host)


RIGHTS = [
    right(Operation.CLUSTER_ACTION, CLUSTER, "kafka-cluster", BROKERS),
    right(ALL, CLUSTER, "kafka-cluster", ADMIN),
    right(ALL, TOPIC, "*", ADMIN),
    right(ALL, GROUP, "*", ADMIN),
    right(Operation.READ, TOPIC, "open", STRANGER),
    right(Operation.ALTER, CLUSTER, "kafka-cluster", STRANGER),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterBrokers]:
    """Start two brokers whose coordination store already has ACLs."""
    root = tmp_path_factory.mktemp("cluster") / "c"
    with ClusterBrokers(
        root, (), authorizer_class_name="AclAuthorizer", super_users="User:root",
        default_replication_factor=2, min_insync_replicas=2,
    ) as made:  # fmt: skip
        Acls(documents_of(made.admin), AuthorizerSettings(), 100).create(RIGHTS)
        made.start(1)
        made.start(2)
        wait_until(made.know_each_other, "the brokers do not know each other")
        with KafkaClient(made[1].servers, source=ADMIN) as admin:
            for name in ("open", "closed"):
                admin.create(name)
                leader = made.leader(name)
                made.wait_in_sync(name, 1, 2)
                with KafkaClient(leader.servers, source=ADMIN) as client:
                    assert client.produce(name, batch_of(b"VALUE"), acks=-1).error_code == 0
        yield made


def test_a_client_that_is_no_broker_may_not_act_as_one(
    cluster: ClusterBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without CLUSTER_ACTION, a client gets error 31 before its request is executed."""
    answered: list[str | None] = []
    for running in cluster.up():
        for name in ("answer", "answer_follower"):
            real = getattr(running.broker.member, name)

            def note(request: Any, *rest: Any, real: Any = real) -> Any:
                answered.append(request.client_id)
                return real(request, *rest)

            monkeypatch.setattr(running.broker.member, name, note)
    versions = {row.key: row.last for row in MILESTONES["cluster"]}
    for key in PEER_APIS:
        with KafkaClient(cluster[1].servers, source=STRANGER) as client:
            assert client.call(api_names()[key], versions[key]).error_code == 31
    servers = cluster.leader("open").servers
    with KafkaClient(servers, source=STRANGER) as one:
        row = one.fetch("open", 0)
        assert row.error_code == 0 and row.high_watermark == 1
        follower = m.FetchRequest.ReplicaState(2, -1)
        fields = fetch_fields({(bytes(16), 0): 0}, replica_state=follower)
        assert one.call("Fetch", 17, **fields).error_code == 31
    wait_until(lambda: bool(answered), "the brokers send one another nothing")
    assert "raw" not in answered  # the id of the test's own clients


def test_a_consumer_reads_only_what_it_may(cluster: ClusterBrokers) -> None:
    """This holds even if the consumer claims the id of a broker."""
    with KafkaClient(cluster.leader("closed").servers, source=STRANGER) as client:
        assert client.fetch("closed", 0).error_code == 29
        (topic,) = client.call("Metadata", topics=None).topics
        assert topic.name == "open"


def test_each_broker_follows_a_change(cluster: ClusterBrokers) -> None:
    """A right that was removed at one broker is also removed at the other."""
    creation = m.CreateAclsRequest.AclCreation(2, "closed", 3, "User:ANONYMOUS", STRANGER, 3, 3)
    chosen = m.DeleteAclsRequest.DeleteAclsFilter(2, "closed", 3, None, None, 1, 1)
    leader = cluster.leader("closed")
    other = next(one for one in cluster.up() if one is not leader)
    with (
        KafkaClient(other.servers, source=STRANGER) as change,
        KafkaClient(leader.servers, source=STRANGER) as client,
    ):
        (made,) = change.call("CreateAcls", creations=[creation]).results
        assert made.error_code == 0
        wait_until(lambda: client.fetch("closed", 0).error_code == 0, "no right")
        (row,) = change.call("DeleteAcls", filters=[chosen]).filter_results
        assert len(row.matching_acls) == 1
        wait_until(lambda: client.fetch("closed", 0).error_code == 29, "still a right")
