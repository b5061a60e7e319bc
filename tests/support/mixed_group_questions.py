"""Ask a broker about groups with members of both protocols; see `consumer_group_questions`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.wire import messages as m
from support.classic_clients import assignment_data

FULL: dict[str, Any] = {
    "rebalance_timeout_ms": 60_000, "topic_partitions": [], "topics": ["four"],
}  # fmt: skip
FOUR = assignment_data([("four", number) for number in range(4)], version=0)
Answers = Iterator[tuple[str, object]]


def joined(answer: Any) -> list[object]:
    """Say what a JoinGroup was answered, without the ids."""
    leads = bool(answer.leader) and answer.leader == answer.member_id
    return [
        answer.error_code, answer.generation_id, answer.protocol_name or "", leads,
        len(answer.members),
    ]  # fmt: skip


def sync(
    ask: Any, member: str, generation: int, group: str = "m", *, leads: bool = False
) -> list[object]:
    """Ask for the assignment of a classic member; a leader gives itself all partitions."""
    Row = m.SyncGroupRequest.SyncGroupRequestAssignment  # noqa: N806 - a class
    answer = ask.call(
        "SyncGroup", 3, group_id=group, generation_id=generation, member_id=member,
        assignments=[Row(member, FOUR)] if leads else [],
    )  # fmt: skip
    data = bytes(answer.assignment)
    return [answer.error_code, len(data), data[:2].hex()]


def classic_beat(ask: Any, member: str, generation: int) -> int:
    """Send a heartbeat of the classic protocol."""
    answer = ask.call("Heartbeat", group_id="m", generation_id=generation, member_id=member)
    return int(answer.error_code)


def leave(ask: Any, member: str) -> list[int]:
    """Leave a group with the classic protocol."""
    row = m.LeaveGroupRequest.MemberIdentity(member)
    answer = ask.call("LeaveGroup", 3, group_id="m", members=[row])
    return [answer.error_code, *(one.error_code for one in answer.members)]


def row_of(ask: Any, group: str) -> list[Any]:
    """Return the row of a group in the list of groups."""
    return [row for row in ask.listed() if row[0] == group]


def mixed(ask: Any) -> Answers:
    """Members of both protocols in one group, and the conversions of the group."""
    beat = ask.beat
    first = ask.classic_join("m")
    c = first.member_id
    yield "the classic member joins", joined(first)
    yield "the leader assigns", sync(ask, c, 1, leads=True)
    yield "a new member joins the classic group", beat("m", "n", 0, **FULL)
    yield "listed", row_of(ask, "m")
    yield "described", ask.describe("m")
    answer = ask.call("DescribeGroups", groups=["m"]).groups[0]
    yield "classic description", [answer.error_code, answer.group_state]
    yield "a classic heartbeat", classic_beat(ask, c, 1)
    yield "a classic heartbeat in a wrong generation", classic_beat(ask, c, 2)
    yield "a classic heartbeat of the new member", classic_beat(ask, "n", 2)
    yield "a classic heartbeat of a stranger", classic_beat(ask, "x", 2)
    yield "a sync before it joins again", sync(ask, c, 1)
    yield "a commit in its generation", ask.commit("m", c, 1)
    yield "a commit in a wrong generation", ask.commit("m", c, 2)
    yield "a commit of an old client", ask.commit("m", c, 1, version=7)
    yield "a fetch in a wrong generation", ask.fetch("m", c, 9)
    yield "the classic member joins again", joined(ask.classic_join("m", c))
    yield "it syncs", sync(ask, c, 2)
    yield "it syncs in a wrong generation", sync(ask, c, 1)
    yield "the new member syncs", sync(ask, "n", 2)
    yield "it has its share", classic_beat(ask, c, 2)
    yield "the new member gets its share", beat("m", "n", 2)
    yield "stable", ask.describe("m")
    named = ask.classic_join("m", version=4)
    yield "a second classic member asks for an id", joined(named)
    yield "a second classic member joins", joined(ask.classic_join("m", named.member_id, 4))
    yield "a stranger joins with an id", joined(ask.classic_join("m", "stranger"))
    yield "the stranger leaves", leave(ask, "stranger")
    yield "the second classic member leaves", leave(ask, named.member_id)
    yield "an unknown member leaves", leave(ask, "nobody")
    yield "another protocol", joined(ask.classic_join("m", name="sticky"))
    yield "another type", joined(ask.classic_join("m", kind="connect"))
    yield "a group that others have left", ask.describe("m")
    yield "the new member leaves", beat("m", "n", -1)
    yield "a classic group again", row_of(ask, "m")
    yield "the classic member joins the classic group", joined(ask.classic_join("m", c))[:1]


def taken_over(ask: Any) -> Answers:
    """A static member changes its protocol, and changes it back."""
    statically = ask.classic_join("t", instance="i", version=5)
    yield "a static classic member joins", joined(statically)
    yield "its leader assigns", sync(ask, statically.member_id, 1, "t", leads=True)
    yield "its new process takes over", ask.beat("t", "n", 0, instance_id="i", **FULL)
    yield "taken over", ask.describe("t")
    back = ask.classic_join("t", instance="i", version=5)
    yield "its classic process takes over", joined(back)[:1]
    yield "taken back", [row[:2] + row[3:] for row in row_of(ask, "t")]
