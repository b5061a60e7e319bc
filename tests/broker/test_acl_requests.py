"""Test DescribeAcls, CreateAcls and DeleteAcls: every version, every filter, and bad numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.wire import messages as m
from support.access_probes import member_fields
from support.guarded_broker import GuardedBroker
from support.kafka_client import KafkaClient, batch_of, fetch_fields

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER = 2, 3, 4
READ, WRITE, DENY, ALLOW = 3, 4, 2, 3
Creation = m.CreateAclsRequest.AclCreation
Filter = m.DeleteAclsRequest.DeleteAclsFilter
ROWS = (
    (TOPIC, "orders", LITERAL, "User:alice", "*", READ, ALLOW),
    (TOPIC, "orders", LITERAL, "User:bob", "10.0.0.1", WRITE, DENY),
    (TOPIC, "*", LITERAL, "User:alice", "*", READ, ALLOW),
    (TOPIC, "ord", PREFIXED, "User:*", "*", READ, ALLOW),
    (GROUP, "orders", LITERAL, "User:alice", "*", READ, ALLOW),
    (CLUSTER, "kafka-cluster", LITERAL, "User:alice", "*", 8, ALLOW),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with GuardedBroker(tmp_path_factory.mktemp("acls"), max_acls=50) as running:
        yield running


@pytest.fixture
def admin(broker: GuardedBroker) -> Iterator[KafkaClient]:
    with KafkaClient(broker.address("ADMIN")) as client:
        client.call("DeleteAcls", filters=[chosen()])
        creations = [Creation(*row) for row in ROWS]
        answer = client.call("CreateAcls", creations=creations)
        assert [tuple(row) for row in answer.results] == [(0, None)] * len(ROWS)
        yield client


def chosen(
    kind: int = ANY, name: str | None = None, pattern: int = ANY, principal: str | None = None,
    host: str | None = None, operation: int = ANY, permission: int = ANY,
) -> Any:  # fmt: skip
    """Make a filter."""
    return Filter(kind, name, pattern, principal, host, operation, permission)


def described(client: KafkaClient, version: int | None = None, **wanted: Any) -> set[Any]:
    """List what a filter selects, as the rows above."""
    fields = chosen(**wanted)._asdict()
    answer = client.call("DescribeAcls", version, **fields)
    assert answer.error_code == 0 and answer.error_message is None
    return {
        (one.resource_type, one.resource_name, one.pattern_type, *acl)
        for one in answer.resources
        for acl in one.acls
    }


FILTERS: tuple[tuple[dict[str, Any], set[int]], ...] = (
    ({}, {0, 1, 2, 3, 4, 5}),
    ({"kind": TOPIC}, {0, 1, 2, 3}),
    ({"name": "orders"}, {0, 1, 4}),
    ({"name": "orders", "pattern": LITERAL}, {0, 1, 4}),
    ({"name": "orders", "pattern": MATCH}, {0, 1, 2, 3, 4}),
    ({"name": "orders-eu", "pattern": MATCH, "kind": TOPIC}, {2, 3}),
    ({"name": "ord", "pattern": PREFIXED}, {3}),
    ({"pattern": PREFIXED}, {3}),
    ({"name": "*"}, {2}),
    ({"principal": "User:alice"}, {0, 2, 4, 5}),
    ({"principal": "User:*"}, {3}),
    ({"host": "10.0.0.1"}, {1}),
    ({"operation": WRITE}, {1}),
    ({"permission": DENY}, {1}),
    ({"kind": 7}, set()),
)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_filters_select(admin: KafkaClient, version: int) -> None:
    """ANY and null select everything; MATCH selects patterns that match a resource of the name."""
    for wanted, numbers in FILTERS:
        found = described(admin, version, **wanted)
        assert found == {ROWS[number] for number in numbers}, wanted


@pytest.mark.parametrize("version", [1, 2, 3])
def test_filters_delete(admin: KafkaClient, version: int) -> None:
    """Each filter answers with the ACLs that it has selected.

    Two filters may select the same ACL.
    """
    filters = [chosen(permission=DENY), chosen(name="orders"), chosen(kind=7)]
    answer = admin.call("DeleteAcls", version, filters=filters)
    found = [[tuple(acl[2:]) for acl in row.matching_acls] for row in answer.filter_results]
    assert found[0] == [ROWS[1]] and set(found[1]) == {ROWS[0], ROWS[1], ROWS[4]} and not found[2]
    assert described(admin) == {ROWS[2], ROWS[3], ROWS[5]}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_wrong_binding_does_not_affect_the_others(admin: KafkaClient, version: int) -> None:
    """A wrong binding gets error 42 with the reason; the other bindings are created."""
    good = (GROUP, "g/1", PREFIXED, "Group:staff", "::1", 2, DENY)
    bad = [
        (TOPIC, "", LITERAL, "User:a", "*", READ, ALLOW),
        (TOPIC, "t", MATCH, "User:a", "*", READ, ALLOW),
        (ANY, "t", LITERAL, "User:a", "*", READ, ALLOW),
        (TOPIC, "t", LITERAL, "a", "*", READ, ALLOW),
        (TOPIC, "t", LITERAL, "User:a", "", READ, ALLOW),
        (TOPIC, "t", LITERAL, "User:a", "*", ANY, ALLOW),
        (TOPIC, "t", LITERAL, "User:a", "*", READ, ANY),
        (CLUSTER, "c", LITERAL, "User:a", "*", READ, ALLOW),
        (TOPIC, "t", LITERAL, "User:" + "x" * 1020, "*", READ, ALLOW),
        *((number, "t", LITERAL, "User:a", "*", READ, ALLOW) for number in (0, 8, -1, 127)),
        *((TOPIC, "t", number, "User:a", "*", READ, ALLOW) for number in (0, 5, -128)),
        *((TOPIC, "t", LITERAL, "User:a", "*", number, ALLOW) for number in (0, 16, -5)),
        *((TOPIC, "t", LITERAL, "User:a", "*", READ, number) for number in (0, 4, 100)),
    ]
    creations = [Creation(*row) for row in (*bad, good)]
    results = admin.call("CreateAcls", version, creations=creations).results
    assert [row.error_code for row in results] == [42] * len(bad) + [0]
    assert all(row.error_message for row in results[:-1])
    assert described(admin) == {*ROWS, good}


def test_a_wrong_filter_selects_nothing(admin: KafkaClient) -> None:
    """A wrong filter gets error 42; the other filters of the request still work."""
    wrongs: tuple[dict[str, Any], ...] = (
        {"kind": 0}, {"pattern": 9}, {"operation": -1}, {"permission": 0},
    )  # fmt: skip
    for wrong in wrongs:
        answer = admin.call("DescribeAcls", **chosen(**wrong)._asdict())
        assert answer.error_code == 42 and answer.error_message
        filters = [chosen(**wrong), chosen(host="10.0.0.1")]
        rows = admin.call("DeleteAcls", filters=filters).filter_results
        assert rows[0].error_code == 42 and rows[1].error_code == 0
    assert described(admin) == {*ROWS} - {ROWS[1]}


def test_too_many_acls_are_refused(admin: KafkaClient) -> None:
    """A request that would make too many ACLs gets error 44, and none of its ACLs is created."""
    creations = [
        Creation(TOPIC, f"t{number}", LITERAL, "User:a", "*", READ, ALLOW) for number in range(60)
    ]
    results = admin.call("CreateAcls", creations=creations).results
    assert {row.error_code for row in results} == {44} and "max_acls" in results[0].error_message
    assert described(admin) == {*ROWS}


def test_rights_count_at_once(broker: GuardedBroker, admin: KafkaClient) -> None:
    """A granted or removed right takes effect at once, even on an open connection."""
    admin.create("fresh")
    asked = [m.MetadataRequest.MetadataRequestTopic(name="fresh")]
    with KafkaClient(broker.address("ALICE")) as alice:
        admin.call("DeleteAcls", filters=[chosen()])
        assert alice.call("Metadata", topics=asked).topics[0].error_code == 29
        row = Creation(TOPIC, "fr", PREFIXED, "User:alice", "127.0.0.1", READ, ALLOW)
        admin.call("CreateAcls", creations=[row])
        answer = alice.call("Metadata", topics=asked, include_topic_authorized_operations=True)
        assert answer.topics[0].error_code == 0
        assert answer.topics[0].topic_authorized_operations == 1 << 3 | 1 << 8  # READ, DESCRIBE
        admin.call("DeleteAcls", filters=[chosen(kind=TOPIC)])
        assert alice.call("Metadata", topics=asked).topics[0].error_code == 29


def test_a_waiting_fetch_ends_when_its_right_is_taken_away(
    broker: GuardedBroker, admin: KafkaClient
) -> None:
    """A waiting fetch ends at the next record, which a client without the right does not get."""
    admin.create("watched")
    admin.call("DeleteAcls", filters=[chosen()])
    row = Creation(TOPIC, "watched", LITERAL, "User:alice", "*", READ, ALLOW)
    admin.call("CreateAcls", creations=[row])
    with KafkaClient(broker.address("ALICE")) as alice:
        fields = fetch_fields({("watched", 0): 0}, max_wait_ms=20_000)
        alice.send("Fetch", 12, **fields)
        admin.call("DeleteAcls", filters=[chosen(name="watched")])
        admin.produce("watched", batch_of(b"SECRET"))
        frame = alice.read_frame()
        assert b"SECRET" not in frame and b"\x00\x1d" in frame  # error 29


def test_operations_are_shown_if_they_are_asked_for(
    broker: GuardedBroker, admin: KafkaClient
) -> None:
    """A super user has all operations of Kafka on a topic, a group and the cluster."""
    admin.create("shown")
    asked = [m.MetadataRequest.MetadataRequestTopic(name="shown")]
    answer = admin.call(
        "Metadata", 10, topics=asked, include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )  # fmt: skip
    topic, cluster = bits(3, 4, 5, 6, 7, 8, 10, 11), bits(5, 7, 8, 9, 10, 11, 12)
    assert answer.topics[0].topic_authorized_operations == topic
    assert answer.cluster_authorized_operations == cluster
    answer = admin.call("DescribeCluster", include_cluster_authorized_operations=True)
    assert answer.cluster_authorized_operations == cluster
    assert admin.call("DescribeCluster").cluster_authorized_operations == -(2**31)
    assert admin.call("Metadata", topics=asked).topics[0].topic_authorized_operations == -(2**31)
    answer = admin.call("DescribeGroups", 5, groups=["none"], include_authorized_operations=True)
    assert answer.groups[0].authorized_operations == bits(3, 6, 8, 10, 11)
    admin.call("FindCoordinator", key_type=0, coordinator_keys=["new"])
    fields = member_fields("new", subscribed_topic_names=["a"])
    assert admin.call("ConsumerGroupHeartbeat", **fields).error_code == 0
    for is_asked, expected in ((True, bits(3, 6, 8, 10, 11)), (False, -(2**31))):
        (row,) = admin.call(
            "ConsumerGroupDescribe", group_ids=["new"], include_authorized_operations=is_asked
        ).groups
        assert (row.error_code, row.authorized_operations) == (0, expected)


def bits(*numbers: int) -> int:
    """Make a number with a bit for each operation."""
    return sum(1 << number for number in numbers)
