"""A move obeys the ceilings of its present log dirs, however they became its log dirs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from logstore import Log, LogStore
from mover import Move, MoveState, ReplicaMover
from mover.rates.throttle import MoveThrottle, Throttle
from support.gate import SECONDS_MAX

RATES = {"a": 900 << 20, "b": 700 << 20, "c": 800 << 20}
DONE, FAILED = MoveState.DONE, MoveState.FAILED


def set_rates(mover: ReplicaMover, base: Path) -> None:
    """Give each log dir its own ceiling, far above what a test needs."""
    for name, rate in RATES.items():
        mover.set_throttled_rate(rate, base / name)


def failed(store: LogStore, mover: ReplicaMover, target: Path) -> Move:
    """Request a move to a log dir that accepts none at present."""
    store.cordon(target)
    move = mover.move("orders", 0, target)
    assert move.wait(SECONDS_MAX) is FAILED
    store.uncordon(target)
    return move


def check_rate(move: Move, base: Path, *names: str) -> None:
    """The move obeys the lowest ceiling of its log dirs, and no other ceiling."""
    assert (move.source_dir, move.target_dir) == tuple(str(base / name) for name in names)
    assert move.throttle.rate == min(RATES[name] for name in names)


def test_regression_a_retried_move_has_the_rate_of_its_present_source(
    store: LogStore, log: Log, base: Path
) -> None:
    """The replica had moved in the meantime, and the retry used the ceiling of the old source."""
    with ReplicaMover(store) as mover:
        set_rates(mover, base)
        move = failed(store, mover, base / "c")
        check_rate(move, base, "a", "c")
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
        move.retry()
        assert move.wait(SECONDS_MAX) is DONE
        check_rate(move, base, "b", "c")
        mover.set_throttled_rate(1 << 20, base / "a")
        check_rate(move, base, "b", "c")
        mover.set_throttled_rate(None, base / "b")
        assert move.throttle.rate == RATES["c"]


def test_regression_a_retargeted_move_has_the_rate_of_its_present_source(
    store: LogStore, log: Log, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier move ended after the source was looked up, and before the move was admitted."""
    for_move = Throttle.for_move

    def moved_first(throttle: Throttle, *given: Any) -> MoveThrottle:
        monkeypatch.undo()
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is DONE
        return for_move(throttle, *given)

    with ReplicaMover(store) as mover:
        set_rates(mover, base)
        monkeypatch.setattr(Throttle, "for_move", moved_first)
        move = mover.move("orders", 0, base / "c")
        check_rate(move, base, "b", "c")
        assert move.wait(SECONDS_MAX) is DONE
        check_rate(move, base, "b", "c")


@pytest.mark.parametrize("seed", range(5))
def test_rates_follow_any_order_of_moves_failures_and_retries(
    store: LogStore, log: Log, base: Path, seed: int
) -> None:
    """Each running move obeys the ceilings of its present source and target."""
    rng = random.Random(seed)
    print(f"seed {seed}")
    with ReplicaMover(store) as mover:
        set_rates(mover, base)
        waiting: list[Move] = []
        for _ in range(12):
            source = Path(log.log_dir).name
            target = rng.choice([name for name in RATES if name != source])
            if rng.random() < 0.4:
                waiting.append(failed(store, mover, base / target))
                continue
            if waiting and rng.random() < 0.6:
                move = waiting.pop(rng.randrange(len(waiting)))
                target = Path(move.target_dir).name
                move.retry()
            else:
                move = mover.move("orders", 0, base / target)
            assert move.wait(SECONDS_MAX) is DONE
            if target != source:
                check_rate(move, base, source, target)
