"""Move replicas while their store changes: lost log dirs, many replicas, forks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logstore import Log, LogClosedError, LogDirError, LogStore
from logstore.disk import files
from logstore.log.metadata import PartitionMetadata
from logstore.names import move_dir_name
from mover import Move, MovePlan, MoveState, ReplicaMover
from mover.errors import TargetFullError
from mover.planning.planned_move import PlannedMove
from mover.registration import commands_of
from mover.reservation import Reservations
from support.gate import SECONDS_MAX, Gate, gated
from support.moving import CONFIG, check_whole, fill, replica_dirs

# Python 3.12 and later warn of a fork among threads, which is just what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

DONE, CANCELLED, FAILED = MoveState.DONE, MoveState.CANCELLED, MoveState.FAILED


# --- a target that is gone for good -------------------------------------------------------------


def lose(store: LogStore, log_dir: Path) -> None:
    store.take_offline(log_dir)
    store.remove_dir(log_dir, lost=True)


def paused_half_way(mover: ReplicaMover, gate: Gate, target: Path) -> Move:
    gate.hold(after=5)
    move = mover.move("orders", 0, target)
    gate.wait_until_held()
    move.pause()
    gate.open()
    return move


def test_a_move_to_a_lost_dir_is_cancelled(store: LogStore, log: Log, base: Path) -> None:
    """The log's metadata has no trace of the move, and the replica can be moved again."""
    with gated(store) as (mover, gate):
        move = paused_half_way(mover, gate, base / "b")
        lose(store, base / "b")
        move.cancel()
        assert move.state is CANCELLED
        assert log._state.metadata.moving is None
        assert mover.move("orders", 0, base / "c").wait(SECONDS_MAX) is DONE
    check_whole(log, base, "c")


def test_a_move_to_a_lost_dir_fails_with_a_reason(store: LogStore, log: Log, base: Path) -> None:
    """If the move is resumed or retried, the error says that its target is gone."""
    with gated(store) as (mover, gate):
        move = paused_half_way(mover, gate, base / "b")
        lose(store, base / "b")
        for go_on in (move.resume, move.retry):
            go_on()
            assert move.wait(SECONDS_MAX) is FAILED
            assert isinstance(move.error, LogDirError)
            assert str(move.error).endswith("the path is no longer a log dir of this store")
        move.cancel()
        assert (move.state, log._state.metadata.moving) == (FAILED, None)
    with ReplicaMover(store) as mover:
        assert mover.moves() == []
    check_whole(log, base, "a")


def test_a_plan_goes_on_without_a_lost_dir(store: LogStore, log: Log, base: Path) -> None:
    """The move to the lost dir fails, and later moves of the plan are run."""
    for partition in (1, 2):
        fill(store.create("orders", partition, log_dir=base / "a", config=CONFIG), 5)
    plan = MovePlan(
        tuple(PlannedMove("orders", n, str(base / to)) for n, to in enumerate(("c", "b", "c")))
    )
    with gated(store, num_replica_move_threads=1) as (mover, gate):
        gate.hold(after=2)
        moves = mover.execute(plan)
        gate.wait_until_held()
        lose(store, base / "b")
        gate.open()
        assert [move.wait(SECONDS_MAX) for move in moves] == [DONE, FAILED, DONE]


# --- a move that is cancelled while it is let in --------------------------------------------------


@pytest.mark.parametrize("fits", [True, False])
def test_a_move_is_cancelled_as_it_is_let_in(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch, fits: bool
) -> None:
    """The cancelled move has no reserved room, and its caller gets the result."""
    reserve = Reservations.reserve

    def cancel_and_reserve(self: Reservations, move: Any, target: Any) -> None:
        move.cancel()
        if not fits:
            raise TargetFullError(topic="orders", partition=0, path=target.path)
        reserve(self, move, target)

    with ReplicaMover(store) as mover:
        monkeypatch.setattr(Reservations, "reserve", cancel_and_reserve)
        move = mover.move("orders", 0, base / "b")
        assert move.state is CANCELLED
        assert len(mover._moves.reservations) == 0
        assert not store.host.replicas.running_moves


# --- two clients at once --------------------------------------------------------------------------


def test_two_requests_at_once_make_one_mover(
    store: LogStore, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second request waits for the first request's mover, and uses it."""
    made = []
    begin = ReplicaMover.__init__
    commands = commands_of(store)
    second = threading.Thread(target=commands.running)

    def begin_slowly(self: ReplicaMover, *args: Any) -> None:
        made.append(self)
        if len(made) == 1:
            second.start()
            second.join(0.1)  # it must not come back before this one is made
        begin(self, *args)

    monkeypatch.setattr(ReplicaMover, "__init__", begin_slowly)
    mover = commands.running()
    second.join(SECONDS_MAX)
    assert made == [mover]


# --- many replicas --------------------------------------------------------------------------------


def test_a_move_asks_nothing_about_other_replicas(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target may hold thousands of replicas, but no disk call is made for their names."""
    for partition in range(10):
        store.create("others", partition, log_dir=base / "b")
    asked: list[str] = []
    lstat = files.lstat

    def watched(path: str) -> os.stat_result:
        asked.append(path)
        return lstat(path)

    with ReplicaMover(store) as mover:
        monkeypatch.setattr(files, "lstat", watched)
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
        monkeypatch.undo()
    assert asked
    assert not [path for path in asked if "others-" in path]


def test_what_an_earlier_move_left_is_told_from_another_topics(store: LogStore, base: Path) -> None:
    """If two long topics are cut to one name, the metadata of their copies tells them apart."""
    topic, other = "t" * 240 + "1", "t" * 240 + "2"
    log = store.create(topic, 0, log_dir=base / "a")
    for name, move_id in ((topic, "1" * 32), (other, "2" * 32)):
        left = base / "b" / move_dir_name(name, 0, move_id)
        left.mkdir()
        PartitionMetadata(name, 0, log._state.metadata.topic_id).write(str(left))
    with gated(store) as (mover, gate):
        gate.hold()
        log.append(b"x")
        mover.move(topic, 0, base / "b")
        gate.wait_until_held()
        ids = [name.removesuffix(".move")[-32:] for name in replica_dirs(base) if "b/" in name]
        assert "2" * 32 in ids
        assert "1" * 32 not in ids


# --- a fork ---------------------------------------------------------------------------------------


def asked_in_child(mover: ReplicaMover, move: Move, base: Path) -> list[str]:
    """Name the calls that did not raise LogClosedError."""
    calls: dict[str, Callable[[], object]] = {
        "move": lambda: mover.move("orders", 0, base / "c"),
        "pause": move.pause, "resume": move.resume, "cancel": move.cancel, "retry": move.retry,
        "wait": move.wait,
    }  # fmt: skip
    answered = []
    for name, call in calls.items():
        try:
            call()
            answered.append(name)
        except LogClosedError:
            continue
    mover.close()
    return answered


def test_a_forked_child_is_refused_at_once(store: LogStore, log: Log, base: Path) -> None:
    """A child has no thread to run moves; the parent's moves continue."""
    with gated(store) as (mover, gate):
        gate.hold(after=5)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        child = os.fork()
        if child == 0:
            import signal

            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS_MAX)  # one that waits for ever is ended, and that is a failure
            code = 99
            try:
                code = len(asked_in_child(mover, move, base))
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        gate.open()
        assert move.wait(SECONDS_MAX) is DONE
    check_whole(log, base, "b")
