"""Kill -9 a broker under consumer groups: they go on from what they committed, in one generation.

`LOGSTORE_BROKER_KILLS` sets how often; `make kill-broker` does it 1,000 times.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from typing import Any

import pytest

from broker.wire import messages
from support.broker_process import KILLS, serve, tell
from support.kafka_client import KafkaClient
from support.places import fast_directory

GROUPS = 3
Request = messages.OffsetCommitRequest


class Member:
    """The only member of a group: it commits one offset after the other."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.sent = self.acknowledged = -1
        self.answers = 0

    def run(self, servers: str) -> None:
        """Commit until the broker dies."""
        try:
            with KafkaClient(servers) as client:
                if self.generation < 0:
                    self.join(client)
                assert self.acknowledged <= self.committed(client) <= self.sent
                answer = client.call(
                    "Heartbeat", group_id=self.group, member_id=self.member_id,
                    generation_id=self.generation,
                )  # fmt: skip
                assert answer.error_code == 0, "the group has lost its member"
                while True:
                    self.commit(client)
        except (OSError, EOFError):
            return

    def _until_loaded(self, client: KafkaClient, name: str, **fields: Any) -> Any:
        answer = client.call(name, **fields)
        while answer.error_code == 14:
            answer = client.call(name, **fields)
        return answer

    def join(self, client: KafkaClient) -> None:
        """Make the group; its generation counts once its assignment is acknowledged."""
        Protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol  # noqa: N806 - a class
        Assignment = messages.SyncGroupRequest.SyncGroupRequestAssignment  # noqa: N806 - a class
        fields: dict[str, Any] = {
            "group_id": self.group, "session_timeout_ms": 600_000, "rebalance_timeout_ms": 1000,
            "protocol_type": "consumer", "protocols": [Protocol("range", b"")],
        }  # fmt: skip
        named = self._until_loaded(client, "JoinGroup", **fields)
        joined = client.call("JoinGroup", **fields, member_id=named.member_id)
        if joined.error_code == 0:
            synced = client.call(
                "SyncGroup", group_id=self.group, generation_id=joined.generation_id,
                member_id=joined.member_id, protocol_type="consumer", protocol_name="range",
                assignments=[Assignment(joined.member_id, b"all of it")],
            )  # fmt: skip
            if synced.error_code == 0:
                self.member_id, self.generation = joined.member_id, joined.generation_id

    def commit(self, client: KafkaClient) -> None:
        """Commit the next offset."""
        self.sent += 1
        row = Request.OffsetCommitRequestPartition(0, self.sent, -1, "")
        answer = client.call(
            "OffsetCommit", group_id=self.group, member_id=self.member_id,
            generation_id_or_member_epoch=self.generation,
            topics=[Request.OffsetCommitRequestTopic(name="t", partitions=[row])],
        )  # fmt: skip
        assert answer.topics[0].partitions[0].error_code == 0
        self.acknowledged = self.sent
        self.answers += 1

    def committed(self, client: KafkaClient) -> int:
        """Ask what the broker knows."""
        Fetch = messages.OffsetFetchRequest  # noqa: N806 - a class
        topics = [Fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        asked = Fetch.OffsetFetchRequestGroup(self.group, topics=topics)
        row = client.call("OffsetFetch", groups=[asked]).groups[0]
        while row.error_code == 14:  # the groups are being loaded
            row = client.call("OffsetFetch", groups=[asked]).groups[0]
        assert row.error_code == 0
        return int(row.topics[0].partitions[0].committed_offset)


@pytest.mark.timeout(120 + 10 * KILLS)
def test_groups_outlive_kills() -> None:
    """What was committed is there after each kill, and the members need not join again."""
    seed = random.SystemRandom().randrange(2**32)
    rng = random.Random(seed)
    members = [Member(f"group-{number}") for number in range(GROUPS)]
    with fast_directory() as base:
        paths = [base / "a", base / "b"]
        for turn in range(KILLS):
            child, servers = serve(paths)
            with child, KafkaClient(servers) as client:
                if not turn:
                    client.create("t")
                failures: list[AssertionError] = []
                threads = [
                    threading.Thread(target=caught, args=(one, servers, failures))
                    for one in members
                ]
                for thread in threads:
                    thread.start()
                before = [one.answers for one in members]
                deadline = time.monotonic() + 30
                while any(one.answers <= was for one, was in zip(members, before, strict=True)):
                    assert not failures and time.monotonic() < deadline, (seed, failures)
                    threading.Event().wait(0.001)
                threading.Event().wait(rng.random() * 0.1)
                child.send_signal(signal.SIGKILL)
                for thread in threads:
                    thread.join()
                assert not failures, (seed, failures)
            tell(turn, seed, sum(one.answers for one in members))
    print(f"{sum(one.answers for one in members)} commits over {KILLS} kills, seed {seed}")


def caught(member: Member, servers: str, failures: list[AssertionError]) -> None:
    """Run a member in a thread."""
    try:
        member.run(servers)
    except AssertionError as error:
        failures.append(error)
