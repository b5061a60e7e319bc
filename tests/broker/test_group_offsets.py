"""Test that offsets are deleted when they are no longer needed (KIP-211), and not before."""

from __future__ import annotations

from broker.groups.group import State
from broker.groups.offsets import Committed, expired
from support.group_scene import WALL_MS, Scene

DAY_MS = 24 * 3600 * 1000
RETENTION_MS = 7 * DAY_MS
A, B = ("a", 0), ("b", 0)


def committed(at: int, ends: int = -1) -> Committed:
    return Committed(1, -1, "", at, ends)


def test_the_offsets_of_a_program_without_membership_end_after_their_commit() -> None:
    """Each offset expires by its own commit time."""
    offsets = {A: committed(0), B: committed(DAY_MS)}
    group = Scene().group
    assert expired(group, offsets, None, RETENTION_MS, RETENTION_MS - 1) == []
    assert expired(group, offsets, None, RETENTION_MS, RETENTION_MS) == [A]
    assert expired(group, offsets, None, RETENTION_MS, RETENTION_MS + DAY_MS) == [A, B]


def test_the_offsets_of_a_group_end_after_it_became_empty() -> None:
    """The retention begins when the group becomes empty, or with a later commit."""
    scene = Scene()
    scene.join("1")
    offsets = {A: committed(WALL_MS - 30 * DAY_MS), B: committed(WALL_MS + 10 * DAY_MS)}
    assert expired(scene.group, offsets, {"a"}, RETENTION_MS, WALL_MS + 9 * DAY_MS) == []
    scene.seconds += 9 * DAY_MS / 1000
    scene.leave("c-1")
    empty_ms = scene.now.wall_ms
    assert scene.group.state is State.EMPTY
    assert expired(scene.group, offsets, None, RETENTION_MS, empty_ms + RETENTION_MS - 1) == []
    assert expired(scene.group, offsets, None, RETENTION_MS, empty_ms + RETENTION_MS) == [A]
    assert expired(scene.group, offsets, None, RETENTION_MS, WALL_MS + 17 * DAY_MS) == [A, B]


def test_topics_that_no_member_reads_end_after_their_commit() -> None:
    """Such offsets expire even while the group has members; offsets of read topics stay."""
    scene = Scene()
    scene.form({})
    offsets = {A: committed(0), B: committed(0)}
    assert expired(scene.group, offsets, {"a"}, RETENTION_MS, RETENTION_MS) == [B]
    assert expired(scene.group, offsets, {"a", "b"}, RETENTION_MS, WALL_MS) == []


def test_a_group_whose_topics_are_not_known_keeps_its_offsets() -> None:
    """A group with another protocol type than the consumers' keeps its offsets."""
    scene = Scene()
    scene.form({})
    assert expired(scene.group, {A: committed(0)}, None, RETENTION_MS, WALL_MS) == []


def test_a_client_may_have_said_when_its_offset_ends() -> None:
    """Old clients choose an expiry time; then the broker's retention is not used."""
    group = Scene().group
    early, late = {A: committed(0, 5)}, {A: committed(0, WALL_MS)}
    assert expired(group, early, None, RETENTION_MS, 4) == []
    assert expired(group, early, None, RETENTION_MS, 5) == [A]
    assert expired(group, late, None, RETENTION_MS, WALL_MS - 1) == []
