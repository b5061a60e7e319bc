"""Whom a commit waits for when the store is owned; no Spark is started for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from logstore import LogDirLockedError, LogStore
from logstore.spark.write import sink


class Clock:
    """Stand in for the module `time`: a pause takes as long as it says, and something happens."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses = 0
        self.at_pause: dict[int, Callable[[], object]] = {}

    def monotonic(self) -> float:
        """Give the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time go by."""
        self.now += seconds
        self.pauses += 1
        self.at_pause.get(self.pauses, lambda: None)()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Make the sink's pauses take no time."""
    clock = Clock()
    time = SimpleNamespace(monotonic=clock.monotonic, sleep=clock.sleep)
    monkeypatch.setattr(sink, "time", time)
    return clock


def test_a_commit_waits_for_another_one(tmp_path: Path, clock: Clock) -> None:
    """That of a driver that was killed goes on for a while, and ends."""
    other = LogStore.open(tmp_path, admin_socket=False)
    clock.at_pause = {40: other.close}
    with sink.own((str(tmp_path),)) as store:
        assert store.log_dirs
    assert clock.pauses == 40


def test_a_commit_does_not_wait_for_ever(tmp_path: Path, clock: Clock) -> None:
    """Who does not end is named."""
    with LogStore.open(tmp_path, admin_socket=False), pytest.raises(LogDirLockedError) as caught:
        sink.own((str(tmp_path),))
    assert clock.now > 100 + sink.LOCK_SECONDS_MAX
    assert "Spark can write to a store only while no process owns it" in str(caught.value)


def own_in_child(path: Path) -> str:
    """Let a process that this one starts open the store as a commit does; return its error."""
    code = "import sys; from logstore.spark.write import sink; sink.own((sys.argv[1],))"
    child = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    return child.stderr


def test_regression_the_program_that_runs_the_query_is_no_other_process(
    tmp_path: Path, clock: Clock
) -> None:
    """It was told that "no other process" may own the store, which none did."""
    with LogStore.open(tmp_path):
        with pytest.raises(LogDirLockedError) as caught:
            sink.own((str(tmp_path),))
        for told in (str(caught.value), own_in_child(tmp_path)):
            assert f"owned by process {os.getpid()}, the program that runs this query" in told
            assert "Close the store in that program" in told and "other process" not in told


def test_an_owner_beside_the_query_is_named_by_its_number(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not one of the processes that started the query."""
    monkeypatch.setattr(sink, "own_line", list)
    with LogStore.open(tmp_path), pytest.raises(LogDirLockedError) as caught:
        sink.own((str(tmp_path),))
    assert f"process {os.getpid()}: Spark can" in str(caught.value)


def test_a_commit_does_not_wait_for_an_owner_that_stays(tmp_path: Path, clock: Clock) -> None:
    """An owner with an admin socket is no commit."""
    with LogStore.open(tmp_path), pytest.raises(LogDirLockedError):
        sink.own((str(tmp_path),))
    assert clock.pauses == 0
