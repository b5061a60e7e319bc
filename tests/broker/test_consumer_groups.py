"""Test groups of the new protocol, step by step, against KIP-848."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from broker.consumer_groups import heartbeats, leaving, records, restoring
from broker.consumer_groups.exchange import ConsumerSettings, Heartbeat, HeartbeatAnswer
from broker.consumer_groups.group import ConsumerGroup
from broker.consumer_groups.member import MemberState
from broker.groups.exchange import Now
from broker.wire.error_codes import ErrorCode as Code
from support.consumer_group_world import Topic

T, U = b"t" * 16, b"u" * 16
NONE: frozenset[Any] = frozenset()


class Bench:
    """A group, its topics and the time."""

    def __init__(self, **limits: Any) -> None:
        self.topics = {"t": Topic(T, (0, 1, 2, 3))}
        self.now = Now(0.0, 1_700_000_000_000)
        self.group = ConsumerGroup("g", ConsumerSettings(**limits), self.now)

    def beat(self, member_id: str, epoch: int = 0, **fields: Any) -> HeartbeatAnswer:
        asked = Heartbeat(member_id, epoch, **fields)
        if epoch == 0:
            full: dict[str, Any] = {"rebalance_timeout_ms": 5000, "owned": NONE}
            full |= {} if "pattern" in fields else {"topics": ("t",)}
            asked = asked._replace(**(full | fields))
        heartbeats.heartbeat(self.group, asked, self.topics, lambda: "drawn", None, self.now)
        ((_, answer),) = self.group.take_replies()
        return answer

    def leave(self, member_id: str, epoch: int = -1, instance: str | None = None) -> Code:
        answer = leaving.leave(self.group, member_id, epoch, instance, self.topics, self.now)
        return answer.error

    def wait(self, seconds: float) -> None:
        self.now = Now(self.now.seconds + seconds, self.now.wall_ms + round(seconds * 1000))
        leaving.expire(self.group, self.topics, self.now)


def state_of(bench: Bench) -> str:
    return bench.group.state.value


def places(*numbers: int, topic: bytes = T) -> frozenset[tuple[bytes, int]]:
    return frozenset((topic, number) for number in numbers)


def test_the_second_member_gets_what_the_first_one_has_given_up() -> None:
    """Each step has the epoch and the assignment that Kafka's documentation describes."""
    bench = Bench()
    assert state_of(bench) == "Empty"
    assert bench.beat("a") == (0, None, "a", 1, places(0, 1, 2, 3))
    assert state_of(bench) == "Stable"
    assert bench.beat("b") == (0, None, "b", 2, NONE)
    assert bench.group.members["b"].state is MemberState.UNRELEASED
    told = bench.beat("a", 1).assignment
    assert told is not None and len(told) == 2
    assert state_of(bench) == "Reconciling"
    assert bench.beat("b", 2).assignment is None
    assert bench.beat("a", 1).assignment is None, "nothing new"
    assert bench.beat("a", 1, owned=told) == (0, None, "a", 2, None)
    assert bench.beat("b", 2).assignment == places(0, 1, 2, 3) - told
    assert state_of(bench) == "Stable"


def test_a_member_that_leaves_is_replaced_at_the_next_heartbeat() -> None:
    """The epoch grows at once; the target is computed when the next member sends a heartbeat."""
    bench = Bench()
    bench.beat("a")
    bench.beat("b")
    assert bench.leave("b") is Code.NONE
    assert state_of(bench) == "Assigning" and bench.group.epoch == 3
    assert bench.beat("a", 1).member_epoch == 3
    assert bench.leave("b") is Code.UNKNOWN_MEMBER_ID
    assert bench.leave("a") is Code.NONE
    assert state_of(bench) == "Empty"


def test_sessions_and_rebalance_timeouts_end_members() -> None:
    """A silent member is removed after its session, a slow member after its rebalance timeout."""
    bench = Bench()
    bench.beat("a")
    bench.beat("b")
    bench.beat("a", 1)  # it must give up two partitions
    bench.wait(4.9)
    bench.beat("a", 1)
    assert set(bench.group.members) == {"a", "b"}
    bench.wait(0.2)
    assert set(bench.group.members) == {"b"}
    assert bench.beat("a", 1).error is Code.UNKNOWN_MEMBER_ID
    bench.wait(45.0)
    assert state_of(bench) == "Empty"


def test_epochs_fence() -> None:
    """A commit or a heartbeat of another epoch is refused, except after a lost answer."""
    bench = Bench()
    bench.beat("a")
    assert bench.beat("a", 2).error is Code.FENCED_MEMBER_EPOCH
    bench.topics["t"] = Topic(T, (0, 1, 2, 3, 4))
    bench.wait(2.0)
    assert bench.beat("a", 1).member_epoch == 2
    assert bench.beat("a", 1).error is Code.FENCED_MEMBER_EPOCH, "it does not say what it has"
    assert bench.beat("a", 1, owned=places(9)).error is Code.FENCED_MEMBER_EPOCH
    assert bench.beat("a", 1, owned=places(0)).member_epoch == 2
    group = bench.group
    assert group.fault_of_commit("a", None, 2) is Code.NONE
    assert group.fault_of_commit("a", None, 1) is Code.STALE_MEMBER_EPOCH
    assert group.fault_of_commit("x", None, 2) is Code.UNKNOWN_MEMBER_ID
    assert group.fault_of_commit("", None, -1) is Code.UNKNOWN_MEMBER_ID
    assert bench.beat("a", 0).member_epoch == 2, "it joins again"


def test_a_static_member_returns_to_its_partitions() -> None:
    """No partition moves, a second process is refused, and the old process is fenced."""
    bench = Bench()
    bench.beat("a", instance_id="i")
    bench.beat("b", instance_id="i", topics=("t",))
    assert bench.beat("b", instance_id="i").error is Code.UNRELEASED_INSTANCE_ID
    assert bench.leave("a", -2, "i") is Code.NONE
    assert bench.group.epoch == 1 and bench.group.members["a"].is_away
    assert bench.beat("b", instance_id="i") == (0, None, "b", 1, places(0, 1, 2, 3))
    assert bench.group.epoch == 1 and set(bench.group.members) == {"b"}
    assert bench.beat("a", 1, instance_id="i").error is Code.FENCED_INSTANCE_ID
    assert bench.beat("a", 1, instance_id="j").error is Code.UNKNOWN_MEMBER_ID
    assert bench.leave("a", -2, "i") is Code.FENCED_INSTANCE_ID
    assert bench.leave("b", -2, "i") is Code.NONE
    bench.wait(45.0)
    assert state_of(bench) == "Empty"


def test_regression_a_member_that_becomes_a_static_member_loses_no_partition() -> None:
    """Its earlier partitions had an owner for ever, so no member ever got them."""
    bench = Bench()
    bench.beat("a", instance_id="i")
    bench.beat("b")
    bench.beat("a", 1, instance_id="i", owned=places(0, 1, 2, 3))
    bench.beat("a", 1, instance_id="i", owned=places(0, 1))
    assert bench.beat("b", 2, owned=NONE).assignment == places(2, 3)
    assert bench.leave("a", -2, instance="i") is Code.NONE
    said = bench.beat("b", instance_id="i")
    assert (said.error, said.member_id, said.assignment) == (0, "b", places(0, 1, 2, 3))
    assert set(bench.group.owners.values()) == set(bench.group.members) == {"b"}
    assert bench.leave("b") is Code.NONE
    assert bench.beat("c").assignment == places(0, 1, 2, 3)


def test_expressions_are_matched_again_when_topics_change() -> None:
    """A new topic whose name matches begins an epoch."""
    bench = Bench()
    assert bench.beat("a", pattern="t.*|u").assignment == places(0, 1, 2, 3)
    bench.topics["u"] = Topic(U, (0,))
    bench.wait(2.0)
    answer = bench.beat("a", 1)
    assert (answer.member_epoch, answer.assignment) == (2, places(0, 1, 2, 3) | places(0, topic=U))
    assert bench.beat("b", pattern="(").error is Code.INVALID_REGULAR_EXPRESSION
    assert set(bench.group.members) == {"a"}
    assert bench.beat("a", 2, pattern="", topics=("u",)).error is Code.NONE
    assert bench.group.resolved == {}


class Seeing(NamedTuple):
    """A client that sees some topics."""

    names: frozenset[str]
    version: object = None

    def sees(self, name: str) -> bool:
        return name in self.names


def test_an_expression_finds_only_topics_that_its_client_may_see() -> None:
    """Changed rights take effect at the next heartbeat, even if no topic has changed."""
    bench = Bench()
    bench.topics["u"] = Topic(U, (0,))
    some, others = Seeing(frozenset("t")), Seeing(frozenset("tu"), "newer")
    assert bench.beat("a", pattern=".*", viewer=some).assignment == places(0, 1, 2, 3)
    both = places(0, 1, 2, 3) | places(0, topic=U)
    assert bench.beat("a", 1, viewer=others) == (0, None, "a", 2, both)
    assert bench.beat("a", 2, viewer=some).assignment == places(0, 1, 2, 3)
    bench.beat("b", pattern=".*", viewer=others)
    assert bench.group.resolved == {".*": frozenset("t")}, "all members with it may see the topics"


def test_regression_a_loaded_group_finds_no_topic_that_its_client_may_not_see() -> None:
    """Until the member's first heartbeat, its target had all topics, and other targets changed."""
    bench = Bench()
    bench.topics["u"] = Topic(U, (0,))
    some = Seeing(frozenset("t"))
    bench.beat("a", pattern=".*", viewer=some)
    bench.beat("b", pattern="t", viewer=some)
    found = [records.parse(*row) for row in records.changes_of(bench.group, bench.now)]
    made = restoring.restored("g", filter(None, found), bench.group.settings, bench.now)
    assert made is not None
    bench.group = made[0]
    for member_id, epoch in (("b", 2), ("a", 1), ("b", 2)):
        assert bench.beat(member_id, epoch, viewer=some).error is Code.NONE
        assert bench.group.resolved[".*"] == frozenset("t") and bench.group.epoch == 2
    bench.topics["t2"] = Topic(b"2" * 16, (0,))
    bench.wait(1.0)
    bench.beat("b", 2, viewer=Seeing(frozenset(["t", "t2"])))
    assert bench.group.resolved[".*"] == frozenset("t")
    bench.beat("a", bench.group.members["a"].epoch, viewer=Seeing(frozenset(["t", "t2"]), "newer"))
    assert bench.group.resolved[".*"] == frozenset(["t", "t2"])


def test_limits() -> None:
    """The number of members, and the size of their subscriptions, have limits."""
    bench = Bench(size_max=1, member_bytes_max=2000, bytes_max=10_000)
    many = tuple(f"topic-{number}" for number in range(200))
    assert bench.beat("a", topics=many).error is Code.GROUP_MAX_SIZE_REACHED
    bench.beat("a")
    assert bench.beat("b").error is Code.GROUP_MAX_SIZE_REACHED
    assert bench.beat("a", 1, topics=many).error is Code.GROUP_MAX_SIZE_REACHED
    assert bench.beat("", 1).error is Code.GROUP_MAX_SIZE_REACHED
    bench = Bench()
    assert bench.beat("").member_id == "drawn"


@pytest.mark.parametrize(("names", "wanted"), [
    (("range", "range", "uniform"), "range"), ((None, None, "range"), "range"),
    ((None, None, None), "uniform"), (("uniform", "range", None), "uniform"),
])  # fmt: skip
def test_members_vote_for_the_assignor(names: tuple[str | None, ...], wanted: str) -> None:
    """The assignor with the most votes is used; members without a preference do not vote."""
    bench = Bench()
    for number, name in enumerate(names):
        bench.beat(f"m{number}", assignor=name)
    assert bench.group.assignor == wanted


def test_regression_a_topic_that_changes_between_an_epoch_and_its_target_is_noticed() -> None:
    """A departure began an epoch, and the later target saw other topics; this was not noticed."""
    bench = Bench()
    bench.beat("a", topics=("t", "u"))
    bench.beat("b")
    bench.leave("b")
    bench.topics["u"] = Topic(U, (0,))
    assert bench.beat("a", 1).assignment == places(0, 1, 2, 3) | places(0, topic=U)
    del bench.topics["u"]
    bench.wait(2.0)
    assert bench.beat("a", 3).assignment == places(0, 1, 2, 3)
