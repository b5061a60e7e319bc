"""Test the rules of Kafka's classic groups with one example each."""

from __future__ import annotations

from typing import Any

from broker.groups import records, sessions
from broker.groups.group import State
from broker.groups.records import GroupRecord
from broker.wire.error_codes import ErrorCode
from support.group_scene import RANGE, Scene, formed

STATIC: dict[str, Any] = {"instance_id": "i"}
PAIR: tuple[dict[str, Any], ...] = ({}, {})


# --- joining --------------------------------------------------------------------------------------


def test_a_new_member_is_first_given_an_id() -> None:
    """From version 4 on, a new member gets 79 and an id to join with; static members do not."""
    scene = Scene()
    said = scene.join("first", needs_known_id=True)
    assert said and (said.error, said.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "c-1")
    assert not scene.group.members
    said = scene.join("second", "c-1", needs_known_id=True)
    assert said and (said.error, said.generation, said.leader_id) == (0, 1, "c-1")
    static = Scene().join("static", needs_known_id=True, **STATIC)
    assert static and (static.error, static.member_id) == (0, "i-1")


def test_an_id_that_was_given_out_ends_with_the_session() -> None:
    """A rebalance waits for a given id until it expires; then the id is unknown."""
    scene = Scene()
    scene.join("asks", needs_known_id=True)
    assert scene.join("other", session_timeout=30.0) is not None  # the group was empty
    scene.join("again", "c-2", protocols=(("range", b"new"),))
    assert scene.is_in(State.PREPARING) and "again" not in scene.said
    scene.until(110.0)
    assert scene.said["again"].generation == 2
    said = scene.join("late", "c-1", needs_known_id=True)
    assert said and said.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_nobody_uses_leaves_a_stable_group_alone() -> None:
    """An unused id begins no rebalance, neither when it expires nor when it leaves."""
    scene = formed(*PAIR)
    for name in ("ends", "leaves"):
        scene.join(name, needs_known_id=True)
    assert scene.leave("c-4") is ErrorCode.NONE
    scene.until(105.0)
    assert scene.beat("c-1") is scene.beat("c-2") is ErrorCode.NONE
    scene.until(110.0)
    assert not scene.group.pending and scene.is_in(State.STABLE)


def test_the_leader_alone_is_told_the_members() -> None:
    """All members get the generation, the protocol and the leader.

    Only the leader gets the members.
    """
    scene = formed({"protocols": (("range", b"1"),)}, {"protocols": (("range", b"2"),)})
    first, second = scene.said["c-1 again"], scene.said["join 2"]
    assert first[2:6] == second[2:6] == (2, "consumer", "range", "c-1")
    assert first.members == (("c-1", None, b"1"), ("c-2", None, b"2")) and second.members == ()


def test_the_protocol_is_one_that_all_support() -> None:
    """Members vote; a member that supports no common protocol gets 23."""
    both = (("sticky", b"s"), ("range", b"r"))
    scene = formed({"protocols": both}, {"protocols": (*both, ("own", b""))}, {"protocols": RANGE})
    assert scene.group.protocol == "range"
    said = scene.join("none", protocols=(("sticky", b""),))
    assert said and said.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    said = scene.join("kind", protocol_type="connect")
    assert said and said.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.is_in(State.STABLE)
    said = scene.join("nothing", protocols=())
    assert said and said.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_with_most_votes_is_taken() -> None:
    """If all members support two protocols, the one that more members prefer wins."""
    one, two = (("range", b""), ("sticky", b"")), (("sticky", b""), ("range", b""))
    scene = formed({"protocols": one}, {"protocols": two}, {"protocols": two})
    assert scene.group.protocol == "sticky"


def test_a_leader_that_joins_again_begins_a_rebalance() -> None:
    """A leader joins again if the number of partitions has changed, with the same metadata."""
    scene = formed(*PAIR)
    assert scene.join("again", "c-1") is None
    assert scene.beat("c-2") is ErrorCode.REBALANCE_IN_PROGRESS
    scene.join("follows", "c-2")
    assert scene.said["again"].generation == scene.said["follows"].generation == 3


def test_a_follower_that_joins_again_unchanged_gets_its_generation() -> None:
    """A follower that joins again with another subscription begins a rebalance."""
    scene = formed(*PAIR)
    said = scene.join("again", "c-2")
    assert said and (said.error, said.generation, said.members) == (0, 2, ())
    assert scene.is_in(State.STABLE)
    assert scene.join("changed", "c-2", protocols=(("range", b"x"),)) is None
    assert scene.is_in(State.PREPARING)


def test_a_join_is_repeated_while_the_leader_assigns() -> None:
    """The repeated join gets the same answer, and the leader's answer has the members."""
    scene = Scene()
    first = scene.join("first")
    again = scene.join("again", "c-1")
    assert again == first and again and again.members
    scene.join("other")
    assert scene.is_in(State.PREPARING)


def test_a_rebalance_waits_for_the_members_and_then_goes_without_them() -> None:
    """The wait is the largest rebalance timeout; a member that is gone is then unknown."""
    scene = formed(
        {"session_timeout": 200.0, "rebalance_timeout": 90.0}, {"session_timeout": 200.0}
    )
    scene.join("new", session_timeout=200.0)
    scene.until(189.0)
    assert "new" not in scene.said
    assert scene.beat("c-2") is ErrorCode.REBALANCE_IN_PROGRESS
    scene.until(190.0)
    said = scene.said["new"]
    assert (said.generation, said.leader_id, len(said.members)) == (3, "c-3", 1)
    assert scene.beat("c-2") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_whose_client_is_gone_is_dropped() -> None:
    """It is dropped after 5 minutes; until then, it may wait, however short its session is."""
    scene = formed({"session_timeout": 900.0, "rebalance_timeout": 900.0})
    scene.join("new", session_timeout=6.0)
    assert scene.beat("c-2") is ErrorCode.REBALANCE_IN_PROGRESS  # this does not shorten it
    scene.until(399.0)
    assert "new" not in scene.said
    scene.until(400.0)
    assert scene.said["new"].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_waits_for_further_members() -> None:
    """Each new member restarts the delay, up to the rebalance timeout."""
    scene = Scene(initial_delay=3.0)
    scene.join("1", rebalance_timeout=8.0)
    scene.until(102.0)
    scene.join("2")
    scene.until(103.0)
    assert not scene.said
    scene.join("3")
    scene.until(106.0)
    scene.join("4")
    scene.until(107.9)
    assert not scene.said
    scene.until(108.0)
    assert {said.generation for said in scene.said.values()} == {1} and len(scene.said) == 4


def test_the_delay_ends_if_nobody_came() -> None:
    """A single consumer waits for one delay only."""
    scene = Scene(initial_delay=3.0)
    scene.join("1")
    scene.until(103.0)
    assert scene.said["1"].generation == 1


def test_a_group_can_be_full() -> None:
    """Given ids count as members of a full group; a member may join again."""
    scene = Scene(size_max=2)
    scene.join("1")
    scene.join("2", needs_known_id=True)
    said = scene.join("3")
    assert said and said.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    scene.join("4", "c-2", needs_known_id=True)
    scene.join("5", "c-1")
    assert scene.said["4"].error is scene.said["5"].error is ErrorCode.NONE


# --- assignments ----------------------------------------------------------------------------------


def test_a_sync_waits_for_the_leader() -> None:
    """A sync waits for the leader's assignments; a later sync is answered at once."""
    scene = Scene()
    scene.join("1")
    scene.join("2")
    scene.join("1 again", "c-1")
    assert scene.sync("early", "c-2") is None
    said = scene.sync("leads", "c-1", assignments={"c-2": b"two"})
    assert said and said.assignment == b"" and scene.said["early"].assignment == b"two"
    again = scene.sync("again", "c-2")
    assert again and (again.assignment, again.protocol) == (b"two", "range")


def test_a_sync_of_something_else_is_refused() -> None:
    """22 for another generation, 25 for an unknown member, 23 for a protocol, 27 in a rebalance."""
    scene = formed(*PAIR)
    for changed, code in (
        ({"generation": 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ):
        said = scene.sync(str(changed), "c-2", **changed)
        assert said and said.error is code
    scene.join("again", "c-1")
    said = scene.sync("late", "c-2")
    assert said and said.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_does_not_sync_is_removed() -> None:
    """Such a member is removed after the rebalance timeout, even if it sends heartbeats."""
    scene = Scene()
    scene.join("1", session_timeout=100.0)
    scene.join("2", session_timeout=100.0)
    scene.join("1 again", "c-1", session_timeout=100.0)
    scene.sync("leads", "c-1")
    assert scene.is_in(State.STABLE)
    scene.until(159.0)
    assert scene.beat("c-2") is ErrorCode.NONE
    scene.until(160.0)
    assert scene.beat("c-2") is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.beat("c-1") is ErrorCode.REBALANCE_IN_PROGRESS


def test_regression_a_member_that_waited_longer_than_its_session_is_kept() -> None:
    """Its leader died; it must join again, and gets a whole session for that."""
    scene = Scene()
    scene.join("1", session_timeout=30.0)
    scene.join("2", session_timeout=6.0)
    scene.join("1 again", "c-1", session_timeout=30.0)
    scene.sync("waits", "c-2")
    scene.until(130.0)
    assert scene.said["waits"].error is ErrorCode.REBALANCE_IN_PROGRESS
    scene.until(135.0)
    said = scene.join("2 again", "c-2")
    assert said and (said.error, said.leader_id) == (ErrorCode.NONE, "c-2")


def test_assignments_that_are_too_large_are_refused() -> None:
    """All waiting members get -1, and join again."""
    scene = Scene(bytes_max=1000)
    scene.join("1")
    scene.join("2")
    scene.join("1 again", "c-1")
    scene.sync("waits", "c-2")
    said = scene.sync("leads", "c-1", assignments={"c-2": bytes(2000)})
    assert said and said.error is scene.said["waits"].error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert scene.is_in(State.PREPARING)
    assert not any(member.assignment for member in scene.group.members.values())


def test_regression_a_member_that_is_too_large_is_refused() -> None:
    """A member, new or not, is refused if the group could not be written to the log then."""
    scene = Scene(bytes_max=1000)
    large = (("range", bytes(1000)),)
    said = scene.join("1", protocols=large)
    assert said and said.error is ErrorCode.GROUP_MAX_SIZE_REACHED and not scene.group.members
    assert scene.join("2", protocols=(("range", bytes(300)),)).error is ErrorCode.NONE
    scene.assign()
    said = scene.join("2 again", "c-1", protocols=large)
    assert said and said.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert scene.is_in(State.STABLE) and scene.group.size_bytes < 1000
    said = scene.join("2 smaller", "c-1", protocols=(("range", bytes(800)),))
    assert said and said.error is ErrorCode.NONE  # its old metadata does not count


def test_regression_many_protocols_are_not_small() -> None:
    """All protocols count, because all of them are in memory."""
    scene = Scene(bytes_max=1000)
    many = tuple((f"p{number}", bytes(100)) for number in range(50))
    said = scene.join("1", protocols=many)
    assert said and said.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_the_size_of_a_group_is_in_bytes() -> None:
    """The size counts bytes, not letters: a letter may take three bytes."""
    scene = Scene()
    scene.join("1", client_id="\u20ac" * 1000)
    assert scene.group.size_bytes >= 6000  # the client's id, and the member's, which begins with it


# --- heartbeats and leaving -----------------------------------------------------------------------


def test_heartbeats_tell_the_state() -> None:
    """27 while a rebalance waits, 0 while the leader assigns, 22 and 25 for others."""
    scene = Scene()
    scene.join("1")
    assert scene.beat("c-1") is ErrorCode.NONE and scene.is_in(State.COMPLETING)
    scene.assign()
    assert scene.beat("c-1") is ErrorCode.NONE
    assert scene.beat("c-1", generation=7) is ErrorCode.ILLEGAL_GENERATION
    assert scene.beat("x") is ErrorCode.UNKNOWN_MEMBER_ID
    scene.join("2")
    assert scene.beat("c-1") is ErrorCode.REBALANCE_IN_PROGRESS
    scene.leave("c-1")
    scene.leave("c-2")
    assert scene.is_in(State.EMPTY)
    assert scene.beat("c-1") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_expires() -> None:
    """A silent member expires after its session timeout; a heartbeat restarts the session."""
    scene = formed(*PAIR)
    scene.until(109.0)
    assert scene.beat("c-1") is ErrorCode.NONE
    scene.until(110.0)
    assert list(scene.group.members) == ["c-1"] and scene.is_in(State.PREPARING)


def test_a_member_that_leaves_is_out_at_once() -> None:
    """Its waiting requests are answered, and the other members join again."""
    scene = formed(*PAIR)
    scene.join("again", "c-1")
    assert scene.leave("c-1") is ErrorCode.NONE
    assert scene.said["again"].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.leave("c-1") is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.group.leader_id == "c-2"


def test_the_last_member_expires_while_an_id_is_pending() -> None:
    """The group becomes empty at once, in one step."""
    scene = formed({})
    scene.until(105.0)
    scene.join("asks", needs_known_id=True)
    scene.seconds = 110.0
    sessions.expire(scene.group, scene.now)
    assert scene.is_in(State.EMPTY) and list(scene.group.pending) == ["c-2"]


def test_who_may_commit() -> None:
    """Any client while the group is empty; otherwise a member of this generation."""
    group = Scene().group
    assert group.fault_of_commit("", None, -1) is ErrorCode.NONE
    scene = formed(*PAIR)
    fault_of = scene.group.fault_of_commit
    assert fault_of("", None, -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fault_of("c-1", None, 1) is ErrorCode.ILLEGAL_GENERATION
    assert fault_of("x", None, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fault_of("c-1", None, 2) is ErrorCode.NONE
    scene.join("again", "c-1")
    assert fault_of("c-2", None, 2) is ErrorCode.NONE  # what it has read before it joins again
    scene.join("follows", "c-2")
    assert fault_of("c-2", None, 3) is ErrorCode.REBALANCE_IN_PROGRESS


# --- the end --------------------------------------------------------------------------------------


def test_a_group_that_is_removed_answers_what_waits() -> None:
    """A removed group answers its waiting requests, and refuses new ones."""
    scene = formed(*PAIR)
    scene.join("waits", "c-1")
    sessions.end(scene.group, ErrorCode.NOT_COORDINATOR, scene.now)
    assert scene.beat("c-2") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.said["waits"].error is ErrorCode.NOT_COORDINATOR
    said = scene.join("late")
    assert said and said.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.leave("c-2") is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_generations_begin_anew_after_the_largest() -> None:
    """After the largest generation comes 1, because -1 and 0 have other meanings."""
    scene = formed({})
    scene.group.generation = 2**31 - 1
    scene.join("again", "c-1")
    assert scene.group.generation == 1


def test_a_group_is_kept_as_it_is() -> None:
    """A group's record restores its members with the same timeouts and new sessions."""
    scene = formed({**STATIC, "session_timeout": 1001 / 1000, "rebalance_timeout": 1003 / 1000}, {})
    found = records.parse(records.group_key("g"), records.group_value(scene.group))
    assert isinstance(found, GroupRecord) and found.value is not None
    again = records.restored("g", found.value, scene.group.settings, scene.draw, scene.now)
    member = again.members["i-1"]
    assert (member.session_timeout, member.rebalance_timeout) == (1.001, 1.003)
    assert member.deadline == scene.seconds + 1.001 and again.state is State.STABLE
    assert (again.leader_id, again.instances) == ("i-1", {"i": "i-1"})
