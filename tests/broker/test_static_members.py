"""Test static members (KIP-345): they keep their places, and old processes are fenced."""

from __future__ import annotations

from typing import Any

import pytest

from broker.groups import sessions
from broker.groups.group import State
from broker.wire.error_codes import ErrorCode
from support.group_scene import Scene, formed

STATIC: dict[str, Any] = {"instance_id": "i"}


@pytest.mark.parametrize("may_skip", [False, True])
def test_a_static_leader_that_restarts_keeps_its_place(may_skip: bool) -> None:
    """There is no rebalance; it leads only if it knows that it has nothing to assign."""
    scene = formed(STATIC, {})
    said = scene.join("back", may_skip_assignment=may_skip, client_id="d", **STATIC)
    assert said and (said.error, said.generation, said.member_id) == (0, 2, "i-3")
    assert said.skips_assignment is may_skip and bool(said.members) is may_skip
    assert said.leader_id == ("i-3" if may_skip else "i-1")
    assert scene.is_in(State.STABLE) and scene.group.is_unsaved
    given = scene.sync("takes", "i-3", **STATIC)
    assert given and given.assignment == b"i-1"
    assert scene.group.members["i-3"].client_id == "d" and scene.group.leader_id == "i-3"


def test_regression_a_static_member_outlives_a_crash_during_its_first_generation() -> None:
    """The log has its earlier id. It joins again; if it were fenced, its process would end."""
    scene = formed(STATIC, {})  # what the log has
    unlogged, stranger = scene.group.generation + 1, ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.beat("i-9", "i", unlogged) is stranger
    assert scene.group.fault_of_commit("i-9", "i", unlogged) is stranger
    given = scene.sync("sync", "i-9", generation=unlogged, **STATIC)
    assert given and given.error is stranger
    assert scene.beat("i-9", "i") is ErrorCode.FENCED_INSTANCE_ID


def test_regression_a_static_member_that_returns_too_large_is_refused() -> None:
    """Otherwise its group could not be written, and all groups of the partition were reloaded."""
    scene = formed(STATIC, {}, bytes_max=1000)
    said = scene.join("back", protocols=(("range", bytes(1000)),), **STATIC)
    assert said and said.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert scene.is_in(State.STABLE) and "i-1" in scene.group.members


def test_the_old_id_of_an_instance_is_fenced() -> None:
    """Heartbeat, sync, join, leave and commit get error 82."""
    scene = formed(STATIC, {})
    scene.join("back", **STATIC)
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert scene.beat("i-1", "i") is scene.leave("i-1", "i") is fenced
    assert scene.group.fault_of_commit("i-1", "i", 2) is fenced
    said, given = scene.join("old", "i-1", **STATIC), scene.sync("old sync", "i-1", **STATIC)
    assert said and given and said.error is given.error is fenced
    assert scene.beat("x", "j") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_with_another_protocol_begins_a_rebalance() -> None:
    """Its vote would be for another protocol than the chosen one."""
    both = (("range", b""), ("sticky", b""))
    scene = formed({**STATIC, "protocols": both}, {"protocols": both})
    assert scene.join("back", protocols=(*both, ("own", b"")), **STATIC) is not None
    scene = formed({**STATIC, "protocols": both}, {"protocols": both})
    assert scene.join("back", protocols=both[1:], **STATIC) is None
    assert scene.is_in(State.PREPARING)


def test_a_static_member_that_restarts_while_the_leader_assigns_begins_a_rebalance() -> None:
    """The leader assigns to an id that no longer exists; requests of the old id are fenced."""
    scene = Scene()
    scene.join("1")
    scene.join("2", **STATIC)
    scene.join("1 again", "c-1")
    scene.sync("old", "i-2", **STATIC)
    assert scene.is_in(State.COMPLETING)
    assert scene.join("back", **STATIC) is None
    assert scene.said["old"].error is ErrorCode.FENCED_INSTANCE_ID
    assert scene.is_in(State.PREPARING)
    scene.join("1 follows", "c-1")
    assert [row[0] for row in scene.said["1 follows"].members] == ["c-1", "i-3"]


def test_regression_a_static_member_that_restarts_before_its_first_generation_may_wait() -> None:
    """Like any joining member, it may wait for the others beyond its session."""
    scene = formed({"session_timeout": 100.0})
    scene.join("1", session_timeout=6.0, **STATIC)
    scene.join("back", session_timeout=6.0, **STATIC)
    assert scene.said["1"].error is ErrorCode.FENCED_INSTANCE_ID
    scene.until(150.0)
    assert "back" not in scene.said
    scene.until(160.0)
    assert scene.said["back"].error is ErrorCode.NONE


def test_regression_an_instance_belongs_to_its_member() -> None:
    """A join without the instance id does not free it, and a pending id cannot take it."""
    scene = formed(STATIC)
    assert scene.join("bare", "i-1") is not None
    assert scene.group.instances == {"i": "i-1"}
    assert scene.leave("i-1", "i") is ErrorCode.NONE and not scene.group.instances
    said = scene.join("back", **STATIC)
    assert said and said.error is ErrorCode.NONE
    scene.join("asks", needs_known_id=True)
    said = scene.join("takes", "c-3", **STATIC)
    assert said and said.error is ErrorCode.FENCED_INSTANCE_ID


def test_static_members_keep_their_places_in_a_rebalance() -> None:
    """They keep them until their session ends; if the leader is missing, another member leads."""
    scene = formed({**STATIC, "session_timeout": 300.0}, {"session_timeout": 300.0})
    scene.join("new", session_timeout=300.0)
    scene.join("again", "c-2", session_timeout=300.0)
    scene.until(160.0)
    assert scene.said["again"].leader_id == "c-2" and len(scene.said["again"].members) == 3
    assert list(scene.group.members) == ["i-1", "c-2", "c-3"]


def test_a_group_that_no_static_member_joins_is_not_called_without_a_pause() -> None:
    """This holds even if the rebalance timeout is 0."""
    scene = formed({**STATIC, "rebalance_timeout": 0.5}, {"instance_id": "j"})
    for member in scene.group.members.values():
        member.rebalance_timeout = 0.0
    assert scene.leave("", "j") is ErrorCode.NONE
    sessions.expire(scene.group, scene.now)
    assert sessions.next_deadline(scene.group) == scene.seconds + 1.0


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    """No member id is needed; an unknown instance id gets 25."""
    scene = formed(STATIC, {})
    assert scene.leave("", "j") is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.leave("", "i") is ErrorCode.NONE
    assert list(scene.group.members) == ["c-2"] and not scene.group.instances
