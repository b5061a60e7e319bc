"""Test groups of the new protocol over a real log: restarts, types, retention and bad disks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from broker.consumer_groups import records, restoring
from broker.consumer_groups.exchange import Heartbeat, HeartbeatAnswer
from broker.consumer_groups.group import ConsumerGroup
from broker.coordinator import group_kinds
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.offsets_topic import NAME
from broker.groups.offsets import Committed
from broker.wire.error_codes import ErrorCode as Code
from logstore import LogDirFullError
from support.consumer_group_world import Topic
from support.coordinating import RETENTION_SECONDS, Bench, Waiter

T = b"t" * 16
TOPICS = {NAME: Topic(b"o" * 16, (0,)), "t": Topic(T, (0, 1))}
ALL = frozenset({(T, 0), (T, 1)})


class Hosting(Bench):
    """A coordinator with a topic of two partitions."""

    def load(self, name: str = "g") -> Self:
        self.groups.consumers.topics = lambda: TOPICS
        return super().load(name)

    def hear(self, name: str, member: str, epoch: int = 0, **fields: Any) -> HeartbeatAnswer:
        asked = Heartbeat(member, epoch, **fields)
        if not epoch:
            owned = frozenset[Any]()
            full: dict[str, Any] = {"rebalance_timeout_ms": 5000, "topics": ("t",), "owned": owned}
            asked = asked._replace(**(full | fields))
        waiter = Waiter()
        try:
            self.groups.consumers.heartbeat(name, asked, waiter)
        except CoordinatorError as error:
            return HeartbeatAnswer(error.code)
        answer: HeartbeatAnswer = waiter.one
        return answer

    def go(self, name: str, member: str) -> Code:
        waiter = Waiter()
        self.groups.consumers.leave(name, member, -1, None, waiter)
        code: Code = waiter.one.error
        return code

    @property
    def names(self) -> dict[str, str]:
        """Return the groups and their types."""
        return {
            hosted.group.name: type(hosted.group).__name__
            for hosted in self.groups.shards()[0].all()
        }


def test_regression_a_slow_loading_ends_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session of a member, and its time to give up partitions, begin after the loading."""
    with Hosting([tmp_path / "a"]) as bench:
        bench.load().hear("g", "a")
        bench.hear("g", "b")
        assert len(bench.hear("g", "a", 1, owned=ALL).assignment or ()) == 1
        bench.hear("h", "c")
    with Hosting([tmp_path / "a"]) as bench:
        restored = restoring.restored

        def slow(*arguments: Any) -> Any:
            made = restored(*arguments)
            bench.scheduler.seconds += 50.0
            return made

        monkeypatch.setattr(restoring, "restored", slow)
        bench.load("other").scheduler.until(bench.scheduler.seconds + 4.9)
        assert bench.hear("h", "c", 1).error is bench.hear("g", "b", 2).error is Code.NONE
        assert bench.hear("g", "a", 1).error is Code.NONE
        bench.scheduler.until(bench.scheduler.seconds + 0.1)
        assert bench.hear("g", "a", 1).error is Code.UNKNOWN_MEMBER_ID


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Hosting]:
    with Hosting([tmp_path / "a"]) as made:
        yield made.load()


def test_a_restart_keeps_members_epochs_and_offsets(tmp_path: Path) -> None:
    """After a restart, sessions begin again; a member that does not return is removed later."""
    with Hosting([tmp_path / "a"]) as bench:
        assert bench.load().hear("g", "a").assignment == ALL
        assert bench.hear("g", "b").member_epoch == 2
        assert bench.commit("g", 7, ("a", 1)) is Code.NONE
        assert bench.commit("g", 8, ("a", 2)) is Code.STALE_MEMBER_EPOCH
    with Hosting([tmp_path / "a"]) as bench:
        bench.load("new")
        assert bench.offset("g") == 7
        bench.scheduler.until(bench.scheduler.seconds + 44.0)
        assert bench.hear("g", "b", 2).error is Code.NONE
        told = bench.hear("g", "a", 1).assignment
        assert told is not None and len(told) == 1
        assert bench.hear("g", "a", 1, owned=told).member_epoch == 2
        assert bench.hear("g", "b", 2).assignment == ALL - told
        bench.scheduler.until(bench.scheduler.seconds + 46.0)
        assert bench.hear("g", "a", 2).error is Code.UNKNOWN_MEMBER_ID


def test_a_group_without_members_changes_its_type(tmp_path: Path) -> None:
    """In both directions, the records of the other type are deleted, and the offsets stay."""
    with Hosting([tmp_path / "a"]) as bench:
        bench.load().hear("g", "a")
        bench.commit("g", 7, ("a", 1))
        assert bench.join("g").code is Code.INCONSISTENT_GROUP_PROTOCOL
        assert bench.beat("g", "a", 1) is Code.UNKNOWN_MEMBER_ID
        assert bench.go("g", "a") is Code.NONE
        member = bench.member("g")
        assert bench.names == {"g": "Group"} and bench.offset("g") == 7
        assert bench.hear("g", "b").error is Code.GROUP_ID_NOT_FOUND
    with Hosting([tmp_path / "a"]) as bench:
        bench.load("new")
        assert bench.names == {"g": "Group"} and bench.beat("g", *member) is Code.NONE
        bench.groups.leave("g", [(member[0], None)])
        assert bench.hear("g", "b", pattern="(").error is Code.INVALID_REGULAR_EXPRESSION
        assert bench.names == {"g": "Group"}, "a refused heartbeat changes nothing"
        assert bench.hear("g", "b").assignment == ALL
    with Hosting([tmp_path / "a"]) as bench:
        bench.load("new")
        assert bench.names == {"g": "ConsumerGroup"} and bench.offset("g") == 7
        assert bench.hear("g", "b", 1).error is Code.NONE


def test_a_refused_heartbeat_leaves_no_group(bench: Hosting) -> None:
    """After a refused heartbeat, there is no group in memory or in the log."""
    assert bench.hear("new", "a", pattern="(").error is Code.INVALID_REGULAR_EXPRESSION
    assert bench.hear("new", "a", 3).error is Code.GROUP_ID_NOT_FOUND
    assert bench.names == {}


def test_offsets_expire_with_the_group(tmp_path: Path) -> None:
    """The retention begins when the last member leaves.

    Then the group and its records are deleted.
    """
    with Hosting([tmp_path / "a"]) as bench:
        bench.load().hear("g", "a")
        bench.commit("g", 7, ("a", 1))
        bench.commit("g", 9, ("a", 1), topic="other")
        bench.scheduler.seconds += RETENTION_SECONDS + 10
        bench.hear("g", "a", 1)
        bench.upkeep.delete_expired()
        assert bench.offset("g") == 7 and bench.offset("g", "other") is None
        bench.go("g", "a")
        bench.scheduler.seconds += RETENTION_SECONDS - 1
        bench.upkeep.delete_expired()
        assert bench.offset("g") == 7
        bench.scheduler.seconds += 2
        bench.upkeep.delete_expired()
        assert bench.names == {}
    with Hosting([tmp_path / "a"]) as bench:
        bench.load("new")
        assert bench.names == {}


def test_members_read_offsets_in_their_epoch(bench: Hosting) -> None:
    """Members must name their epoch; a tool names no member, and is not checked."""
    bench.hear("g", "a")
    bench.commit("g", 7, ("a", 1))
    wanted = {("t", 0): 7}
    for member in ((None, -1), ("a", 1)):
        found: dict[Any, Committed] = bench.groups.offsets_of("g", *member)
        assert {key: one.offset for key, one in found.items()} == wanted
    for member, code in ((("a", 2), Code.STALE_MEMBER_EPOCH), (("x", 1), Code.UNKNOWN_MEMBER_ID)):
        with pytest.raises(CoordinatorError) as caught:
            bench.groups.offsets_of("g", *member)
        assert caught.value.code is code


def test_a_broker_that_knows_no_topics_yet_refuses_heartbeats(bench: Hosting) -> None:
    """With an empty list of topics, each member would lose its partitions."""
    bench.hear("g", "a")
    bench.groups.consumers.topics = dict
    assert bench.hear("g", "a", 1).error is Code.COORDINATOR_LOAD_IN_PROGRESS
    bench.groups.consumers.topics = lambda: TOPICS
    bench.scheduler.seconds += 5
    assert bench.hear("g", "a", 1) == (0, None, "a", 1, None)


def test_a_change_that_was_not_written_never_happened(
    bench: Hosting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a change is not written, the member gets an error, and the group is read again."""
    bench.hear("g", "a")
    log = bench.groups.topic.open(0).log

    def full(*_: object, **__: object) -> None:
        raise LogDirFullError("/disk")

    with monkeypatch.context() as patch:
        patch.setattr(type(bench.groups.topic.open(0)), "append", full)
        assert bench.hear("g", "b").error is Code.COORDINATOR_NOT_AVAILABLE
    assert bench.hear("g", "a", 1) == (0, None, "a", 1, None)
    assert bench.hear("g", "b", 2).error is Code.UNKNOWN_MEMBER_ID
    assert log.log_end_offset > 0


def test_a_damaged_record_costs_only_its_member(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The member of a damaged record joins again; the log says what was left out."""
    with Hosting([tmp_path / "a"]) as bench:
        bench.load().hear("g", "a")
        bench.hear("g", "b")
        key = records.key_of(records.CURRENT, "g", "b")
        shard = bench.groups.shards()[0]
        shard.append([key], [b"\0\0\0\0\0\x07damaged"])
    with Hosting([tmp_path / "a"]) as bench:
        bench.load("new")
        assert "cannot be read" in caplog.text
        assert bench.hear("g", "a", 1).error is Code.NONE
        assert bench.hear("g", "b", 2).error is Code.FENCED_MEMBER_EPOCH
        assert bench.hear("g", "b").error is Code.NONE


def test_a_large_change_is_written_in_several_batches(
    bench: Hosting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large group needs several batches; here, each batch has one record."""
    monkeypatch.setattr(group_kinds, "BATCH_BYTES_MAX", 64)
    before = bench.groups.topic.open(0).log.log_end_offset
    bench.hear("g", "a")
    log = bench.groups.topic.open(0).log
    assert len(list(log.read_batches(before))) == 5
    (hosted,) = bench.groups.shards()[0].all()
    assert isinstance(hosted.group, ConsumerGroup) and not hosted.group.is_unsaved
