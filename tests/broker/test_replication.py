"""Test that a group's answers wait for replication without holding threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.catalog.leadership import NotServedError
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.internal_topic import SoleGroupLog
from broker.coordinator.offsets_topic import OffsetsTopic
from broker.groups.offsets import Committed
from broker.wire.error_codes import ErrorCode
from logstore import Log
from support.coordinating import Bench, Waiter

NOT_HERE = ErrorCode.NOT_COORDINATOR
AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
NONE = ErrorCode.NONE


class Wait:
    """A wait for other replicas, which a test ends."""

    def __init__(self) -> None:
        self.is_over, self.is_closed = False, False
        self.error: Any = None
        self._wake: Callable[[], None] = lambda: None

    def watch(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def give_up(self) -> None:
        raise AssertionError("the rules must know the records until they are replicated")

    def close(self) -> None:
        self.is_closed = True

    def end(self, error: Any = None) -> None:
        self.error, self.is_over = error, True
        self._wake()


class ReplicatedLog:
    """A partition that this broker leads until a test says otherwise."""

    def __init__(self, topic: ReplicatedTopic, log: SoleGroupLog, epoch: int) -> None:
        self._topic, self._sole, self._epoch = topic, log, epoch

    @property
    def log(self) -> Log:
        return self._sole.log

    @property
    def is_led(self) -> bool:
        return self._topic.is_led and self._topic.epoch == self._epoch

    @property
    def is_settled(self) -> bool:
        return self._topic.is_settled

    def mend(self) -> None:
        """Do nothing."""

    def append(self, keys: Sequence[bytes], values: Sequence[bytes | None], now: int) -> Any:
        if self._topic.refusal is not None:
            raise NotServedError(code=self._topic.refusal, reason="refused")
        self._sole.append(keys, values, now)
        if self._topic.is_at_once:
            return None
        self._topic.waits.append(Wait())
        if self._topic.is_fast:
            self._topic.waits[-1].end()
        return self._topic.waits[-1]


class ReplicatedTopic(OffsetsTopic):
    """The partitions of a broker of a cluster; the tests play the other replicas."""

    is_led = is_settled = is_fast = True
    is_at_once = False  # whether the records are replicated before an append returns
    epoch = 1
    waits: list[Wait]
    refusal: ErrorCode | None = None

    def open(self, partition: int) -> Any:
        if not self.is_led:
            raise CoordinatorError(NOT_HERE)
        return ReplicatedLog(self, super().open(partition), self.epoch)


class Replicated(Bench):
    """A coordinator whose records are replicated when the test says so."""

    def __init__(self, dirs: Sequence[Path]) -> None:
        super().__init__(dirs)
        self.topic = ReplicatedTopic(self.topics, 1)
        self.topic.waits = []
        self.groups.topic = self.topic

    def hold(self) -> None:
        """Stop replicating records at once."""
        self.topic.is_fast = False
        self.topic.waits.clear()

    def end(self, error: Any = None) -> None:
        """End the first running wait."""
        self.topic.waits.pop(0).end(error)
        self.scheduler.run()

    def ask(self, offset: int, member: tuple[str, int] = ("", -1)) -> Waiter:
        """Commit an offset; the answer may come later."""
        waiter = Waiter()
        offsets = {("t", 0): Committed(offset, -1, "", self.groups.now().wall_ms)}
        try:
            code = self.groups.commit("g", member[0], None, member[1], offsets, waiter)
        except CoordinatorError as error:
            code = error.code
        if code is not None:
            waiter.put(code)
        return waiter

    def member_of_cluster(self) -> tuple[str, int]:
        """Form a generation of one member."""
        said = self.join("g").one
        synced = self.sync("g", said.member_id, said.generation, {said.member_id: b"part"})
        self.scheduler.run()
        assert synced.one.assignment == b"part"
        return said.member_id, said.generation

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.scheduler.until(self.scheduler.seconds + seconds)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Replicated]:
    """A coordinator that has loaded its groups."""
    made = Replicated([tmp_path / "a"])
    with made:
        made.load()
        yield made


def test_a_commit_counts_when_it_is_replicated(bench: Replicated) -> None:
    """Until then, a commit is neither acknowledged nor visible; commits count in log order."""
    bench.hold()
    first, second = bench.ask(5), bench.ask(6)
    assert first.said == second.said == [] and bench.offset("g") is None
    bench.topic.waits[1].end()
    bench.scheduler.run()
    assert second.said == [] and bench.offset("g") is None
    bench.end()
    assert first.said == second.said == [NONE] and bench.offset("g") == 6


def test_a_wait_that_is_over_at_once_is_answered(bench: Replicated) -> None:
    """The other replicas may be faster than the coordinator."""
    waiter = bench.ask(5)
    bench.scheduler.run()
    assert waiter.said == [NONE] and bench.offset("g") == 5


def test_regression_a_fast_commit_counts_after_an_earlier_commit(bench: Replicated) -> None:
    """One fetch of a follower replicated two commits, and the earlier one replaced the later."""
    bench.hold()
    first = bench.ask(5)
    bench.topic.waits[0].end()  # the task that applies this commit has not run yet
    bench.topic.is_at_once = True
    second = bench.ask(6)
    bench.scheduler.run()
    assert first.said == second.said == [NONE] and bench.offset("g") == 6


def test_regression_a_fast_commit_counts_after_an_earlier_deletion(bench: Replicated) -> None:
    """The deletion of the old offset deleted the new offset in memory."""
    bench.ask(5)
    bench.scheduler.run()
    bench.hold()
    with bench.groups.using("g") as (shard, hosted):
        assert bench.groups.delete_offsets(shard, hosted, [("t", 0)]) is None
    bench.topic.waits[0].end()
    bench.topic.is_at_once = True
    second = bench.ask(6)
    bench.scheduler.run()
    assert second.said == [NONE] and bench.offset("g") == 6


def test_an_assignment_is_told_when_it_is_replicated(bench: Replicated) -> None:
    """Even a member that asks again does not get the assignment earlier."""
    said = bench.join("g").one
    bench.hold()
    member = (said.member_id, said.generation)
    first = bench.sync("g", *member, {said.member_id: b"part"})
    again = bench.sync("g", *member, {})
    assert first.said == again.said == []
    bench.end()
    assert first.one.assignment == again.one.assignment == b"part"


def test_a_commit_behind_an_assignment_waits_for_both(bench: Replicated) -> None:
    """Its records are behind those of the assignment in the log."""
    said = bench.join("g").one
    bench.hold()
    member = (said.member_id, said.generation)
    synced = bench.sync("g", *member, {said.member_id: b"part"})
    asked = bench.ask(5, member)
    bench.end()
    assert synced.code is NONE and asked.said == []
    bench.end()
    assert asked.said == [NONE]


def test_waiting_syncs_get_an_error_after_a_time(bench: Replicated) -> None:
    """The member joins again; the records become valid when they are replicated later."""
    said = bench.join("g").one
    bench.hold()
    member = (said.member_id, said.generation)
    synced = bench.sync("g", *member, {said.member_id: b"part"})
    bench.later(4.9)
    assert synced.said == []
    bench.later(0.2)
    assert synced.code is REBALANCING
    bench.end()
    assert bench.sync("g", *member, {}).one.assignment == b"part"


def test_a_failed_wait_ends_all_groups_of_the_partition(bench: Replicated) -> None:
    """Unacknowledged records may be lost, so the groups are read again from the log."""
    bench.hold()
    first, second = bench.ask(5), bench.ask(6)
    bench.end(NotServedError(code=ErrorCode.REQUEST_TIMED_OUT, reason="the role ended"))
    assert first.said == second.said == [NOT_HERE]
    bench.load()
    assert bench.offset("g") == 6  # the new leader had both


def test_refused_records_change_nothing(bench: Replicated) -> None:
    """If too few replicas are in sync, the client tries again, and no group is forgotten."""
    member = bench.member_of_cluster()
    bench.topic.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert bench.ask(5, member).said == [AWAY]
    assert bench.beat("g", *member) is NONE
    bench.topic.refusal = None
    waiter = bench.ask(6, member)
    bench.scheduler.run()
    assert waiter.said == [NONE]


def test_a_fenced_append_ends_the_groups(bench: Replicated) -> None:
    """Another broker leads a newer epoch, and has the groups."""
    member = bench.member_of_cluster()
    bench.topic.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert bench.ask(5, member).said == [NOT_HERE]
    assert bench.beat("g", *member) is LOADING  # they are being forgotten


def test_a_lost_role_answers_all_that_wait(bench: Replicated) -> None:
    """Joins, syncs and commits are answered at once, even without a further request."""
    member = bench.member_of_cluster()
    joining = bench.join("g", member_id="", client_id="other")
    bench.hold()
    committing = bench.ask(5, member)
    assert joining.said == committing.said == []
    bench.topic.is_led = False
    bench.groups.role_changed(0)
    bench.scheduler.run()
    assert joining.code is NOT_HERE and committing.said == [NOT_HERE]
    assert bench.beat("g", *member) is NOT_HERE and bench.groups.count == 0
    bench.topic.waits[0].end()  # a late acknowledgement changes nothing
    bench.scheduler.run()
    assert committing.said == [NOT_HERE]


def test_a_request_notices_a_lost_role_before_the_report(bench: Replicated) -> None:
    """Otherwise a commit that another broker accepted in between could be lost."""
    bench.ask(5)
    bench.scheduler.run()
    bench.topic.epoch = 2  # it led, another broker led, and now it leads again
    with pytest.raises(CoordinatorError) as caught:
        bench.offset("g")
    assert caught.value.code is LOADING
    bench.scheduler.run()
    bench.load()
    assert bench.offset("g") == 5


def test_groups_are_read_when_all_records_are_replicated(bench: Replicated) -> None:
    """A record above the high watermark may still be lost, so it must not be shown."""
    bench.ask(5)
    bench.scheduler.run()
    bench.topic.epoch, bench.topic.is_settled = 2, False
    bench.groups.role_changed(0)
    bench.later(3.0)
    assert bench.code_of("g") is LOADING
    assert len(bench.scheduler.set_timers) == 1
    bench.topic.is_settled = True
    bench.later(0.5)
    assert bench.offset("g") == 5


def test_a_role_that_is_lost_during_the_loading(bench: Replicated) -> None:
    """The loaded groups are not used."""
    bench.topic.epoch, bench.topic.is_settled = 2, False
    bench.groups.role_changed(0)
    bench.scheduler.run()
    bench.topic.is_led = False
    bench.groups.roles_changed()
    bench.later(1.0)
    assert bench.code_of("g") is NOT_HERE
    bench.topic.is_led = bench.topic.is_settled = True
    bench.groups.roles_changed()
    bench.scheduler.run()
    assert bench.code_of("g") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_is_gone_when_its_deletion_is_replicated(bench: Replicated) -> None:
    """Until then, its offsets stay hidden; a late commit is deleted with the group."""
    bench.ask(5)
    bench.scheduler.run()
    bench.hold()
    committing, deleting = bench.ask(6), Waiter()
    with bench.groups.using("g") as (shard, hosted):
        assert bench.groups.delete(shard, hosted, deleting) is None
    with pytest.raises(CoordinatorError) as caught:
        bench.offset("g")
    assert caught.value.code is LOADING and deleting.said == []
    bench.end()
    bench.end()
    assert committing.said == deleting.said == [NONE]
    assert bench.offset("g") is None and bench.groups.count == 0


def test_offsets_are_gone_when_their_deletion_is_replicated(bench: Replicated) -> None:
    """An administrator deletes single offsets."""
    bench.ask(5)
    bench.scheduler.run()
    bench.hold()
    deleting = Waiter()
    with bench.groups.using("g") as (shard, hosted):
        assert bench.groups.delete_offsets(shard, hosted, [("t", 0)], deleting) is None
    assert bench.offset("g") == 5 and deleting.said == []
    bench.end()
    assert bench.offset("g") is None and deleting.said == [NONE]


def test_a_group_with_a_commit_under_way_does_not_expire(bench: Replicated) -> None:
    """Otherwise the new offset would be deleted with the old offset."""
    bench.ask(5)
    bench.later(900.0)
    bench.hold()
    bench.ask(6)
    bench.later(200.0)
    bench.upkeep.delete_expired()
    bench.end()
    assert bench.offset("g") == 6


def test_offsets_of_a_deleted_topic(bench: Replicated) -> None:
    """Another thread deletes them; offsets of a newer topic with the same name are kept."""
    bench.upkeep.start(bench.scheduler)
    for topic_id, left in ((bytes(15) + b"2", 5), (bytes(15) + b"1", None)):
        offsets = {("t", 0): Committed(5, -1, "", 0, topic_id=bytes(15) + b"1")}
        bench.groups.commit("g", "", None, -1, offsets, Waiter())
        bench.scheduler.run()
        bench.upkeep.forget_soon("t", topic_id)
        bench.scheduler.run()
        assert bench.offset("g") == left
