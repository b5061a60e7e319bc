"""Interrupt requests about a move, or make two at once: no thread is left waiting."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logstore import Log, LogDirSuspectError, LogStore
from logstore.disk import bulk, files
from logstore.disk.states import Event
from logstore.store.upkeep.keeper import DirKeeper
from mover import Move, MovePlan, MoveState, ReplicaMover, TargetFullError, job, reservation
from mover.planning.planned_move import PlannedMove
from mover.reservation import Reservations
from support.gate import SECONDS_MAX, gated
from support.moving import check_whole, replica_dirs, settle

DONE, PAUSED = MoveState.DONE, MoveState.PAUSED
CANCELLED, FAILED = MoveState.CANCELLED, MoveState.FAILED


def once(function: Callable[..., Any], before: Callable[[], object]) -> Callable[..., Any]:
    """Do something before the first call of a function."""
    is_first = [True]

    def call(*args: Any, **options: Any) -> Any:
        if is_first.pop() if is_first else False:
            before()
        return function(*args, **options)

    return call


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("has_room", [False, True])
def test_regression_a_move_of_a_plan_is_cancelled_as_its_room_is_looked_for(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch, has_room: bool
) -> None:
    """The cancelled move has no reserved room, and its thread takes the next move."""
    plan = MovePlan((PlannedMove("orders", 0, str(base / "b")),))
    reserve = Reservations.reserve

    def cancel_first(reservations: Reservations, move: Move, target: Any) -> None:
        monkeypatch.setattr(Reservations, "reserve", reserve)
        move.cancel()
        if not has_room:
            raise TargetFullError(topic="orders", partition=0, path=target.path)
        reservations.reserve(move, target)

    monkeypatch.setattr(Reservations, "reserve", cancel_first)
    with ReplicaMover(store, num_replica_move_threads=1) as mover:
        (cancelled,) = mover.execute(plan)
        assert cancelled.wait(SECONDS_MAX) is CANCELLED
        assert mover.move("orders", 0, base / "c").wait(SECONDS_MAX) is DONE
        assert len(mover._moves.reservations) == 0
    check_whole(log, base, "c")


def test_regression_a_retry_that_is_refused_has_failed_again(
    store: LogStore, log: Log, base: Path
) -> None:
    """A thread that waits for the move gets the failure, and the move can be retried again."""
    with ReplicaMover(store) as mover:
        store.cordon(base / "b")
        move = mover.move("orders", 0, base / "b")
        store.uncordon(base / "b")
        source = store.host.replicas.dir_of(str(base / "a"))
        with store.host.replicas.reserved(move.key):  # by a thread that hangs in that disk
            source.change(Event.STUCK, "as a test has it")
            with pytest.raises(LogDirSuspectError):
                move.retry()
        assert move.wait(SECONDS_MAX) is FAILED
        assert isinstance(move.error, LogDirSuspectError)
        source.change(Event.ANSWERED)
        move.retry()
        assert move.wait(SECONDS_MAX) is DONE
    check_whole(log, base, "b")


def test_regression_an_interrupted_cancel_can_be_asked_for_again(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second cancel does not wait for the first one, and removes the copy."""
    with gated(store) as (mover, gate):
        gate.hold(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        move.pause()
        monkeypatch.setattr(bulk, "remove_tree", once(bulk.remove_tree, interrupt))
        with pytest.raises(KeyboardInterrupt):
            move.cancel()
        again = threading.Thread(target=move.cancel, daemon=True)
        again.start()
        again.join(SECONDS_MAX)
        assert move.state is CANCELLED
    assert replica_dirs(base) == ["a/orders-0"]


def test_regression_a_move_that_is_interrupted_as_it_is_let_in_has_failed(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next move to the same log dir is a separate move, which runs."""
    with ReplicaMover(store) as mover:
        monkeypatch.setattr(files, "statvfs", once(files.statvfs, interrupt))
        with pytest.raises(KeyboardInterrupt):
            mover.move("orders", 0, base / "b")
        (first,) = mover.moves()
        assert first.state is FAILED
        assert "interrupted" in str(first.error)
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
    check_whole(log, base, "b")


def test_regression_a_pause_meets_a_disk_that_hangs(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move that the user paused while a disk held it up stays paused when the disk answers."""
    leave, threads, asked = job.Job.leave, list[threading.Thread](), threading.Event()
    source = store.host.replicas.dir_of(str(base / "a"))

    def leave_and_pause(one: job.Job) -> None:
        leave(one)
        monkeypatch.setattr(mover._moves, "wake", asked.set)
        threads.append(threading.Thread(target=move.pause, daemon=True))
        threads[0].start()
        assert asked.wait(SECONDS_MAX)
        source.change(Event.ANSWERED)

    with gated(store) as (mover, gate):
        gate.hold(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        monkeypatch.setattr(job.Job, "leave", leave_and_pause)
        source.change(Event.STUCK, "as a test has it")
        gate.open()
        with mover.changed:
            assert mover.changed.wait_for(lambda: not move.state.is_running, SECONDS_MAX)
        threads[0].join(SECONDS_MAX)
        assert move.state is PAUSED
        monkeypatch.undo()
        move.resume()
        assert move.wait(SECONDS_MAX) is DONE
    check_whole(log, base, "b")


def test_regression_an_interrupted_close_can_be_asked_for_again(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second close ends the threads, and leaves the moves to the next mover."""
    with gated(store) as (mover, gate):
        gate.hold(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        monkeypatch.setattr(Move, "pause", once(Move.pause, interrupt))
        with pytest.raises(KeyboardInterrupt):
            mover.close()
        mover.close()
        assert move.state is PAUSED
        assert not [t for t in threading.enumerate() if t.name.startswith("ReplicaMoveThread")]
    with ReplicaMover(store) as mover:
        (resumed,) = mover.moves()
        assert resumed.wait(SECONDS_MAX) is DONE
    settle(store)
    check_whole(log, base, "b")


def test_regression_a_disk_that_does_not_tell_its_room_holds_up_no_other_move(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moves between other log dirs end while a thread still asks this disk for its room."""
    store.create("orders", 1, log_dir=base / "a")
    statvfs, asked, answered = files.statvfs, threading.Event(), threading.Event()

    def hang(path: str) -> Any:
        if path == str(base / "c"):
            asked.set()
            assert answered.wait(SECONDS_MAX)
        return statvfs(path)

    # The file systems of these log dirs are one; what counts is who waits for whom.
    numbers = {str(base / name): number for number, name in enumerate("abc")}
    monkeypatch.setattr(reservation, "device_of", lambda target: numbers[target.path])
    with gated(store) as (mover, gate):
        gate.hold(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        monkeypatch.setattr(files, "statvfs", hang)
        hung = threading.Thread(target=mover.move, args=("orders", 1, base / "c"), daemon=True)
        hung.start()
        try:
            assert asked.wait(SECONDS_MAX)
            gate.open()
            assert move.wait(SECONDS_MAX) is DONE
            assert hung.is_alive()
        finally:
            answered.set()
        hung.join(SECONDS_MAX)
        assert mover.moves()[1].wait(SECONDS_MAX) is DONE
    check_whole(log, base, "b")


def test_a_move_of_a_plan_waits_for_no_purge_where_there_is_room(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there is room, a move does not wait for the keeper of a disk that hangs."""
    waited: list[object] = []
    monkeypatch.setattr(DirKeeper, "wait_idle", lambda *args: waited.append(args))
    plan = MovePlan((PlannedMove("orders", 0, str(base / "b")),))
    with ReplicaMover(store) as mover:
        (move,) = mover.execute(plan)
        assert move.wait(SECONDS_MAX) is DONE
    assert waited == []
    monkeypatch.undo()
    settle(store)
    check_whole(log, base, "b")


def test_regression_a_mover_that_is_interrupted_as_it_begins_has_begun(
    store: LogStore, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C left the mover's condition locked, and the store could not be closed."""
    begun = []

    def resume(moves: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        begun.append(moves)

    monkeypatch.setattr("mover.mover.resume_left", resume)
    with pytest.raises(KeyboardInterrupt):
        ReplicaMover(store)
    assert len(begun) == 1
    assert store.close() == ()
