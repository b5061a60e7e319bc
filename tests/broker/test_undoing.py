"""Test that a write that the log refuses costs only its own group, which undoes its change."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.consumer_groups import heartbeats, leaving, undoing
from broker.consumer_groups.exchange import ConsumerSettings, Heartbeat
from broker.consumer_groups.group import ConsumerGroup
from broker.coordinator.internal_topic import SoleGroupLog
from broker.coordinator.offsets_topic import NAME
from broker.coordinator.shard import Phase
from broker.groups.exchange import Now
from broker.groups.group import State
from broker.wire.error_codes import ErrorCode as Code
from logstore import LogDirFullError, LogDirSuspectError, LogStoreError, RecordTooLargeError
from support.consumer_group_world import Topic
from support.coordinating import Bench, Waiter

AWAY = Code.COORDINATOR_NOT_AVAILABLE
T = b"t" * 16
TOPICS = {NAME: Topic(b"o" * 16, (0,)), "t": Topic(T, (0, 1)), "u": Topic(b"u" * 16, (0, 1, 2))}
FULL = LogDirFullError(path="/disk", reason="no space")
SLOW = LogDirSuspectError(path="/disk", reason="a call has lasted for 10 s")
LARGE = RecordTooLargeError(size_bytes=9, max_message_bytes=8)


class Disk:
    """The log, which a test lets refuse appends."""

    def __init__(self) -> None:
        self.error: LogStoreError | None = None

    def check(self, *_: object) -> None:
        if self.error is not None:
            raise self.error


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(SoleGroupLog, "_check", made.check)
    return made


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench([tmp_path / "a"]) as made:
        made.groups.consumers.topics = lambda: TOPICS
        yield made.load()


def hear(bench: Bench, name: str, member: str, epoch: int = 0, **fields: Any) -> Any:
    """Send a heartbeat of the new protocol."""
    full: dict[str, Any] = {}
    if not epoch:
        full = {"rebalance_timeout_ms": 5000, "topics": ("t",), "owned": frozenset()}
    waiter = Waiter()
    asked = Heartbeat(member, epoch, **(full | fields))
    bench.groups.consumers.heartbeat(name, asked, waiter)
    return waiter.one


@pytest.mark.parametrize(
    ("error", "code"),
    [(FULL, AWAY), (SLOW, AWAY), (LARGE, Code.UNKNOWN_SERVER_ERROR)],
    ids=["full", "slow", "large"],
)
def test_regression_a_refused_write_costs_only_its_group(
    bench: Bench, disk: Disk, error: LogStoreError, code: Code
) -> None:
    """Before, all groups of the partition were forgotten, and waiting requests got 16."""
    stays = bench.member("stays")
    (shard,) = bench.groups.shards()
    joined = bench.join("g").one
    hear(bench, "new", "a")
    disk.error = error
    assert bench.sync("g", joined.member_id, joined.generation, {}).code is code
    assert hear(bench, "new", "b").error is code
    assert shard.phase is Phase.READY and not bench.scheduler.tasks
    assert bench.beat("stays", *stays) is Code.NONE
    assert hear(bench, "new", "a", 1).error is Code.NONE
    disk.error = None
    assert bench.group("g").state is State.PREPARING
    again = bench.join("g", joined.member_id).one
    given = bench.sync("g", again.member_id, again.generation, {again.member_id: b"x"}).one
    assert (given.error, given.assignment) == (Code.NONE, b"x")
    assert hear(bench, "new", "b").error is Code.NONE


def test_a_static_member_that_cannot_be_replaced(bench: Bench, disk: Disk) -> None:
    """The replacement is undone: the earlier process keeps its place, without a rebalance."""
    member = bench.member("g", instance_id="i")
    disk.error = FULL
    assert bench.join("g", instance_id="i").code is AWAY
    assert bench.groups.heartbeat("g", member[0], "i", member[1]) is Code.NONE
    assert bench.group("g").state is State.STABLE
    disk.error = None
    back = bench.join("g", instance_id="i").one
    assert back.error is Code.NONE and back.generation == member[1]
    assert bench.groups.heartbeat("g", member[0], "i", 1) is Code.FENCED_INSTANCE_ID


def test_a_group_that_becomes_empty_on_a_full_disk(bench: Bench, disk: Disk) -> None:
    """The member has left; a later coordinator finds it in the log until its session ends."""
    member = bench.member("g")
    disk.error = FULL
    assert bench.groups.leave("g", [(member[0], None)]) == [Code.NONE]
    assert bench.beat("g", *member) is Code.UNKNOWN_MEMBER_ID
    assert bench.group("g").state is State.EMPTY
    disk.error = None
    assert bench.member("g")[1] == 3


def test_a_group_that_cannot_change_its_type(bench: Bench, disk: Disk) -> None:
    """The group of the earlier type stays, with its offsets."""
    assert bench.commit("g", 5) is Code.NONE
    disk.error = FULL
    assert hear(bench, "g", "a").error is AWAY
    assert bench.group("g").state is State.EMPTY and bench.offset("g") == 5
    assert hear(bench, "fresh", "a").error is AWAY
    disk.error = None
    assert [hosted.name for hosted in bench.groups.shards()[0].all()] == ["g"]
    assert hear(bench, "g", "a").error is Code.NONE and bench.offset("g") == 5


def test_sessions_that_end_on_a_full_disk(bench: Bench, disk: Disk) -> None:
    """Members cannot be removed, and the coordinator tries again only after a session."""
    hear(bench, "g", "a")
    disk.error = FULL
    made = bench.scheduler.timers_made
    bench.scheduler.until(bench.scheduler.seconds + 200.0)
    assert bench.scheduler.timers_made < made + 10
    disk.error = None
    assert hear(bench, "g", "a", 1).error is Code.NONE
    bench.scheduler.until(bench.scheduler.seconds + 46.0)
    assert hear(bench, "g", "a", 1).error is Code.UNKNOWN_MEMBER_ID


# --- the state of a group of the new protocol -----------------------------------------------------

NOW = Now(100.0, 100_000)


def view(group: ConsumerGroup) -> tuple[Any, ...]:
    """Return everything about a group that its records contain, and what depends on it."""
    members = {
        one.id: (*one.facts(), one.epoch, one.previous_epoch, one.state, one.assigned, one.revoking)
        for one in group.members.values()
    }
    return (
        members, dict(group.instances), dict(group.targets), dict(group.owners),
        dict(group.resolved), group.epoch, group.assignment_epoch, group.metadata_hash,
        group.since_ms, group.is_unsaved,
    )  # fmt: skip


def ask(group: ConsumerGroup, member: str, epoch: int, **fields: Any) -> Any:
    asked = Heartbeat(member, epoch, **fields)
    heartbeats.heartbeat(group, asked, TOPICS, lambda: "new", None, NOW)
    ((_, answer),) = group.take_replies()
    return answer


JOIN: dict[str, Any] = {"rebalance_timeout_ms": 5000, "topics": ("t",), "owned": frozenset()}


def formed() -> ConsumerGroup:
    """Make a group with a static member that is away, and two members that share a topic."""
    group = ConsumerGroup("g", ConsumerSettings(), NOW)
    ask(group, "s", 0, instance_id="i", **JOIN | {"topics": ("u",)})
    first = ask(group, "a", 0, pattern="t.*", **JOIN | {"topics": ()})
    ask(group, "b", 0, **JOIN)
    ask(group, "a", first.member_epoch, owned=first.assignment)
    leaving.leave(group, "s", -2, "i", TOPICS, NOW)
    group.saved()
    return group


CHANGES: dict[str, Callable[[ConsumerGroup], object]] = {
    "join": lambda group: ask(group, "c", 0, **JOIN),
    "static": lambda group: ask(group, "s2", 0, instance_id="i", **JOIN),
    "static in place of a member": lambda group: ask(group, "b", 0, instance_id="i", **JOIN),
    "subscribe": lambda group: ask(group, "a", 2, topics=("u",), pattern=""),
    "give up": lambda group: ask(group, "a", 2, owned=frozenset()),
    "rack": lambda group: ask(group, "b", 3, rack_id="r", client_host="/other"),
    "stay away": lambda group: leaving.leave(group, "s", -2, "i", TOPICS, NOW),
    "leave": lambda group: leaving.leave(group, "a", -1, None, TOPICS, NOW),
    "expire": lambda group: leaving.expire(group, TOPICS, Now(1e9, 1)),
    "join again": lambda group: ask(group, "a", 0, **JOIN),
    "one after another": lambda group: [
        ask(group, "c", 0, **JOIN), leaving.leave(group, "b", -1, None, TOPICS, NOW),
        ask(group, "s", 0, instance_id="i", **JOIN), ask(group, "d", 0, **JOIN),
    ],
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_is_undone(change: Callable[[ConsumerGroup], object]) -> None:
    """The group is as before, and the same change gives the same result again."""
    group = formed()
    before = view(group)
    change(group)
    after = view(group)
    assert after != before and group.is_unsaved
    undoing.undo(group, NOW)
    assert view(group) == before and group.before is None
    assert all(one.deadline > NOW.seconds for one in group.members.values())
    change(group)
    assert view(group) == after


def test_a_heartbeat_without_a_change_keeps_no_copy() -> None:
    """Otherwise each heartbeat would copy the group."""
    group = formed()
    ask(group, "b", 3)
    assert group.before is None and not group.is_unsaved


def random_change(rng: random.Random, group: ConsumerGroup) -> Callable[[], object]:
    """Choose a heartbeat, or a member that leaves."""
    member = rng.choice("abcd")
    found = group.members.get(member)
    instance = rng.choice([None, None, "i", "j"]) if found is None else found.instance_id
    leaves = rng.choice([None, None, -1, -2])
    if leaves is not None:
        return partial(leaving.leave, group, member, leaves, instance, TOPICS, NOW)
    fields: list[dict[str, Any]] = [
        {}, {"owned": frozenset()}, {"topics": ("u",), "pattern": ""}, {"pattern": "[tu]"}, JOIN,
    ]  # fmt: skip
    chosen = rng.choice(fields)
    if found is None or chosen is JOIN:
        return partial(ask, group, member, 0, instance_id=instance, **(JOIN | chosen))
    return partial(ask, group, member, found.epoch, instance_id=instance, **chosen)


@pytest.mark.parametrize("seed", range(5))
def test_changes_of_any_history_are_undone(seed: int) -> None:
    """Whatever members ask, an undone change leaves nothing, and can be made again."""
    rng, group, undone = random.Random(seed), ConsumerGroup("g", ConsumerSettings(), NOW), 0
    for _ in range(300):
        change, before = random_change(rng, group), view(group)
        change()
        after = view(group)
        if group.is_unsaved:
            undoing.undo(group, NOW)
            assert view(group) == before
            change()
            assert view(group) == after
            undone += 1
        assert after == before or group.is_unsaved
        group.saved()
    assert undone > 50
