"""Lose the source of a move, bring it back, and cancel in between: which moves resume.

A move that failed with its source's disk is gone on with once that is back, as a start would; what
was cancelled meanwhile is not, by no mover and after no restart.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore import Log, LogDirOfflineError, LogStore, ReplicaOfflineError
from logstore.disk.states import Event
from logstore.log import relocation
from mover import Move, MoveState, ReplicaMover, plan_moves
from mover.administration import left_moves
from mover.resume import resume_left
from support.gate import SECONDS_MAX, Gate, gated
from support.moving import CONFIG, check_whole, fill, replica_dirs, settle

DONE, PAUSED = MoveState.DONE, MoveState.PAUSED
CANCELLED, FAILED = MoveState.CANCELLED, MoveState.FAILED


def begun(mover: ReplicaMover, gate: Gate, target: Path) -> Move:
    """Copy the first five chunks of a move."""
    gate.hold(after=5)
    move = mover.move("orders", 0, target)
    gate.wait_until_held()
    return move


def failed_with_its_source(store: LogStore, mover: ReplicaMover, gate: Gate, base: Path) -> Move:
    """Take the source offline during a move."""
    move = begun(mover, gate, base / "b")
    store.take_offline(base / "a")
    gate.open()
    assert move.wait(SECONDS_MAX) is FAILED
    assert isinstance(move.error, LogDirOfflineError)
    return move


def temporary(store: LogStore) -> list[tuple[str, bool]]:
    """List the running copies: their log dirs, and whether they have bytes."""
    dirs = store.describe_dirs().log_dirs
    return [(d.path[-1], each.size > 0) for d in dirs for each in d.partitions if each.is_temporary]


def look(mover: ReplicaMover) -> None:
    """Make the mover look for unfinished moves, unless one of its threads has already done so."""
    with mover._taking:
        if mover._is_to_look:
            mover._is_to_look = False
            resume_left(mover._moves)


def test_a_move_goes_on_when_its_source_is_back(store: LogStore, log: Log, base: Path) -> None:
    """The move was reported as failed; a new move copies the missing bytes without a request."""
    with gated(store) as (mover, gate):
        move = failed_with_its_source(store, mover, gate, base)
        assert temporary(store) == [("b", True)]
        gate.passed = 0
        store.reopen_dir(base / "a")
        look(mover)
        resumed = mover.moves()[-1]
        assert (resumed.move_id, resumed is move) == (move.move_id, False)
        assert resumed.wait(SECONDS_MAX) is DONE
        assert (move.state, gate.passed * gate.chunk_bytes < log.size_bytes) == (FAILED, True)
        assert temporary(store) == []
    settle(store)
    assert replica_dirs(base) == ["b/orders-0"]
    check_whole(store["orders", 0], base, "b")


def test_a_move_goes_on_when_its_target_is_back(store: LogStore, log: Log, base: Path) -> None:
    """If a move could not resume because its target was missing, it resumes once, later."""
    with gated(store) as (mover, gate):
        begun(mover, gate, base / "b")
    store.take_offline(base / "b")
    with ReplicaMover(store) as mover:
        (failed,) = mover.moves()
        assert (failed.state, type(failed.error)) == (FAILED, LogDirOfflineError)
        store.take_offline(base / "c")
        store.reopen_dir(base / "c")
        look(mover)
        assert mover.moves() == [failed]
        store.reopen_dir(base / "b")
        look(mover)
        assert mover.moves()[-1].wait(SECONDS_MAX) is DONE
        assert len(mover.moves()) == 2
    check_whole(log, base, "b")


@pytest.mark.parametrize("is_started", [False, True])
def test_regression_a_move_to_a_log_dir_that_was_given_up_is_forgotten(
    store: LogStore, log: Log, base: Path, is_started: bool
) -> None:
    """Each start began this move again, and it always failed: its target never returns."""
    with gated(store) as (mover, gate):
        begun(mover, gate, base / "b")
    store.take_offline(base / "b")
    store.remove_dir(base / "b", lost=True)
    if is_started:
        store.close()
        store = LogStore.open([base / "a", base / "c"])
    with store, ReplicaMover(store) as mover:
        assert mover.moves() == []
        assert relocation.moving_of(store["orders", 0]) is None
        assert mover.move("orders", 0, base / "c").wait(SECONDS_MAX) is DONE


def test_without_a_mover_it_is_said_what_is_left(store: LogStore, log: Log, base: Path) -> None:
    """The owner and a reader report the copy's size, its state, and that no move is running."""
    with gated(store) as (mover, gate):
        failed_with_its_source(store, mover, gate, base)
    store.reopen_dir(base / "a")
    with LogStore.open([base / name for name in "abc"], read_only=True) as view:
        for one in (store, view):
            (row,) = left_moves(one)
            assert (row["state"], 0 < row["bytes_done"] < row["bytes_total"]) == ("left", True)
            (skipped,) = plan_moves(one, evacuate=[str(base / "a")]).skipped
            assert f"a move left a copy of this replica in {base / 'b'}" in skipped.reason


def test_a_closed_movers_copies_are_described(store: LogStore, log: Log, base: Path) -> None:
    """The copies of a closed mover are visible until the next mover completes their moves."""
    with gated(store) as (mover, gate):
        move = begun(mover, gate, base / "b")
        mover.close()
        (row,) = left_moves(store)
        assert (row["bytes_done"], row["state"]) == (move.bytes_done, "left")
        assert move.bytes_done > 0


def test_what_an_earlier_process_left_has_its_size(base: Path) -> None:
    """The owner knows the size of the copy from its start."""
    dirs = [base / "a", base / "b"]
    with LogStore.open(dirs) as store:
        fill(store.create("orders", 0, log_dir=base / "a", config=CONFIG), 60)
        with gated(store) as (mover, gate):
            size_bytes = begun(mover, gate, base / "b").bytes_done
    with LogStore.open(dirs) as store:
        (row,) = left_moves(store)
        assert row["bytes_done"] == size_bytes > 0


def paused(store: LogStore, mover: ReplicaMover, gate: Gate, base: Path) -> Move:
    """Pause a move, then lose its source."""
    move = begun(mover, gate, base / "b")
    move.pause()
    gate.open()
    store.take_offline(base / "a")
    return move


def test_a_move_that_is_resumed_without_its_source_keeps_its_copy(
    store: LogStore, log: Log, base: Path
) -> None:
    """The move fails, but the bytes that it had copied are still reported, and are used later."""
    with gated(store) as (mover, gate):
        move = paused(store, mover, gate, base)
        size_bytes = move.bytes_done
        move.resume()
        assert move.wait(SECONDS_MAX) is FAILED
        (left,) = store.describe_dirs().log_dirs[1].partitions
        assert left.size == move.bytes_done == size_bytes > 0
        store.reopen_dir(base / "a")
        look(mover)
        assert mover.moves()[-1].wait(SECONDS_MAX) is DONE


@pytest.mark.parametrize("begin", [paused, failed_with_its_source])
@pytest.mark.parametrize("is_restarted", [True, False])
def test_what_was_cancelled_without_its_source_is_not_resumed(
    base: Path, begin: Callable[..., Move], is_restarted: bool
) -> None:
    """The copy is kept while the source may be lost for good; then the copy is removed."""
    dirs = [base / "a", base / "b"]
    store = LogStore.open(dirs)
    fill(store.create("orders", 0, log_dir=base / "a", config=CONFIG), 60)
    with gated(store) as (mover, gate):
        move = begin(store, mover, gate, base)
        state = CANCELLED if begin is paused else FAILED
        move.cancel()
        assert move.state is state
        assert [name[0] for name in replica_dirs(base) if ".move" in name] == ["b"]
        if not is_restarted:
            store.reopen_dir(base / "a")
            look(mover)
            assert mover.moves() == [move]
    if is_restarted:
        store.close()
        store = LogStore.open(dirs)
    with store:
        assert temporary(store) == []
        with ReplicaMover(store) as mover:
            assert mover.moves() == []
        assert store["orders", 0]._state.metadata.moving is None
        settle(store)
        assert replica_dirs(base) == ["a/orders-0"]
        check_whole(store["orders", 0], base, "a")


def test_a_lost_source_leaves_what_was_cancelled_to_be_read(base: Path) -> None:
    """The copy is then the only one: it opens as incomplete, and is not removed."""
    dirs = [base / "a", base / "b"]
    with LogStore.open(dirs) as store:
        fill(store.create("orders", 0, log_dir=base / "a", config=CONFIG), 60)
        with gated(store) as (mover, gate):
            paused(store, mover, gate, base).cancel()
        store.remove_dir(base / "a", lost=True)
    with LogStore.open([base / "b"]) as store:
        assert len(list(store["orders", 0])) > 0
        assert len(store.recovery_report.incomplete) == 1


def test_regression_a_copy_knows_what_was_deleted_meanwhile(base: Path) -> None:
    """The copy lacked the segments that the source had deleted, and was reported as damaged."""
    with LogStore.open([base / "a", base / "b"]) as store:
        log = store.create("orders", 0, log_dir=base / "a", config=CONFIG)
        fill(log, 120)
        with gated(store) as (mover, gate):
            move = begun(mover, gate, base / "b")
            start = log.log_end_offset // 2 + 1
            log.delete_records_before(start)
            gate.hold(after=18)  # the copy begins again at the segment that holds the start
            gate.wait_until_held()
            store.take_offline(base / "a")
            gate.open()
            assert move.wait(SECONDS_MAX) is FAILED
        store.remove_dir(base / "a", lost=True)
    with LogStore.open([base / "b"]) as store:
        log = store["orders", 0]
        assert log.log_start_offset == start < log.log_end_offset
        assert [record.offset for record in log] == [*range(start, log.log_end_offset)]


def test_a_replaced_source_leaves_the_copy_to_be_read(base: Path) -> None:
    """No move of this copy can resume, and none is listed: the copy waits for its promotion."""
    with LogStore.open([base / "a", base / "b"]) as store:
        fill(store.create("orders", 0, log_dir=base / "a", config=CONFIG), 60)
        with gated(store) as (mover, gate):
            move = failed_with_its_source(store, mover, gate, base)
            (base / "a").rename(base / "gone")
            (base / "a").mkdir()
            store.reopen_dir(base / "a", format_new=True)
            look(mover)
            assert (mover.moves(), temporary(store)) == ([move], [])
            assert 0 < len(list(store["orders", 0])) < 600
            store.promote("orders", 0)
            assert mover.move("orders", 0, base / "a").wait(SECONDS_MAX) is DONE


def test_a_copy_of_a_hung_source_goes_with_the_next_move(
    store: LogStore, log: Log, base: Path
) -> None:
    """If a move is sent to another target while its source hangs, the first target is cleaned."""
    source = store.host.replicas.log_dirs[0]
    with gated(store) as (mover, gate):
        begun(mover, gate, base / "b").pause()
        gate.open()
        source.change(Event.STUCK, "as a test has it")
        move = mover.move("orders", 0, base / "c")
        source.change(Event.ANSWERED)
        store.host.answered()
        assert move.wait(SECONDS_MAX) is DONE
    settle(store)
    assert replica_dirs(base) == ["c/orders-0"]
    check_whole(log, base, "c")


def test_a_deletion_takes_along_what_was_cancelled(store: LogStore, log: Log, base: Path) -> None:
    """When a partition is deleted, the copy of its cancelled move is deleted, too."""
    with gated(store) as (mover, gate):
        begun(mover, gate, base / "b")
    with gated(store, is_held=True) as (mover, gate):  # it was begun by another mover
        (move,) = mover.moves()
        move.pause()
        store.take_offline(base / "a")
        move.cancel()
        gate.open()
        store.reopen_dir(base / "a")
        store.delete("orders", 0)
    settle(store)
    assert replica_dirs(base) == []


def test_a_source_that_hangs_learns_of_a_cancellation_later(
    store: LogStore, log: Log, base: Path
) -> None:
    """The copy and the mark are removed when the disk of the source answers."""
    source = store.host.replicas.log_dirs[0]
    with gated(store) as (mover, gate):
        move = begun(mover, gate, base / "b")
        move.pause()
        source.change(Event.STUCK, "as a test has it")
        move.cancel()
        assert move.state is CANCELLED
        assert log._state.metadata.moving is not None
        source.change(Event.ANSWERED)
        store.host.answered()
        look(mover)
        assert log._state.metadata.moving is None
        assert mover.moves() == [move]
        gate.open()
    assert replica_dirs(base) == ["a/orders-0"]


def test_a_source_without_room_for_the_note_is_no_reason_to_resume(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk keeps the mark of the move, but the copy that the mark names is removed."""

    def full(*_: object) -> None:
        raise store.host.replicas.log_dirs[0].failed(OSError(errno.ENOSPC, "no space left"))

    with gated(store) as (mover, gate):
        move = begun(mover, gate, base / "b")
        with monkeypatch.context() as patch:
            patch.setattr(relocation, "set_moving", full)
            move.cancel()
        assert move.state is CANCELLED
        assert replica_dirs(base) == ["a/orders-0"]
        gate.open()
    with ReplicaMover(store) as mover:
        assert mover.moves() == []
    assert log._state.metadata.moving is None
    check_whole(log, base, "a")


def test_a_move_elsewhere_takes_the_place_of_what_was_left(
    store: LogStore, log: Log, base: Path
) -> None:
    """If a cordoned target prevented a resume, the old copy is removed when another move begins."""
    with gated(store) as (mover, gate):
        begun(mover, gate, base / "b")
    store.cordon(base / "b")
    with ReplicaMover(store) as mover:
        (failed,) = mover.moves()
        assert failed.state is FAILED
        assert mover.move("orders", 0, base / "c").wait(SECONDS_MAX) is DONE
    settle(store)
    assert replica_dirs(base) == ["c/orders-0"]
    check_whole(log, base, "c")


def test_a_source_that_is_away_by_itself_leaves_the_copy(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a replica fails on a good log dir, its copy may be the better one, so it is kept."""

    def away(*_: object) -> None:
        raise ReplicaOfflineError(topic="orders", partition=0, reason="as a test has it")

    with gated(store) as (mover, gate):
        move = begun(mover, gate, base / "b")
        with monkeypatch.context() as patch:
            patch.setattr(relocation, "segments_of", away)
            patch.setattr(relocation, "set_moving", away)
            gate.open()
            assert move.wait(SECONDS_MAX) is FAILED
            assert temporary(store) == [("b", True)]
            store.host.answered()
            look(mover)
            assert mover.moves() == [move]
            move.cancel()
        assert [name[0] for name in replica_dirs(base) if ".move" in name] == ["b"]
