"""Ask a broker many things about groups of the new protocol, to compare it with another one.

What differs between two brokers by nature is left out: ids of topics, and the texts of errors.

    PYTHONPATH=src:tests:. python -m support.consumer_group_questions

asks a real Kafka 4.1 (Java 17 and Maven), and keeps its answers.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from broker import Broker
from broker.wire import messages as m
from support import kafka_peer
from support.broker_questions import LATER
from support.kafka_client import KafkaClient
from support.mixed_group_questions import mixed, taken_over

KEPT = Path(__file__).parents[1] / "broker" / "kafka_consumer_group_answers.json"
PAUSE = threading.Event()  # never set
TRIES_MAX = 200
FULL: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
Answers = Iterator[tuple[str, object]]


class Asker:
    """One connection to a broker; `seen` numbers the topics."""

    def __init__(self, client: KafkaClient) -> None:
        self.client = client
        self.drawn = ""
        client.create("four", 4)
        client.create("one", 1)
        for _ in range(TRIES_MAX):  # which creates `__consumer_offsets`
            found = client.call("FindCoordinator", key_type=0, coordinator_keys=["g"])
            if not found.coordinators[0].error_code:
                break
            PAUSE.wait(0.05)
        answer = client.call("Metadata", topics=None)
        self.names = {bytes(topic.topic_id): topic.name for topic in answer.topics}
        self.ids = {name: topic_id for topic_id, name in self.names.items()}

    def call(self, api: str, version: int | None = None, **fields: Any) -> Any:
        """Ask again while the coordinator is not ready."""
        for _ in range(TRIES_MAX):
            answer = self.client.call(api, version, **fields)
            if getattr(answer, "error_code", 0) not in LATER:
                return answer
            PAUSE.wait(0.05)
        raise AssertionError(f"{api}: the coordinator is never ready")

    def beat(
        self, group: str, member: str, epoch: int, version: int = 1, **fields: Any
    ) -> list[object]:
        """Send a heartbeat; returns the code, the epoch, the interval and the assignment."""
        if "own" in fields:
            fields["topic_partitions"] = [
                m.ConsumerGroupHeartbeatRequest.TopicPartitions(self.ids[name], numbers)
                for name, numbers in fields.pop("own").items()
            ]
        if "topics" in fields:
            fields["subscribed_topic_names"] = fields.pop("topics")
        answer = self.call(
            "ConsumerGroupHeartbeat", version, group_id=group, member_id=member,
            member_epoch=epoch, **fields,
        )  # fmt: skip
        self.drawn = answer.member_id or ""
        given = answer.assignment
        return [
            answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms,
            None if given is None else self.counts(given.topic_partitions),
        ]  # fmt: skip

    def counts(self, rows: Any) -> dict[str, int]:
        """Say how many partitions of each topic there are; which ones may differ."""
        return {self.names[bytes(row.topic_id)]: len(row.partitions) for row in rows}

    def numbers(self, group: str, member: str) -> dict[str, list[int]]:
        """Say which partitions a member has."""
        answer = self.call("ConsumerGroupDescribe", group_ids=[group])
        for one in answer.groups[0].members:
            if one.member_id == member:
                return {
                    row.topic_name: list(row.partitions) for row in one.assignment.topic_partitions
                }
        return {}

    def describe(self, group: str) -> object:
        """Describe a group of the new protocol."""
        row = self.call("ConsumerGroupDescribe", group_ids=[group]).groups[0]
        members = sorted(
            (
                one.member_id if len(one.member_id) < 9 else "drawn", one.instance_id, one.rack_id,
                one.member_epoch, one.client_id, sorted(one.subscribed_topic_names),
                one.subscribed_topic_regex,
                self.counts(one.assignment.topic_partitions),
                self.counts(one.target_assignment.topic_partitions), one.member_type,
            )
            for one in row.members
        )  # fmt: skip
        return [
            row.error_code, row.group_state, row.group_epoch, row.assignment_epoch,
            row.assignor_name, members,
        ]  # fmt: skip

    def commit(self, group: str, member: str, epoch: int, version: int = 9) -> object:
        """Commit an offset."""
        asked = m.OffsetCommitRequest
        row = asked.OffsetCommitRequestPartition(0, committed_offset=7, committed_metadata="")
        answer = self.call(
            "OffsetCommit", version, group_id=group, member_id=member,
            generation_id_or_member_epoch=epoch,
            topics=[asked.OffsetCommitRequestTopic(name="four", partitions=[row])],
        )  # fmt: skip
        return answer.topics[0].partitions[0].error_code

    def fetch(self, group: str, member: str | None, epoch: int) -> object:
        """Fetch the committed offset."""
        asked = m.OffsetFetchRequest
        topic = asked.OffsetFetchRequestTopics(name="four", partition_indexes=[0])
        row = asked.OffsetFetchRequestGroup(group, member, epoch, [topic])
        answer = self.call("OffsetFetch", groups=[row]).groups[0]
        found = [one.committed_offset for topic in answer.topics for one in topic.partitions]
        return [answer.error_code, found]

    def listed(self, **filters: Any) -> object:
        """List groups."""
        answer = self.call("ListGroups", **filters)
        return sorted(
            (row.group_id, row.protocol_type, row.group_state, row.group_type)
            for row in answer.groups
        )

    def classic_join(
        self, group: str, member: str = "", version: int = 3, *, name: str = "range",
        kind: str = "consumer", instance: str | None = None,
    ) -> Any:  # fmt: skip
        """Join with the classic protocol."""
        asked = m.JoinGroupRequest
        protocol = asked.JoinGroupRequestProtocol(name, b"\0\0\0\0\0\1\0\4four\xff\xff\xff\xff")
        return self.call(
            "JoinGroup", version, group_id=group, session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000, member_id=member, protocol_type=kind,
            protocols=[protocol], **({} if instance is None else {"group_instance_id": instance}),
        )  # fmt: skip


def refusals(ask: Asker) -> Answers:
    """Heartbeats that are not valid."""
    beat, full = ask.beat, FULL | {"topics": ["four"]}
    for version in (0, 1):
        yield f"no member id, v{version}", beat("r", "", 1, version)
        yield f"leave without id, v{version}", beat("r", "", -1, version)
        yield f"static leave without id, v{version}", beat("r", "", -2, version, instance_id="i")
        yield f"no group, v{version}", beat("", "m", 0, version, **full)
    yield "joins without an id, v1", beat("r", "", 0, **full)
    yield "empty instance", beat("r", "m", 0, instance_id="", **full)
    yield "empty rack", beat("r", "m", 0, rack_id="", **full)
    yield "no rebalance timeout", beat("r", "m", 0, topics=["four"], topic_partitions=[])
    yield "no partitions", beat("r", "m", 0, topics=["four"], rebalance_timeout_ms=9)
    yield "joins with partitions", beat("r", "m", 0, **(full | {"own": {"four": [0]}}))
    yield "no topics", beat("r", "m", 0, **FULL)
    yield "static leave without instance", beat("r", "m", -2)
    yield "epoch -3", beat("r", "m", -3)
    yield "unknown assignor", beat("r", "m", 0, server_assignor="x", **full)
    yield "unknown group", beat("r", "m", 5)
    yield "leaves an unknown group", beat("r", "m", -1)
    bad = FULL | {"subscribed_topic_regex": "("}
    yield "bad expression", beat("r", "m", 0, **bad)
    yield "after the refusals", ask.listed(states_filter=["empty", "stable"])
    yield "describe unknown", ask.describe("r")
    yield "describe no name", ask.describe("")


def life(ask: Asker) -> Answers:
    """Two members, step by step."""
    beat, full = ask.beat, FULL | {"topics": ["four"]}
    yield "a joins", beat("g", "a", 0, **full)
    yield "alone", ask.describe("g")
    yield "a again", beat("g", "a", 1)
    yield "a says all", beat("g", "a", 1, own={"four": [0, 1, 2, 3]}, topics=["four"],
                             rebalance_timeout_ms=60_000)  # fmt: skip
    yield "a with a greater epoch", beat("g", "a", 2)
    yield "a stranger", beat("g", "x", 1)
    yield "b joins", beat("g", "b", 0, **full)
    yield "b waits", beat("g", "b", 2)
    yield "reconciling", ask.describe("g")
    yield "a learns it", beat("g", "a", 1)
    yield "a holds all", beat("g", "a", 1, own={"four": [0, 1, 2, 3]})
    yield "commit in the old epoch", ask.commit("g", "a", 1)
    yield "commit in a wrong epoch", ask.commit("g", "a", 2)
    yield "commit of a stranger", ask.commit("g", "x", 1)
    yield "commit of a tool", ask.commit("g", "", -1)
    yield "commit of an old client", ask.commit("g", "a", 0, version=8)
    yield "fetch of a member", ask.fetch("g", "a", 1)
    yield "fetch in a wrong epoch", ask.fetch("g", "a", 9)
    yield "fetch of a stranger", ask.fetch("g", "x", 1)
    yield "fetch of a tool", ask.fetch("g", None, -1)
    own = ask.numbers("g", "a")
    yield "a gives up", beat("g", "a", 1, own=own)
    yield "a lost the answer", beat("g", "a", 1, own=own)
    yield "a lost it and says nothing", beat("g", "a", 1)
    yield "a lost it and has others", beat("g", "a", 1, own={"one": [0]})
    yield "b gets two", beat("g", "b", 2)
    yield "stable", ask.describe("g")
    yield "b subscribes to two", beat("g", "b", 2, topics=["four", "one"])
    yield "b asks for range", beat("g", "b", 3, server_assignor="range")
    yield "a hears of it", beat("g", "a", 2)
    yield "listed", ask.listed(types_filter=["consumer"])
    yield "listed as stable", ask.listed(states_filter=["Stable"])
    yield "listed as classic", ask.listed(types_filter=["classic"])
    answer = ask.call("DescribeGroups", groups=["g"]).groups[0]
    yield "classic description", [answer.error_code, answer.group_state]
    answer = ask.call("DescribeGroups", 5, groups=["g"]).groups[0]
    yield "old description", [answer.error_code, answer.group_state]
    yield "delete", ask.call("DeleteGroups", groups_names=["g"]).results[0].error_code
    delete = m.OffsetDeleteRequest
    rows = [delete.OffsetDeleteRequestTopic("four", [delete.OffsetDeleteRequestPartition(0)])]
    answer = ask.call("OffsetDelete", group_id="g", topics=rows)
    yield "delete offsets", [answer.error_code, answer.topics[0].partitions[0].error_code]
    beaten = ask.call("Heartbeat", group_id="g", generation_id=2, member_id="a")
    yield "classic heartbeat", beaten.error_code
    yield "a leaves", beat("g", "a", -1)
    yield "a has left", beat("g", "a", 3)
    yield "after a left", ask.describe("g")
    yield "b leaves", beat("g", "b", -1)
    yield "empty", ask.describe("g")
    yield "commit of a tool, empty", ask.commit("g", "", -1)
    yield "classic join, empty", ask.classic_join("g").error_code
    yield "the type has changed", ask.listed()
    yield "new protocol, classic member", ask.describe("g")


def statics(ask: Asker) -> Answers:
    """Static members, and members without a say."""
    beat, full = ask.beat, FULL | {"topics": ["one", "four"]}
    yield "i joins", beat("s", "a", 0, instance_id="i", **full)
    yield "another i", beat("s", "b", 0, instance_id="i", **full)
    yield "unknown instance", beat("s", "a", 1, instance_id="j")
    yield "i beats as another", beat("s", "b", 1, instance_id="i")
    yield "another leaves", beat("s", "b", -2, instance_id="i")
    yield "unknown instance leaves", beat("s", "a", -2, instance_id="j")
    yield "i leaves for now", beat("s", "a", -2, instance_id="i")
    yield "away", ask.describe("s")
    yield "the old process", beat("s", "a", 1, instance_id="i")
    yield "i returns", beat("s", "b", 0, instance_id="i", **full)
    yield "returned", ask.describe("s")
    yield "the old process, again", beat("s", "a", 1, instance_id="i")
    yield "i leaves", beat("s", "b", -1, instance_id="i")
    yield "drawn id", [*beat("d", "", 0, version=0, **full), bool(ask.drawn)]
    yield "no topic", beat("n", "a", 0, **(FULL | {"topics": []}))
    yield "no topic, described", ask.describe("n")
    yield "unknown topic", beat("u", "a", 0, **(FULL | {"topics": ["none"]}))
    yield "unknown topic, described", ask.describe("u")
    yield "racks", beat("k", "a", 0, rack_id="r", server_assignor="range", **full)
    yield "racks, described", ask.describe("k")
    joined = ask.classic_join("c")
    yield "classic group", joined.error_code
    ask.call("LeaveGroup", 2, group_id="c", member_id=joined.member_id)
    yield "empty classic group", ask.describe("c")
    yield "takes over", beat("c", "a", 0, **full)
    yield "taken over", ask.listed(types_filter=["consumer"], states_filter=["stable"])


def answers_of(client: KafkaClient) -> dict[str, str]:
    """Ask all questions."""
    ask = Asker(client)
    return {
        f"{part.__name__}: {name}": json.dumps(answer, sort_keys=True)
        for part in (refusals, life, statics, mixed, taken_over)
        for name, answer in part(ask)
    }


def answers_of_ours(place: Path) -> dict[str, str]:
    """Ask this broker."""
    with Broker.start([place]) as broker, KafkaClient(broker.bootstrap_servers) as client:
        return answers_of(client)


def answers_of_kafka(place: Path) -> dict[str, str]:
    """Ask a broker of Kafka."""
    kafka = kafka_peer.Broker(place, [place / "a"])
    kafka.format()
    kafka.start()
    try:
        with KafkaClient(kafka.bootstrap) as client:
            return answers_of(client)
    finally:
        kafka.stop()


def main() -> int:
    """Compare; returns 1 if an answer differs."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        theirs, ours = answers_of_kafka(Path(one)), answers_of_ours(Path(two))
    KEPT.write_text(json.dumps(theirs, indent=0) + "\n", encoding="utf-8")
    differing = [name for name in theirs if ours.get(name) != theirs[name]]
    for name in differing:
        print(f"{name}\n  kafka {theirs[name]}\n  ours  {ours.get(name)}")
    print(f"{len(theirs)} questions, {len(differing)} answers differ")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
