"""Test the clock that stops while the process is frozen."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from broker import Broker
from broker.machines.running_time import STEP_SECONDS_MAX, RunningTime
from support.replica_nodes import wait_until


def test_a_running_process_counts_all_time() -> None:
    """Reports may come in any rhythm, if none is late."""
    clock = RunningTime(100.0)
    assert [clock.at(now) for now in (100.0, 100.5, 101.5, 103.5)] == [0.0, 0.5, 1.5, 3.5]


def test_a_frozen_process_counts_only_a_moment() -> None:
    """However long it was frozen, and if it was frozen twice."""
    clock = RunningTime(0.0)
    assert clock.at(1.0) == 1.0
    assert clock.at(3600.0) == 1.0 + STEP_SECONDS_MAX
    assert clock.at(3601.0) == 2.0 + STEP_SECONDS_MAX
    assert clock.at(9999.0) == 2.0 + 2 * STEP_SECONDS_MAX


def test_reports_of_two_threads_may_overtake_each_other() -> None:
    """The clock never goes back."""
    clock = RunningTime(0.0)
    assert [clock.at(now) for now in (2.0, 1.5, 2.5)] == [2.0, 2.0, 2.5]


def test_an_idle_broker_reports_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any request, the clock goes on."""
    reports: list[float] = []
    real = RunningTime.at

    def at(clock: RunningTime, now: float) -> float:
        reports.append(now)
        return real(clock, now)

    monkeypatch.setattr(RunningTime, "at", at)
    with Broker.start([tmp_path / "a"]):
        wait_until(lambda: len(reports) >= 2)
    assert abs(time.monotonic() - reports[-1]) < 60.0
