"""Ask a broker many small things, to compare its answers with those of another one.

Each question has a name; its answer is plain data, without what differs between two brokers by
nature: ids of brokers, members and topics, and paths.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from broker.wire import messages as m
from support.kafka_client import KafkaClient, batch_of

LATER = (14, 15, 16)  # a coordinator that is not ready: clients ask again
MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
PAUSE = threading.Event()  # never set
Answers = Iterator[tuple[str, object]]


class Asker:
    """One connection to a broker, and what the questions need to know of it."""

    def __init__(self, client: KafkaClient, node_id: int, log_dirs: Sequence[str]) -> None:
        self.client = client
        self.node = node_id
        self.log_dirs = log_dirs

    def alter(self, kind: int, name: str, *changes: tuple[str, int, str | None]) -> list[int]:
        """Change settings one by one; returns the codes."""
        asked = m.IncrementalAlterConfigsRequest
        rows = [asked.AlterableConfig(*change) for change in changes]
        answer = self.client.call(
            "IncrementalAlterConfigs", resources=[asked.AlterConfigsResource(kind, name, rows)]
        )
        return [row.error_code for row in answer.responses]

    def replace(self, name: str, **settings: str) -> list[int]:
        """Replace all settings of a topic."""
        asked = m.AlterConfigsRequest
        rows = [
            asked.AlterableConfig(key.replace("_", "."), text) for key, text in settings.items()
        ]
        resource = asked.AlterConfigsResource(2, name, rows)
        answer = self.client.call("AlterConfigs", resources=[resource])
        return [row.error_code for row in answer.responses]

    def add_partitions(
        self, name: str, count: int, brokers: Any = None, dry: bool = False
    ) -> list[int]:
        """Ask for more partitions."""
        asked = m.CreatePartitionsRequest
        given = brokers and [asked.CreatePartitionsAssignment(one) for one in brokers]
        answer = self.client.call(
            "CreatePartitions", topics=[asked.CreatePartitionsTopic(name, count, given)],
            timeout_ms=5000, validate_only=dry,
        )  # fmt: skip
        return [row.error_code for row in answer.results]

    def delete_records(
        self, name: str, partition: int, offset: int, timeout_ms: int = 5000
    ) -> tuple[int, int]:
        """Delete records before an offset."""
        asked = m.DeleteRecordsRequest
        topic = asked.DeleteRecordsTopic(name, [asked.DeleteRecordsPartition(partition, offset)])
        answer = self.client.call("DeleteRecords", topics=[topic], timeout_ms=timeout_ms)
        row = answer.topics[0].partitions[0]
        return row.error_code, row.low_watermark

    def move(self, path: str, name: str, partition: int) -> object:
        """Move a replica to a log dir."""
        asked = m.AlterReplicaLogDirsRequest
        topic = asked.AlterReplicaLogDirTopic(name, [partition])
        answer = self.client.call(
            "AlterReplicaLogDirs", dirs=[asked.AlterReplicaLogDir(path, [topic])]
        )
        return [(row.topic_name, [tuple(one) for one in row.partitions]) for row in answer.results]

    def log_dirs_of(self, *topics: tuple[str, list[int]]) -> object:
        """Describe the log dirs, and some partitions in them."""
        asked = m.DescribeLogDirsRequest
        answer = self.client.call(
            "DescribeLogDirs", topics=[asked.DescribableLogDirTopic(*one) for one in topics]
        )
        return answer.error_code, sorted(
            (
                Path(row.log_dir).name, row.error_code, row.total_bytes > 0, row.usable_bytes > 0,
                [(topic.name, [one[0::2] for one in topic.partitions]) for topic in row.topics],
            )
            for row in answer.results
        )  # fmt: skip

    def reassign(self, name: str, partition: int, replicas: Any) -> object:
        """Give a partition other brokers."""
        asked = m.AlterPartitionReassignmentsRequest
        topic = asked.ReassignableTopic(name, [asked.ReassignablePartition(partition, replicas)])
        answer = self.client.call("AlterPartitionReassignments", topics=[topic])
        return answer.error_code, [
            one.error_code for row in answer.responses for one in row.partitions
        ]

    def elect(self, kind: int, name: str, partition: int) -> object:
        """Have a leader elected."""
        asked = [m.ElectLeadersRequest.TopicPartitions(name, [partition])]
        answer = self.client.call(
            "ElectLeaders", election_type=kind, topic_partitions=asked, timeout_ms=3000
        )
        return answer.error_code, [
            (row.topic, [one[:2] for one in row.partition_result])
            for row in answer.replica_election_results
        ]


def administration(ask: Asker) -> Answers:
    """Settings and the number of partitions."""
    client, node = ask.client, str(ask.node)
    client.create("t", 3)
    changes: list[tuple[str, int, str | None]] = [
        ("retention.ms", 0, "5"), ("nonsense", 0, "5"), ("retention.ms", 0, "x"),
        ("retention.ms", 0, None), ("retention.ms", 2, "5"), ("cleanup.policy", 2, "compact"),
        ("cleanup.policy", 3, "delete"), ("retention.ms", 1, None), ("segment.bytes", 0, "5"),
    ]  # fmt: skip
    for change in changes:
        yield f"set {change}", ask.alter(2, "t", change)
    yield "set twice", ask.alter(2, "t", ("retention.ms", 0, "1"), ("retention.ms", 0, "2"))
    for kind, name in ((2, "none"), (2, ""), (2, "no/name"), (4, "77"), (16, "x"), (99, "x")):
        yield f"set of {kind} {name!r}", ask.alter(kind, name, ("retention.ms", 0, "1"))
    yield "set broker.id", ask.alter(4, node, ("broker.id", 0, "7"))
    yield "set the rate of moves", ask.alter(4, node, (MOVE_RATE, 0, "1000"))
    yield "reset the rate of moves", ask.alter(4, node, (MOVE_RATE, 1, None))
    yield "replace", ask.replace("t", retention_ms="6")
    yield "replace of none", ask.replace("none")
    yield "replace with nonsense", ask.replace("t", q="6")
    for count in (3, 2, 0, -1):
        yield f"{count} partitions", ask.add_partitions("t", count)
    yield "partitions of none", ask.add_partitions("none", 3)
    yield "partitions, dry", ask.add_partitions("t", 5, dry=True)
    yield "4 partitions", ask.add_partitions("t", 4)
    yield "on this broker", ask.add_partitions("t", 5, [[ask.node]])
    yield "on another broker", ask.add_partitions("t", 6, [[99]])
    yield "too many brokers", ask.add_partitions("t", 6, [[ask.node], [ask.node]])


def replicas(ask: Asker) -> Answers:
    """Deleted records, log dirs, reassignments, elections, lists of what has settings."""
    client = ask.client
    client.create("d", 1)
    client.create("k", 1, cleanup_policy="compact")
    client.produce("d", batch_of(b"1", b"2", b"3"))
    for offset in (1, 0, -1, 9, -2):
        yield f"delete to {offset}", ask.delete_records("d", 0, offset)
    for name, partition in (("d", 9), ("none", 0), ("k", 0)):
        yield f"delete of {name}-{partition}", ask.delete_records(name, partition, 0)
    first = ask.log_dirs[0]
    for path, name, partition in (
        (first, "d", 0), (ask.log_dirs[1], "d", 0), ("/nowhere", "d", 0), ("relative", "d", 0),
        (first, "none", 0), (first, "d", 5), (first, "no/name", 0),
    ):  # fmt: skip
        yield f"move {name}-{partition} to {Path(path).name}", ask.move(path, name, partition)
    yield "log dirs", ask.log_dirs_of()
    yield "log dirs of none", ask.log_dirs_of(("none", [0]))
    for partition, brokers in ((0, [ask.node]), (0, None), (0, [99]), (0, []), (7, [ask.node])):
        named = str(brokers).replace(str(ask.node), "this")
        yield f"reassign {partition} to {named}", ask.reassign("d", partition, brokers)
    yield "reassign none", ask.reassign("none", 0, [ask.node])
    listed = client.call("ListPartitionReassignments", topics=None)
    yield "reassignments", (listed.error_code, listed.topics)
    for kind, name, partition in (
        (0, "d", 0),
        (0, "d", 7),
        (1, "d", 0),
        (0, "none", 0),
        (5, "d", 0),
    ):
        yield f"elect {kind} of {name}-{partition}", ask.elect(kind, name, partition)
    for kinds in ([2], [4], [99]):
        answer = client.call("ListConfigResources", resource_types=kinds)
        names = [row[0] for row in answer.config_resources if not row[0].startswith("_")]
        yield (
            f"resources {kinds}",
            (answer.error_code, sorted(names) if kinds == [2] else len(names)),
        )


class Member:
    """Asks as a member of a group, with the member id that was given last."""

    def __init__(self, client: KafkaClient) -> None:
        self.client = client
        self.id = ""

    def join(self, version: int = 9, **fields: Any) -> object:
        """Join once, and remember the member id."""
        Protocol = m.JoinGroupRequest.JoinGroupRequestProtocol  # noqa: N806 - a class
        asked: dict[str, Any] = {
            "group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer", "protocols": [Protocol("range", b"m")],
            "member_id": self.id,
        } | fields  # fmt: skip
        answer = self.client.call("JoinGroup", version, **asked)
        while answer.error_code in LATER:
            PAUSE.wait(0.05)
            answer = self.client.call("JoinGroup", version, **asked)
        old, leads = self.id, answer.leader == answer.member_id
        if answer.error_code in (0, 79):
            self.id = answer.member_id
        return (
            answer.error_code, answer.generation_id, answer.protocol_type, answer.protocol_name,
            leads, answer.leader == old, len(answer.members), answer.skip_assignment,
        )  # fmt: skip

    def sync(self, version: int = 5, **fields: Any) -> object:
        """Bring an assignment for itself."""
        Assignment = m.SyncGroupRequest.SyncGroupRequestAssignment  # noqa: N806 - a class
        asked: dict[str, Any] = {
            "group_id": "g", "generation_id": 1, "member_id": self.id, "protocol_type": "consumer",
            "protocol_name": "range", "assignments": [Assignment(self.id, b"as")],
        } | fields  # fmt: skip
        return tuple(self.client.call("SyncGroup", version, **asked))

    def heartbeat(self, **fields: Any) -> int:
        """Say that it lives."""
        asked: dict[str, Any] = {
            "group_id": "g", "generation_id": 1, "member_id": self.id,
        } | fields  # fmt: skip
        return int(self.client.call("Heartbeat", **asked).error_code)

    def commit(
        self, generation: int = 2, topic: str = "d", partition: int = 0, metadata: str | None = "",
        offset: int = 5, version: int = 9, **fields: Any,
    ) -> list[int]:  # fmt: skip
        """Commit one offset."""
        request = m.OffsetCommitRequest
        row = request.OffsetCommitRequestPartition(partition, offset, -1, metadata)
        asked: dict[str, Any] = {
            "group_id": "g", "generation_id_or_member_epoch": generation, "member_id": self.id,
            "topics": [request.OffsetCommitRequestTopic(name=topic, partitions=[row])],
        } | fields  # fmt: skip
        answer = self.client.call("OffsetCommit", version, **asked)
        return [one.error_code for found in answer.topics for one in found.partitions]

    def leave(self, group: str, *members: tuple[str, str | None], version: int = 5) -> object:
        """Take members out."""
        rows = [m.LeaveGroupRequest.MemberIdentity(*one) for one in members]
        fields: dict[str, Any] = {"members": rows}
        if version < 3:
            fields = {"member_id": members[0][0]}
        answer = self.client.call("LeaveGroup", version, group_id=group, **fields)
        return answer.error_code, [one.error_code for one in answer.members]


def fetched(client: KafkaClient, group: str, topics: Any, version: int = 9) -> object:
    """Fetch committed offsets."""
    request = m.OffsetFetchRequest
    if version >= 8:
        rows = topics and [
            request.OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
            for name, numbers in topics
        ]
        asked = [request.OffsetFetchRequestGroup(group, topics=rows)]
        answer = client.call("OffsetFetch", version, groups=asked).groups[0]
    else:
        rows = topics and [request.OffsetFetchRequestTopic(*one) for one in topics]
        answer = client.call("OffsetFetch", version, group_id=group, topics=rows)
    return answer.error_code, [
        (topic.name, [tuple(one) for one in topic.partitions]) for topic in answer.topics
    ]


def described(client: KafkaClient, group: str, version: int = 6) -> object:
    """Describe a group."""
    row = client.call("DescribeGroups", version, groups=[group]).groups[0]
    members = [tuple(one)[1:] for one in row.members]
    return row.error_code, bool(row.error_message), row[3:6], members, row.authorized_operations


def joining(ask: Asker) -> Answers:
    """Join, sync and heartbeat of a group of one member."""
    one, fields = Member(ask.client), dict[str, Any]()
    while ask.client.call("FindCoordinator", coordinator_keys=["g"]).coordinators[0].error_code:
        PAUSE.wait(0.05)  # it creates `__consumer_offsets`
    for fields in (
        {"group_id": ""}, {"session_timeout_ms": 5}, {"session_timeout_ms": 10**8},
        {"protocols": []}, {"protocol_type": ""}, {"member_id": "x"},
    ):  # fmt: skip
        yield f"join {fields}", one.join(**fields)
    yield "join 0 without protocols", one.join(0, protocols=[])
    yield "join 3 of a stranger", one.join(3, member_id="x")
    yield "join without rebalance timeout", Member(ask.client).join(rebalance_timeout_ms=-1)
    yield "join for an id", one.join()
    yield "join with it", one.join()
    yield "heartbeat before sync", one.heartbeat()
    for fields in (
        {"group_id": ""}, {"generation_id": 9}, {"member_id": "x"}, {"protocol_name": "y"},
        {"protocol_type": None}, {"group_id": "zz"}, {"group_instance_id": "i"}, {},
        {"assignments": ()},
    ):  # fmt: skip
        yield f"sync {fields}", one.sync(**fields)
    for fields in (
        {}, {"generation_id": 5}, {"member_id": "x"}, {"group_id": ""}, {"group_id": "zz"},
        {"group_instance_id": "i"},
    ):  # fmt: skip
        yield f"heartbeat {fields}", one.heartbeat(**fields)
    yield "the leader joins again", one.join()
    yield "heartbeat of generation 2", one.heartbeat(generation_id=2)
    yield "sync of generation 2", one.sync(generation_id=2)
    yield from offsets(ask.client, one)
    yield from endings(ask.client, one)


def offsets(client: KafkaClient, one: Member) -> Answers:
    """Commit and fetch."""
    alone: dict[str, Any] = {"generation": -1, "member_id": ""}
    for fields in (
        {}, {"generation": 1}, {"member_id": "x"}, alone, {"topic": "none"}, {"partition": 9},
        {"metadata": "x" * 5000}, {"group_id": ""}, {"group_id": "new"},
        {"group_id": "new"} | alone,
        {"group_id": "new2", "generation": -1}, {"offset": -1}, {"offset": -5},
        {"group_instance_id": "i"}, {"metadata": None, "offset": 6},
        {"group_id": "new", "version": 2} | alone, {"group_id": "new3", "member_id": ""},
        {"group_id": "new3", "member_id": "", "version": 8},
    ):  # fmt: skip
        yield f"commit {str(fields)[:60]}", one.commit(**fields)
    topics = [("d", [0, 1]), ("none", [3])]
    for group, asked, version in (
        ("g", topics, 9), ("g", None, 9), ("zz", topics, 9), ("", topics, 9), ("g", topics, 1),
        ("g", topics, 5), ("g", [], 8), ("new", None, 7), ("zz", None, 2),
    ):  # fmt: skip
        yield f"fetch {group!r} {asked} {version}", fetched(client, group, asked, version)


def endings(client: KafkaClient, one: Member) -> Answers:
    """Describe, list, leave and delete."""
    for group, version in (("g", 6), ("zz", 6), ("zz", 5), ("", 6), ("new", 6)):
        yield f"describe {group!r} {version}", described(client, group, version)
    filters: dict[str, Any]
    for filters in (
        {}, {"states_filter": ["Stable"]}, {"states_filter": ["nonsense"]},
        {"types_filter": ["classic"]}, {"types_filter": ["Consumer"]},
    ):  # fmt: skip
        answer = client.call("ListGroups", None, **filters)
        yield f"list {filters}", (answer.error_code, sorted(map(tuple, answer.groups)))
    request = m.OffsetDeleteRequest
    for group, topic in (("g", "d"), ("new", "d"), ("zz", "d"), ("new", "none"), ("", "d")):
        asked = [request.OffsetDeleteRequestTopic(topic, [request.OffsetDeleteRequestPartition(0)])]
        answer = client.call("OffsetDelete", group_id=group, topics=asked)
        codes = [row.error_code for found in answer.topics for row in found.partitions]
        yield f"delete offsets {group!r} {topic}", (answer.error_code, codes)
    for round_ in "12":
        answer = client.call("DeleteGroups", groups_names=["g", "new", "zz", ""])
        yield f"delete groups {round_}", sorted(map(tuple, answer.results))
    for group, member, version in (
        ("g", ("x", None), 5), ("g", ("", "i"), 5), ("zz", ("x", None), 5), ("", ("x", None), 5),
        ("zz", ("x", None), 2), ("g", ("x", None), 2),
    ):  # fmt: skip
        yield f"leave {group!r} {member} {version}", one.leave(group, member, version=version)
    yield "leave nobody", one.leave("g")
    yield "leave as another instance", one.leave("g", (one.id, "i"))
    yield "leave", one.leave("g", (one.id, None), ("y", None))
    yield "describe after the last", described(client, "g")
    yield "heartbeat after the last", one.heartbeat()


def static_members(ask: Asker) -> Answers:
    """A static member restarts, by newer and older versions of the protocol."""
    fields: dict[str, Any] = {"group_id": "s", "group_instance_id": "i"}
    one = Member(ask.client)
    yield "static join", one.join(**fields)
    yield "static sync", one.sync(**fields)
    old, one.id = one.id, ""
    yield "static join again", one.join(**fields)
    yield "the old one", one.heartbeat(member_id=old, **fields)
    yield "the new one", one.heartbeat(**fields)
    yield "without its instance", one.heartbeat(group_id="s")
    yield "its assignment", one.sync(assignments=(), **fields)
    new, one.id = one.id, ""
    yield "static join by version 8", one.join(8, **fields)
    yield "commit of the old one", one.commit(1, member_id=new, **fields)
    yield "commit of the new one", one.commit(1, **fields)
    yield "taken out by an administrator", one.leave("s", ("", "i"))
    yield "describe the rest", described(ask.client, "s")


def answers_of(client: KafkaClient, node_id: int, log_dirs: Sequence[str]) -> dict[str, str]:
    """Ask everything; returns the answers as text."""
    ask = Asker(client, node_id, log_dirs)
    found: dict[str, str] = {}
    for questions in (administration, replicas, joining, static_members):
        for name, answer in questions(ask):
            assert name not in found, name
            found[name] = repr(answer)
    return found
