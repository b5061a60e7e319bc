"""If a process can start no more threads, an error says so, and its store stays usable."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

from logstore import LogDirError, LogStore
from logstore.disk.threads import start_for
from mover import MoveState, ReplicaMover
from support.hanging import QUIET
from support.shortage import no_threads


def test_the_error_says_what_to_do() -> None:
    """The error is retriable, names the limits, and blames no disk."""
    with no_threads(), pytest.raises(LogDirError, match="ulimit -u") as caught:
        start_for("/disk", threading.Thread())
    assert caught.value.retriable
    assert caught.value.path == "/disk"


def test_regression_an_open_without_threads_says_so(tmp_path: Path) -> None:
    """A bare RuntimeError was raised; whichever thread fails, nothing stays locked."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    LogStore.open(dirs, config=QUIET).close()
    refused = 0
    for number in itertools.count(1):
        try:
            with no_threads(number) as started:
                store = LogStore.open(dirs, config=QUIET)
        except LogDirError as error:
            assert error.retriable
            refused += 1
            continue
        is_over = started[0] < number
        with store:
            assert not [one for one in store.describe_dirs().log_dirs if one.error]
        if is_over:
            break
    assert refused > 3


def test_regression_a_flush_without_threads_flushes(tmp_path: Path) -> None:
    """The calling thread does the work of the others; this also holds for a close."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    store = LogStore.open(dirs, config=QUIET)
    logs = [store.create("orders", number, log_dir=path) for number, path in enumerate(dirs)]
    for log in logs:
        log.append(b"a value")
    with no_threads():
        assert store.flush() == ()
        assert [log.recovery_point for log in logs] == [1, 1]
        assert store.close() == ()


def test_regression_an_appender_without_a_thread_says_so(tmp_path: Path) -> None:
    """The appender accepts no record then, and works as soon as a thread can be started."""
    with LogStore.open(tmp_path, config=QUIET) as store:
        log = store.create("orders", 0)
        with log.appender() as appender:
            with no_threads(), pytest.raises(LogDirError, match="cannot start a thread"):
                appender.append(b"refused")
            assert appender.append(b"taken").result(60) == 0


def test_regression_a_mover_without_threads_closes(tmp_path: Path) -> None:
    """The close of the mover, and of the store, raised an error forever."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    with LogStore.open(dirs, config=QUIET) as store:
        store.create("orders", 0, log_dir=dirs[0]).append(b"a value")
        mover = ReplicaMover(store)
        with no_threads():
            move = mover.move("orders", 0, dirs[1])
            assert move.state is MoveState.FAILED
            assert isinstance(move.error, LogDirError) and move.error.retriable
            mover.close()
        with ReplicaMover(store) as other:
            assert other.move("orders", 0, dirs[1]).wait(60) is MoveState.DONE
        assert store["orders", 0][0].value == b"a value"
