"""Test that a disk that fails, hangs or is full costs no group any acknowledged data."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.coordinator import shards
from broker.coordinator.hosted import Hosted
from broker.coordinator.shard import Phase, Shard
from broker.groups.group import State
from broker.wire.error_codes import ErrorCode
from logstore.disk import files
from support.coordinating import Bench
from support.hanging import Caller, hang

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_HERE = ErrorCode.NOT_COORDINATOR
AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
STRANGER = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench([tmp_path / "a"]) as made:
        yield made.load()


def test_a_log_dir_that_goes_offline_and_returns(tmp_path: Path, bench: Bench) -> None:
    """Waiting requests end with 16, later requests with 14 and 15; acknowledged data returns."""
    member = bench.member("g")
    assert bench.commit("g", 5, member) is ErrorCode.NONE
    waiter = bench.join("g")
    assert not waiter.said
    bench.store.take_offline(tmp_path / "a")
    assert bench.commit("simple", 6) is NOT_HERE
    bench.scheduler.run()
    assert waiter.code is NOT_HERE
    assert bench.beat("g", *member) is LOADING
    bench.scheduler.run()
    assert bench.beat("g", *member) is AWAY and bench.commit("simple", 6) is AWAY
    bench.store.reopen_dir(tmp_path / "a")
    bench.scheduler.until(bench.scheduler.seconds + 1.0)
    assert bench.beat("g", *member) is LOADING
    bench.scheduler.run()
    assert bench.beat("g", *member) is ErrorCode.NONE
    assert (bench.offset("g"), bench.offset("simple")) == (5, None)
    assert bench.commit("g", 7, member) is ErrorCode.NONE and bench.offset("g") == 7


def test_a_log_dir_that_was_away_between_two_requests(tmp_path: Path, bench: Bench) -> None:
    """Before any write, the groups are read again, because the log may be shorter now."""
    member = bench.member("g")
    bench.store.take_offline(tmp_path / "a")
    bench.store.reopen_dir(tmp_path / "a")
    assert bench.commit("g", 5, member) is NOT_HERE
    bench.scheduler.run()
    assert bench.commit("g", 5, member) is LOADING
    bench.scheduler.run()
    assert bench.commit("g", 5, member) is ErrorCode.NONE


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Return a function that lets each write fail with an error; 0 repairs the disk."""
    write, code = files.pwritev, [0]

    def failing(fd: int, *arguments: object) -> int:
        if code[0]:
            raise OSError(code[0], os.strerror(code[0]))
        return write(fd, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "pwritev", failing)
    yield lambda number: code.__setitem__(0, number)
    code[0] = 0


def test_a_full_disk(bench: Bench, broken: Callable[[int], None]) -> None:
    """On a full disk, a commit gets 15 and changes nothing; the members stay."""
    member = bench.member("g")
    assert bench.commit("g", 5, member) is ErrorCode.NONE
    broken(errno.ENOSPC)
    assert bench.commit("g", 6, member) is AWAY
    assert bench.offset("g") == 5 and bench.beat("g", *member) is ErrorCode.NONE
    broken(0)
    mended = commit_soon(bench, member)
    assert mended is ErrorCode.NONE and bench.offset("g") == 6


def commit_soon(bench: Bench, member: tuple[str, int]) -> ErrorCode:
    """Commit until the store has noticed that there is room again."""
    deadline = time.monotonic() + 30.0
    while (code := bench.commit("g", 6, member)) is AWAY:
        assert time.monotonic() < deadline
    assert code is not None, "nobody else has to have the records"
    return code


def test_an_assignment_that_is_not_written_is_not_given(
    bench: Bench, broken: Callable[[int], None]
) -> None:
    """If an assignment is not written, the members get an error, and the group is unchanged."""
    first = bench.member("g")
    second = bench.join("g")
    again = bench.join("g", first[0])
    waits = bench.sync("g", second.one.member_id, 2, {})
    assert again.code is ErrorCode.NONE and not waits.said
    broken(errno.EIO)
    leads = bench.sync("g", first[0], 2, {first[0]: b"x"})
    assert leads.code is waits.code is NOT_HERE
    broken(0)
    bench.scheduler.run()
    bench.store.reopen_dir(bench.store.log_dirs[0])
    bench.scheduler.until(bench.scheduler.seconds + 1.0)
    assert bench.beat("g", *first) is LOADING
    bench.scheduler.run()
    group = bench.group("g")
    assert (group.generation, list(group.members)) == (1, [first[0]])
    assert bench.beat("g", first[0], 2) is ErrorCode.ILLEGAL_GENERATION


def test_an_assignment_on_a_full_disk(bench: Bench, broken: Callable[[int], None]) -> None:
    """On a full disk, members get 15; they stay in the group, and join again."""
    first = bench.member("g")
    second, again = bench.join("g"), bench.join("g", first[0])
    broken(errno.ENOSPC)
    leads = bench.sync("g", first[0], 2, {})
    assert (second.code, again.code, leads.code) == (ErrorCode.NONE, ErrorCode.NONE, AWAY)
    broken(0)
    group = bench.group("g")
    assert group.state is State.PREPARING and set(group.members) == {first[0], second.one.member_id}
    assert bench.beat("g", first[0], 2) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = [bench.join("g", member_id) for member_id in group.members]
    assert [one.one.generation for one in joined] == [3, 3]


def test_groups_end_although_a_disk_holds_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other requests are answered at once; the log is read only after all groups have ended."""
    one = bench.member("one")
    bench.member("other")
    waiter = bench.join("other")
    (shard,) = bench.groups.shards()
    monkeypatch.setattr(shards, "LOCK_SECONDS", 0.05)
    with hang(monkeypatch, bench.store.log_dirs[0], "pwritev", "pwrite") as disk:
        held = Caller(lambda: bench.commit("one", 5, one))
        assert disk.began.wait(30.0)
        shard.leave("a test")
        ends = Caller(bench.scheduler.run)
        deadline, pause = time.monotonic() + 30.0, threading.Event()
        while not waiter.said:
            assert time.monotonic() < deadline
            pause.wait(0.01)
        assert waiter.code is NOT_HERE and shard.phase is Phase.LEAVING
    assert held.outcome() is ErrorCode.NONE
    assert ends.outcome() is None
    bench.load()
    assert bench.offset("one") == 5  # it was acknowledged although the groups were given up


def test_a_disk_that_hangs_holds_one_group(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other groups of the partition are answered; this group gets 14 until the disk answers."""
    one, other = bench.member("one"), bench.member("other")
    monkeypatch.setattr(shards, "LOCK_SECONDS", 0.05)
    with hang(monkeypatch, bench.store.log_dirs[0], "pwritev", "pwrite") as disk:
        caller = Caller(lambda: bench.commit("one", 5, one))
        assert disk.began.wait(30.0)
        for _ in range(20):
            assert bench.beat("other", *other) is ErrorCode.NONE
        assert bench.offset("other") is None
        began = time.monotonic()
        assert bench.beat("one", *one) is LOADING and bench.join("one").code is LOADING
        assert time.monotonic() < began + 10.0
    assert caller.outcome() is ErrorCode.NONE and bench.offset("one") == 5
    assert bench.beat("one", *one) is ErrorCode.NONE


def test_regression_a_disk_that_hangs_ends_no_session(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heartbeats during the hang were not recorded, so all members were removed after it."""
    one = bench.member("one")
    monkeypatch.setattr(shards, "LOCK_SECONDS", 0.05)
    with hang(monkeypatch, bench.store.log_dirs[0], "pwritev", "pwrite") as disk:
        caller = Caller(lambda: bench.commit("one", 5, one))
        assert disk.began.wait(30.0)
        assert bench.beat("one", *one) is LOADING
        bench.scheduler.until(bench.scheduler.seconds + 20.0)  # this does not wait for the disk
    assert caller.outcome() is ErrorCode.NONE
    bench.scheduler.until(bench.scheduler.seconds + 9.9)
    assert bench.beat("one", *one) is ErrorCode.NONE
    bench.scheduler.until(bench.scheduler.seconds + 11.0)  # now the member is silent
    assert bench.beat("one", *one) is STRANGER


def test_a_log_that_fails_in_the_middle_of_a_request(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that found the groups loaded gets 14, and leaves no group behind."""
    member = bench.member("g")
    require = Shard.require

    def late(shard: Shard[Hosted]) -> None:
        require(shard)
        shard.leave("the log failed")

    monkeypatch.setattr(Shard, "require", late)
    assert bench.join("new").code is LOADING
    monkeypatch.undo()
    bench.scheduler.run()
    bench.load()
    monkeypatch.setattr(Shard, "require", late)
    assert bench.beat("g", *member) is LOADING
    monkeypatch.undo()
    bench.scheduler.run()
    bench.load()
    assert [hosted.group.name for hosted in bench.groups.shards()[0].all()] == ["g"]


def test_an_unexpected_error_does_not_hold_the_groups(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed loading is tried again at most once a second."""
    (shard,) = bench.groups.shards()
    shard.leave("a test")
    bench.scheduler.run()
    monkeypatch.setattr("broker.coordinator.group_coordinator.load", lambda *_: 1 / 0)
    assert bench.beat("g", "m", 1) is LOADING
    bench.scheduler.run()
    assert bench.beat("g", "m", 1) is AWAY and not bench.scheduler.tasks
    monkeypatch.undo()
    bench.scheduler.until(bench.scheduler.seconds + 1.0)
    assert bench.beat("g", "m", 1) is LOADING
    bench.scheduler.run()
    assert bench.beat("g", "m", 1) is STRANGER and shard.phase is Phase.READY


def test_regression_a_commit_that_is_refused_leaves_no_group(
    bench: Bench, broken: Callable[[int], None]
) -> None:
    """A refused commit left a group, which was listed for a week and counted for the limit."""
    broken(errno.ENOSPC)
    assert bench.commit("new", 5) is AWAY
    broken(0)
    assert bench.groups.shards()[0].all() == []


def test_regression_a_log_dir_that_is_away_is_reported_once(
    tmp_path: Path, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of 50 partitions logged a line every second."""
    for _ in range(2):
        caplog.clear()
        bench.store.take_offline(tmp_path / "a")
        assert bench.commit("g", 5) is NOT_HERE
        for _ in range(3):
            bench.scheduler.until(bench.scheduler.seconds + 1.0)
            assert bench.commit("g", 5) is LOADING
            bench.scheduler.run()
        assert caplog.text.count("could not be loaded") == 1
        bench.store.reopen_dir(tmp_path / "a")
        bench.scheduler.until(bench.scheduler.seconds + 1.0)
        bench.load()
