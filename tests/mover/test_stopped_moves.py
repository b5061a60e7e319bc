"""Stop moves in every way, and continue them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logstore import Log, LogStore, UnknownPartitionError
from logstore.disk.log_dir import LogDir
from logstore.disk.states import Event
from mover import (
    IllegalTransitionError,
    Move,
    MoveCancelledError,
    MoveError,
    MoveState,
    ReplicaMover,
)
from mover.copying.target import bytes_standing
from mover.reservation import Reservations
from support.gate import SECONDS_MAX, Gate, gated
from support.moving import CONFIG, check_whole, fill, replica_dirs, settle

DONE, PAUSED = MoveState.DONE, MoveState.PAUSED
CANCELLED, FAILED = MoveState.CANCELLED, MoveState.FAILED


def test_a_pause_keeps_what_was_copied(store: LogStore, log: Log, base: Path) -> None:
    """The move stops within one chunk; after a resume, it copies only the missing bytes."""
    with gated(store) as (mover, gate):
        gate.hold(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        move.pause()
        assert (move.state, gate.passed) == (PAUSED, 5)
        move.pause()
        fill(log, 1)
        gate.open()
        move.resume()
        assert move.wait(SECONDS_MAX) is DONE
        assert gate.passed * gate.chunk_bytes < log.size_bytes + 12 * gate.chunk_bytes
    check_whole(log, base, "b")


def test_a_cancel_leaves_nothing(store: LogStore, log: Log, base: Path) -> None:
    """When `cancel` returns, the copy is gone, the log is unchanged, and retention runs."""
    with gated(store) as (mover, gate):
        gate.hold(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        move.cancel()
        assert move.state is CANCELLED
        assert isinstance(move.error, MoveCancelledError)
        assert replica_dirs(base) == ["a/orders-0"]
        assert log._state.metadata.moving is None
        assert not store.host.replicas.running_moves
        move.cancel()
        for call, request in (
            (move.pause, "paused"), (move.resume, "resumed"), (move.retry, "retried")
        ):  # fmt: skip
            told = f"the move of orders-0 is cancelled: it cannot be {request}"
            with pytest.raises(IllegalTransitionError, match=told):  # in the user's words
                call()
        log.delete_records_before(500)
        assert log.size_bytes < 16 << 10
    check_whole(log, base, "a")


def test_a_paused_and_a_planned_move_are_cancelled(store: LogStore, base: Path) -> None:
    """Neither move runs, and both leave no copy."""
    logs = [store.create("orders", n, log_dir=base / "a", config=CONFIG) for n in (0, 1)]
    for log in logs:
        fill(log, 60)
    with gated(store, num_replica_move_threads=1) as (mover, gate):
        gate.hold(after=2)
        moves = [mover.move("orders", n, base / "b") for n in (0, 1)]
        gate.wait_until_held()
        assert moves[1].state is MoveState.PLANNED
        moves[1].cancel()
        assert moves[1].state is CANCELLED
        moves[0].pause()
        moves[0].cancel()
        assert moves[0].state is CANCELLED
        assert replica_dirs(base) == ["a/orders-0", "a/orders-1"]
        gate.open()
        again = mover.move("orders", 1, base / "c")
        assert again.wait(SECONDS_MAX) is DONE


def test_another_target_while_it_runs(store: LogStore, log: Log, base: Path) -> None:
    """After five changes of the target, there is one copy, in the last target."""
    with gated(store) as (mover, gate):
        moves = []
        for number in range(5):
            gate.hold(after=2)
            moves.append(mover.move("orders", 0, base / "bc"[number % 2]))
            gate.wait_until_held()
        assert mover.move("orders", 0, base / "b") is moves[-1]
        gate.open()
        assert moves[-1].wait(SECONDS_MAX) is DONE
        assert [move.state for move in moves[:-1]] == [CANCELLED] * 4
        assert mover.moves() == moves
    settle(store)
    assert replica_dirs(base) == ["b/orders-0"]
    check_whole(log, base, "b")


def test_a_deletion_takes_the_move_along(store: LogStore, log: Log, base: Path) -> None:
    """The partition is gone from all log dirs, and the move is cancelled for that reason."""
    with gated(store) as (mover, gate):
        gate.hold(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        store.delete("orders", 0)
        assert move.state is CANCELLED
        assert "deleted" in str(move.error)
        settle(store)
        assert replica_dirs(base) == []
        with pytest.raises(UnknownPartitionError):
            mover.move("orders", 0, base / "b")
        assert len(mover.moves()) == 1


def test_a_closed_mover_leaves_moves_for_the_next(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running moves are paused; the next mover reserves and copies only the missing bytes."""
    with gated(store) as (mover, gate):
        gate.hold(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        mover.close()
        assert move.wait(0) is PAUSED
        with pytest.raises(MoveError):
            mover.move("orders", 0, base / "c")
    assert any(".move" in name for name in replica_dirs(base))
    standing = bytes_standing(store.host.replicas.log_dirs[1], move.key, move.move_id)
    assert 0 < standing < log.size_bytes
    asked: list[int] = []

    def note(reservations: Reservations, occupant: Any, target: Any) -> None:
        asked.append(occupant.bytes_left)

    with monkeypatch.context() as patch:
        patch.setattr(Reservations, "reserve", note)
        mover = ReplicaMover(store)
    with mover:
        (resumed,) = mover.moves()
        assert set(asked) == {log.size_bytes - standing}  # asked again as it begins
        assert resumed.move_id == move.move_id
        assert resumed.wait(SECONDS_MAX) is DONE
    check_whole(log, base, "b")


def test_a_closed_store_leaves_moves_for_the_next(base: Path) -> None:
    """The store closes cleanly during a move, and the next owner's mover completes the move."""
    dirs = [base / "a", base / "b"]
    store = LogStore.open(dirs)
    log = store.create("orders", 0, log_dir=base / "a", config=CONFIG)
    fill(log, 60)
    mover = ReplicaMover(store)
    gate = Gate()
    mover._moves.throttle = gate  # type: ignore[assignment]
    gate.hold(after=5)
    move = mover.move("orders", 0, base / "b")
    gate.wait_until_held()
    assert store.close() == ()
    assert move.wait(0) is PAUSED
    with LogStore.open(dirs) as store:
        with ReplicaMover(store) as mover:
            (resumed,) = mover.moves()
            assert resumed.wait(SECONDS_MAX) is DONE
        settle(store)
        assert replica_dirs(base) == ["b/orders-0"]
        check_whole(store["orders", 0], base, "b")


@contextmanager
def held_up(store: LogStore, base: Path, where: str) -> Iterator[tuple[Gate, Move, LogDir]]:
    """Start a move and let a disk hang in the middle of it, until the move is paused."""
    (hanging,) = (d for d in store.host.replicas.log_dirs if d.path == str(base / where))
    with gated(store) as (mover, gate):
        gate.hold(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        hanging.change(Event.STUCK, "as a test has it")
        gate.open()
        with mover.changed:
            assert mover.changed.wait_for(lambda: move.state is PAUSED, SECONDS_MAX)
        yield gate, move, hanging


@pytest.mark.parametrize("where", ["a", "b"])
def test_a_disk_that_hangs_pauses_a_move(store: LogStore, log: Log, base: Path, where: str) -> None:
    """The move keeps its copied bytes, and continues by itself when the disk answers."""
    with held_up(store, base, where) as (gate, move, hanging):
        assert (move.error, gate.passed) == (None, 6)
        hanging.change(Event.ANSWERED)
        store.host.answered()
        assert move.wait(SECONDS_MAX) is DONE
        assert gate.passed * gate.chunk_bytes < log.size_bytes + 12 * gate.chunk_bytes
    check_whole(log, base, "b")


def test_a_user_who_pauses_a_held_up_move_is_obeyed(store: LogStore, log: Log, base: Path) -> None:
    """A move that the user paused stays paused when the disk answers, until the user resumes it."""
    with held_up(store, base, "a") as (_, move, hanging):
        move.pause()
        hanging.change(Event.ANSWERED)
        store.host.answered()
        assert move.state is PAUSED
        move.resume()
        assert move.wait(SECONDS_MAX) is DONE
    check_whole(log, base, "b")
