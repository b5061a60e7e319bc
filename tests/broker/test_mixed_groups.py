"""Test groups with members of both protocols, step by step, against KIP-848."""

from __future__ import annotations

from typing import Any

import pytest

from broker.consumer_groups import leaving
from broker.consumer_groups.exchange import Migration
from broker.consumer_groups.group import ConsumerGroup
from broker.consumer_groups.member import MemberState
from broker.groups.exchange import Syncing
from broker.mixed_groups import classic_members
from broker.wire.error_codes import ErrorCode as Code
from support.consumer_group_world import Topic
from support.mixed_group_bench import SECONDS, Bench, T, assigned, metadata, numbers_in, places


def test_a_new_member_gets_what_classic_members_have_given_up() -> None:
    """A classic member hears of it in a heartbeat, and gives up partitions when it joins again."""
    bench = Bench()
    ids = bench.upgraded(a=assigned(0, 1, 2, 3))
    a = ids["a"]
    assert bench.beat("n") == (0, None, "n", 3, frozenset())
    assert bench.state == "Reconciling"
    assert bench.classic_beat(a, 2, "a") is Code.REBALANCE_IN_PROGRESS
    assert bench.sync(a, 2, "a").error is Code.REBALANCE_IN_PROGRESS
    answer = bench.join(a, "a", owned=())
    assert answer == (Code.NONE, a, 3, "consumer", "range", "", (), False)
    kept = numbers_in(bench.sync(a, 3, "a").assignment)
    assert len(kept) == 2
    assert bench.classic_beat(a, 3, "a") is Code.NONE
    assert bench.beat("n", 3).assignment == places(0, 1, 2, 3) - places(*kept)
    assert bench.state == "Stable"


def test_a_cooperative_member_keeps_reading_until_it_has_given_up() -> None:
    """It says what it owns, and joins twice; nobody else gets its partitions before."""
    bench = Bench()
    a = bench.upgraded(a=assigned(0, 1, 2, 3))["a"]
    bench.beat("n")
    assert bench.join(a, "a", owned=(0, 1, 2, 3)).generation == 2
    assert bench.group.members[a].state is MemberState.UNREVOKED
    kept = numbers_in(bench.sync(a, 2, "a").assignment)
    assert len(kept) == 2 and bench.beat("n", 3).assignment is None
    assert bench.classic_beat(a, 2, "a") is Code.REBALANCE_IN_PROGRESS
    assert bench.join(a, "a", owned=tuple(kept)).generation == 3
    assert numbers_in(bench.sync(a, 3, "a").assignment) == kept
    assert bench.beat("n", 3).assignment == places(0, 1, 2, 3) - places(*kept)


def test_a_classic_member_joins_again_when_missing_partitions_are_free() -> None:
    """While another member has them, heartbeats are answered without an error."""
    bench = Bench()
    bench.group = ConsumerGroup("g", bench.settings, bench.now)
    bench.beat("n")
    named = bench.join("", protocols=(("range", metadata()),))
    c = named.member_id
    assert named.error is Code.NONE and named.generation == 2
    assert numbers_in(bench.sync(c, 2).assignment) == []
    assert bench.classic_beat(c, 2) is Code.NONE
    told = bench.beat("n", 1).assignment
    assert bench.classic_beat(c, 2) is Code.NONE
    bench.beat("n", 1, owned=told)
    assert bench.classic_beat(c, 2) is Code.REBALANCE_IN_PROGRESS
    assert bench.join(c).generation == 2
    assert len(numbers_in(bench.sync(c, 2).assignment)) == 2


def test_a_new_classic_member_first_gets_an_id() -> None:
    """Nothing is kept for the id; the member joins with it (KIP-394)."""
    bench = Bench()
    bench.group = ConsumerGroup("g", bench.settings, bench.now)
    bench.beat("n")
    asked = bench.asking("")._replace(needs_known_id=True)
    answer = classic_members.join(bench.group, asked, bench.topics, bench.draw, bench.now)
    assert answer.error is Code.MEMBER_ID_REQUIRED
    assert set(bench.group.members) == {"n"}
    assert bench.join(answer.member_id).error is Code.NONE


def test_a_static_member_is_taken_over_by_the_other_protocol() -> None:
    """Its partitions stay, and the old process gets FENCED_INSTANCE_ID."""
    bench = Bench()
    a = bench.upgraded(a=assigned(0, 1, 2, 3))["a"]
    assert bench.beat("n", instance_id="a").assignment == places(0, 1, 2, 3)
    assert bench.group.classic_members == [] and set(bench.group.members) == {"n"}
    assert bench.classic_beat(a, 2, "a") is Code.FENCED_INSTANCE_ID
    assert bench.sync(a, 2, "a").error is Code.FENCED_INSTANCE_ID
    assert bench.join(a, "a").error is Code.FENCED_INSTANCE_ID
    back = bench.join("", "a")
    assert back.error is Code.NONE
    assert numbers_in(bench.sync(back.member_id, back.generation, "a").assignment) == [0, 1, 2, 3]
    assert bench.beat("n", 2, instance_id="a").error is Code.FENCED_INSTANCE_ID
    assert bench.join("x", "nobody").error is Code.UNKNOWN_MEMBER_ID


REFUSED: list[tuple[dict[str, Any], Code]] = [
    ({"protocols": ()}, Code.INCONSISTENT_GROUP_PROTOCOL),
    ({"protocols": (("sticky", metadata()),)}, Code.INCONSISTENT_GROUP_PROTOCOL),
    ({"protocols": (("range", b""),)}, Code.INCONSISTENT_GROUP_PROTOCOL),
    ({"protocols": (("range", b"\xff\xff"),)}, Code.INCONSISTENT_GROUP_PROTOCOL),
    ({"protocols": (("range", b"\0\1\xff\0"),)}, Code.INCONSISTENT_GROUP_PROTOCOL),
    ({"protocols": (("range", metadata(owned=(-1,))),)}, Code.INCONSISTENT_GROUP_PROTOCOL),
    ({"protocols": (("range", metadata() + bytes(2 << 20)),)}, Code.GROUP_MAX_SIZE_REACHED),
]


@pytest.mark.parametrize(("fields", "code"), REFUSED)
def test_a_join_that_is_refused_changes_nothing(fields: dict[str, Any], code: Code) -> None:
    """Bytes that are not valid do no harm."""
    bench = Bench()
    bench.upgraded(a=assigned(0, 1, 2, 3))
    bench.group.saved()
    assert bench.join("", **fields).error is code
    assert not bench.group.is_unsaved and len(bench.group.members) == 1


def test_requests_of_other_members_are_refused() -> None:
    """A member of the new protocol has no classic requests; a generation must be the epoch."""
    bench = Bench()
    a = bench.upgraded(a=assigned(0, 1, 2, 3))["a"]
    bench.beat("n")
    assert bench.classic_beat("n", 3) is Code.UNKNOWN_MEMBER_ID
    assert bench.sync("n", 3).error is Code.UNKNOWN_MEMBER_ID
    assert bench.classic_beat("x", 3) is Code.UNKNOWN_MEMBER_ID
    assert bench.classic_beat(a, 1, "a") is Code.ILLEGAL_GENERATION
    asked = Syncing(a, "a", 2, "consumer", "sticky", {})
    answer = classic_members.sync(bench.group, asked, bench.topics, bench.now)
    assert answer.error is Code.INCONSISTENT_GROUP_PROTOCOL
    leave = [("n", None), (a, None), (a, None), ("", "nobody")]
    unknown = Code.UNKNOWN_MEMBER_ID
    codes = classic_members.leave(bench.group, leave, bench.topics, bench.now)
    assert codes == [unknown, Code.NONE, unknown, unknown]
    assert set(bench.group.members) == {"n"}
    assert bench.beat("n", 3).assignment == places(0, 1, 2, 3)


def test_a_classic_member_that_does_not_join_again_is_removed() -> None:
    """It has its rebalance timeout, after it was told; the timer has to know."""
    bench = Bench()
    a = bench.upgraded(a=assigned(0, 1, 2, 3))["a"]
    bench.beat("n")
    assert not bench.group.has_new_deadline
    assert bench.classic_beat(a, 2, "a") is Code.REBALANCE_IN_PROGRESS
    assert bench.group.has_new_deadline
    bench.wait(SECONDS - 0.1)
    bench.classic_beat(a, 2, "a")
    assert a in bench.group.members
    bench.wait(0.2)
    assert a not in bench.group.members
    assert bench.beat("n", 3).assignment == places(0, 1, 2, 3)


def test_a_classic_member_has_its_own_session() -> None:
    """The session of a classic member has the length that its JoinGroup asked for."""
    bench = Bench()
    a = bench.upgraded(a=assigned(0))["a"]
    bench.wait(9.9)
    assert a in bench.group.members
    bench.wait(0.2)
    assert not bench.group.members


def test_a_topic_that_grows_is_noticed_by_classic_members() -> None:
    """Without a member of the new protocol, the heartbeats of classic members notice it."""
    bench = Bench(migration=Migration.UPGRADE)
    a = bench.upgraded(a=assigned(0, 1, 2, 3))["a"]
    bench.beat("n")
    leaving.leave(bench.group, "n", -1, None, bench.topics, bench.now)
    epoch = bench.join(a, "a").generation
    bench.sync(a, epoch, "a")
    bench.topics["t"] = Topic(T, (0, 1, 2, 3, 4))
    bench.wait(1.5)
    assert bench.classic_beat(a, epoch, "a") is Code.REBALANCE_IN_PROGRESS
    epoch = bench.join(a, "a").generation
    assert numbers_in(bench.sync(a, epoch, "a").assignment) == [0, 1, 2, 3, 4]


def test_a_member_that_was_removed_gives_up_its_partitions_first() -> None:
    """Another member may have them, so a cooperative member must not join as if it had them."""
    bench = Bench()
    a = bench.upgraded(a=assigned(0, 1, 2, 3))["a"]
    bench.beat("n")
    bench.wait(11.0)
    assert bench.join(a, owned=(0, 1)).error is Code.UNKNOWN_MEMBER_ID
    assert bench.join(a).error is Code.NONE
