"""Test the group requests in each version, and their errors."""

from __future__ import annotations

from typing import Any

import pytest

from broker import Broker
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.shard import Shard
from broker.wire import messages
from broker.wire.error_codes import ErrorCode
from support.kafka_client import KafkaClient

PROTOCOLS = [("range", b"what range needs"), ("roundrobin", b"what the other one needs")]


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    with KafkaClient(broker.bootstrap_servers) as client:
        client.create("committed", 3)
    return "committed"


def join(client: KafkaClient, group: str, version: int = 9, **fields: Any) -> Any:
    """Join a group; a client that has to know its id first joins twice."""
    Protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol  # noqa: N806 - a class
    asked: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [Protocol(*one) for one in PROTOCOLS],
    } | fields
    answer = client.call("JoinGroup", version, **asked)
    if answer.error_code == 79:
        answer = client.call("JoinGroup", version, **asked | {"member_id": answer.member_id})
    return answer


def sync(
    client: KafkaClient, group: str, joined: Any, version: int = 5, assignments: Any = ()
) -> Any:
    """Send a SyncGroup request; the leader sends all assignments."""
    Assignment = messages.SyncGroupRequest.SyncGroupRequestAssignment  # noqa: N806 - a class
    return client.call(
        "SyncGroup", version, group_id=group, generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type=joined.protocol_type, protocol_name=joined.protocol_name,
        assignments=[Assignment(*one) for one in assignments],
    )  # fmt: skip


def join_alone(client: KafkaClient, group: str, **fields: Any) -> Any:
    """Make a group of one member that has its assignment."""
    joined = join(client, group, **fields)
    assert joined.error_code == 0 and joined.leader == joined.member_id
    answer = sync(client, group, joined, assignments=[(joined.member_id, b"its part")])
    assert (answer.error_code, answer.assignment) == (0, b"its part")
    return joined


def commit(
    client: KafkaClient, group: str, topic: str, offset: int, version: int = 9, **fields: Any
) -> list[int]:
    """Commit the offset of partition 0, and of a partition that does not exist."""
    request = messages.OffsetCommitRequest
    rows = [
        request.OffsetCommitRequestPartition(number, offset, 7, fields.pop("metadata", "a note"))
        for number in (0, 99)
    ]
    answer = client.call(
        "OffsetCommit", version, group_id=group,
        topics=[request.OffsetCommitRequestTopic(name=topic, partitions=rows)], **fields,
    )  # fmt: skip
    return [row.error_code for row in answer.topics[0].partitions]


def fetched(
    client: KafkaClient, group: str, topic: str | None, version: int = 9, *partitions: int
) -> dict[int, tuple[int, int, str, int]]:
    """Fetch committed offsets; without a topic, fetch all offsets."""
    request = messages.OffsetFetchRequest
    if version >= 8:
        wanted = [request.OffsetFetchRequestTopics(name=topic, partition_indexes=partitions)]
        asked = request.OffsetFetchRequestGroup(group, topics=wanted if topic else None)
        (row,) = client.call("OffsetFetch", version, groups=[asked]).groups
    else:
        some = [request.OffsetFetchRequestTopic(topic, partitions)]
        row = client.call("OffsetFetch", version, group_id=group, topics=some if topic else None)
    assert not getattr(row, "error_code", 0)
    return {
        one.partition_index: (
            one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code,
        )
        for found in row.topics
        for one in found.partitions
    }  # fmt: skip


@pytest.mark.parametrize("version", range(10))
def test_join_in_every_version(client: KafkaClient, version: int) -> None:
    """The leader gets the members; the first protocol that all members support is chosen."""
    joined = join(client, f"join-{version}", version)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert joined.protocol_name == "range" and joined.leader == joined.member_id
    assert [(one.member_id, one.metadata) for one in joined.members] == [
        (joined.member_id, PROTOCOLS[0][1])
    ]
    assert joined.member_id.startswith("raw-")
    if version >= 7:
        assert joined.protocol_type == "consumer"


@pytest.mark.parametrize("version", range(6))
def test_sync_in_every_version(client: KafkaClient, version: int) -> None:
    """Each member gets its assignment; a wrong protocol gets 23 if the version names protocols."""
    group = f"sync-{version}"
    joined = join(client, group)
    answer = sync(client, group, joined, version, [(joined.member_id, b"part")])
    assert (answer.error_code, answer.assignment) == (0, b"part")
    assert sync(client, group, joined._replace(generation_id=9), version).error_code == 22
    assert sync(client, group, joined._replace(member_id="x"), version).error_code == 25
    if version == 5:
        assert answer.protocol_type == "consumer" and answer.protocol_name == "range"
        wrong = client.call(
            "SyncGroup", 5, group_id=group, generation_id=1, member_id=joined.member_id,
            protocol_type="consumer", protocol_name="roundrobin",
        )  # fmt: skip
        assert wrong.error_code == 23


@pytest.mark.parametrize("version", range(5))
def test_heartbeat_in_every_version(client: KafkaClient, version: int) -> None:
    """22 for another generation, 25 for an unknown member or group."""
    group = f"heartbeat-{version}"
    joined = join_alone(client, group)

    def beat(group: str, member: str, generation: int) -> Any:
        fields = {"group_id": group, "member_id": member, "generation_id": generation}
        return client.call("Heartbeat", version, **fields).error_code

    assert beat(group, joined.member_id, 1) == 0
    assert beat(group, joined.member_id, 2) == 22
    assert beat(group, "stranger", 1) == 25
    assert beat("nothing", joined.member_id, 1) == 25
    assert beat("", joined.member_id, 1) == 24


@pytest.mark.parametrize("version", range(6))
def test_leave_in_every_version(client: KafkaClient, version: int) -> None:
    """Afterwards the group is empty; from version 3 on, each member has its own code."""
    group = f"leave-{version}"
    joined = join_alone(client, group)
    Member = messages.LeaveGroupRequest.MemberIdentity  # noqa: N806 - a class
    members = [Member(joined.member_id), Member("stranger"), Member("", "instance")]
    fields = {"member_id": joined.member_id, "members": members} if version == 3 else {}
    fields |= {"members": members} if version > 3 else {"member_id": joined.member_id}
    answer = client.call("LeaveGroup", version, group_id=group, **fields)
    assert answer.error_code == 0
    if version >= 3:
        assert [one.error_code for one in answer.members] == [0, 25, 25]
    (row,) = client.call("DescribeGroups", groups=[group]).groups
    assert (row.error_code, row.group_state, row.members) == (0, "Empty", ())


@pytest.mark.parametrize("version", range(2, 10))
def test_commit_in_every_version(client: KafkaClient, topic: str, version: int) -> None:
    """Members and other clients can commit; a partition that does not exist gets 3."""
    group = f"commit-{version}"
    assert commit(client, group, topic, 5, version) == [0, 3]
    joined = join_alone(client, group)
    assert commit(client, group, topic, 6, version) == [25, 25]
    member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
    assert commit(client, group, topic, 7, version, **member) == [0, 3]
    late = member | {"generation_id_or_member_epoch": 0}
    assert commit(client, group, topic, 8, version, **late) == [22, 22]
    epoch = 7 if version >= 6 else -1
    assert fetched(client, group, topic, 9, 0) == {0: (7, epoch, "a note", 0)}
    missing = 69 if version >= 9 else 22
    assert commit(client, "nothing-" + group, topic, 1, version, **member) == [missing, missing]


@pytest.mark.parametrize("version", range(1, 10))
def test_fetch_in_every_version(client: KafkaClient, topic: str, version: int) -> None:
    """An offset without a commit is -1 without an error; every partition is answered."""
    group = f"fetch-{version}"
    assert commit(client, group, topic, 3) == [0, 3]
    found = fetched(client, group, topic, version, 0, 1, 77)
    epoch = 7 if version >= 5 else -1
    nothing = (-1, -1, "", 0)
    assert found == {0: (3, epoch, "a note", 0), 1: nothing, 77: nothing}
    assert fetched(client, "unknown", topic, version, 2) == {2: nothing}
    if version >= 2:
        assert fetched(client, group, None, version) == {0: (3, epoch, "a note", 0)}


@pytest.mark.parametrize("version", range(2, 5))
def test_regression_a_retention_without_end(client: KafkaClient, topic: str, version: int) -> None:
    """The longest retention ends at the largest time; before, the connection was closed."""
    assert commit(client, "for-ever", topic, 3, version, retention_time_ms=2**63 - 1) == [0, 3]
    assert fetched(client, "for-ever", topic, 9, 0)[0][0] == 3


def test_metadata_that_is_too_long(client: KafkaClient, topic: str) -> None:
    """Too long metadata gets 12, and the offset is not committed."""
    assert commit(client, "long", topic, 3, metadata="x" * 4097)[0] == 12
    assert fetched(client, "long", topic, 9, 0) == {0: (-1, -1, "", 0)}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"session_timeout_ms": 5_999}, 26),
        ({"session_timeout_ms": 1_800_001}, 26),
        ({"protocols": []}, 23),
        ({"protocol_type": ""}, 23),
        ({"member_id": "unknown"}, 25),
    ],
)
def test_a_member_that_is_refused(client: KafkaClient, fields: Any, code: int) -> None:
    """After a refused member, no part of the group is left."""
    assert join(client, "refused", **fields).error_code == code
    assert "refused" not in [row.group_id for row in client.call("ListGroups").groups]
    assert join(client, "", **fields).error_code == 24


@pytest.mark.parametrize("version", range(7))
def test_describe_in_every_version(client: KafkaClient, version: int) -> None:
    """The answer has each member's data; a missing group is Dead, in later versions an error."""
    group = f"describe-{version}"
    joined = join_alone(client, group)
    row, missing = client.call("DescribeGroups", version, groups=[group, "none"]).groups
    assert (row.error_code, row.group_state, row.protocol_type) == (0, "Stable", "consumer")
    assert row.protocol_data == "range"
    (member,) = row.members
    assert (member.member_id, member.client_id, member.client_host) == (
        joined.member_id, "raw", "/127.0.0.1",
    )  # fmt: skip
    assert (member.member_metadata, member.member_assignment) == (PROTOCOLS[0][1], b"its part")
    assert (missing.error_code, missing.group_state) == (69 if version >= 6 else 0, "Dead")


@pytest.mark.parametrize("version", range(6))
def test_list_in_every_version(client: KafkaClient, topic: str, version: int) -> None:
    """All groups are listed; later versions filter by state and type."""
    join_alone(client, f"list-{version}")
    commit(client, f"list-only-{version}", topic, 1)
    answer = client.call("ListGroups", version)
    rows = {row.group_id: row for row in answer.groups}
    assert answer.error_code == 0 and rows[f"list-{version}"].protocol_type == "consumer"
    assert rows[f"list-only-{version}"].protocol_type == ""
    if version >= 4:
        some = client.call("ListGroups", version, states_filter=["stable"]).groups
        names = {row.group_id: row.group_state for row in some}
        assert names[f"list-{version}"] == "Stable" and f"list-only-{version}" not in names
    if version >= 5:
        assert rows[f"list-{version}"].group_type == "classic"
        assert client.call("ListGroups", version, types_filter=["consumer"]).groups == ()


@pytest.mark.parametrize("version", range(3))
def test_delete_in_every_version(client: KafkaClient, topic: str, version: int) -> None:
    """68 for a group with members, 69 without a group; the offsets are deleted, too."""
    group, empty = f"delete-{version}", f"delete-empty-{version}"
    join_alone(client, group)
    commit(client, empty, topic, 4)
    answer = client.call("DeleteGroups", version, groups_names=[group, empty, "none", ""])
    codes = {row.group_id: row.error_code for row in answer.results}
    assert codes == {group: 68, empty: 0, "none": 69, "": 69}
    assert fetched(client, empty, topic, 9, 0) == {0: (-1, -1, "", 0)}


def test_delete_offsets(client: KafkaClient, topic: str) -> None:
    """Without members, any offset can be deleted, otherwise only offsets of unread topics."""
    request = messages.OffsetDeleteRequest

    def delete(group: str) -> tuple[int, list[int]]:
        rows = [request.OffsetDeleteRequestPartition(number) for number in (0, 99)]
        asked = [request.OffsetDeleteRequestTopic(topic, rows)]
        answer = client.call("OffsetDelete", group_id=group, topics=asked)
        codes = [row.error_code for one in answer.topics for row in one.partitions]
        return answer.error_code, codes

    commit(client, "offsets", topic, 4)
    assert delete("offsets") == (0, [0, 3])
    assert fetched(client, "offsets", topic, 9, 0) == {0: (-1, -1, "", 0)}
    assert delete("none") == (69, [])
    reads = subscription(topic)
    Protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol  # noqa: N806 - a class
    join_alone(client, "reading", protocols=[Protocol("range", reads)])
    assert delete("reading") == (0, [86, 86])
    other = subscription("another topic")
    join_alone(client, "reading-other", protocols=[Protocol("range", other)])
    assert delete("reading-other") == (0, [0, 3])
    join_alone(client, "no-consumers", protocol_type="connect")
    assert delete("no-consumers") == (68, [])


def subscription(topic: str) -> bytes:
    """Return the subscription of a consumer."""
    name = topic.encode()
    return b"\0\1\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff" + bytes(4)


def test_offsets_of_a_deleted_topic_are_deleted(client: KafkaClient) -> None:
    """A new topic with the same name is read from where the client's setting says."""
    client.create("short-lived")
    assert commit(client, "its-reader", "short-lived", 8) == [0, 3]
    State = messages.DeleteTopicsRequest.DeleteTopicState  # noqa: N806 - a class
    client.call("DeleteTopics", topics=[State("short-lived")])
    client.create("short-lived")
    assert fetched(client, "its-reader", "short-lived", 9, 0) == {0: (-1, -1, "", 0)}


def test_regression_no_heartbeat_and_no_sync_gets_14(
    client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During a loading, aiokafka ends after 14 to a heartbeat, and Java after 14 to a sync."""
    joined = join_alone(client, "loading")
    member = {"group_id": "loading", "member_id": joined.member_id, "generation_id": 1}

    def loading(_: Shard[Any]) -> None:
        raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    monkeypatch.setattr(Shard, "require", loading)
    assert client.call("Heartbeat", **member).error_code == 0
    assert sync(client, "loading", joined).error_code == 27
    assert join(client, "loading", member_id=joined.member_id).error_code == 14
    monkeypatch.undo()
    assert client.call("Heartbeat", **member).error_code == 0


@pytest.mark.parametrize("version", [1, 7, 9])
def test_regression_an_offset_belongs_to_one_topic_of_its_name(
    client: KafkaClient, broker: Broker, version: int
) -> None:
    """A program deleted the topic, so the offset was wrongly used for the next topic."""
    client.create("again")
    assert commit(client, "reader", "again", 5)[0] == 0
    broker.store.delete("again", 0)
    client.create("again")
    try:
        assert fetched(client, "reader", "again", version, 0)[0][0] == -1
        if version > 1:
            assert fetched(client, "reader", None, version) == {}
        assert commit(client, "reader", "again", 2)[0] == 0
        assert fetched(client, "reader", "again", version, 0)[0][0] == 2
    finally:
        broker.store.delete("again", 0)


def test_two_members_wait_for_each_other(client: KafkaClient, broker: Broker) -> None:
    """The first member must join again; then both have the same generation and one leader."""
    with KafkaClient(broker.bootstrap_servers) as other:
        first = join_alone(client, "two")
        asked = {
            "group_id": "two", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [messages.JoinGroupRequest.JoinGroupRequestProtocol("range", b"second")],
        }  # fmt: skip
        second_id = other.call("JoinGroup", 9, **asked).member_id
        other.send("JoinGroup", 9, **asked, member_id=second_id)
        beat = {"group_id": "two", "generation_id": 1, "member_id": first.member_id}
        while client.call("Heartbeat", **beat).error_code != 27:
            pass
        again = join(client, "two", member_id=first.member_id)
        _, second = other.receive("JoinGroup", 9)
        assert (again.generation_id, second.generation_id) == (2, 2)
        assert again.leader == second.leader == first.member_id and not second.members
        assert {one.member_id for one in again.members} == {first.member_id, second_id}
        number = other.send(
            "SyncGroup", group_id="two", generation_id=2, member_id=second_id,
            protocol_type="consumer", protocol_name="range",
        )  # fmt: skip
        mine = sync(client, "two", again, assignments=[(first.member_id, b"1"), (second_id, b"2")])
        answered, theirs = other.receive("SyncGroup")
        assert (answered, mine.assignment, theirs.assignment) == (number, b"1", b"2")
