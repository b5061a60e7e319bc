"""Sync a copy during the copying: the early sync fails, hangs, or cannot start."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logstore import Log, LogDirOfflineError, LogStore
from logstore.disk import files
from logstore.disk.states import Event
from mover import MoveState
from mover.copying import copy_segments
from support.faulty import fd_path, no_thread_leaks
from support.gate import SECONDS_MAX, gated
from support.moving import check_whole, replica_dirs, settle

NAME = "ReplicaMoveSync"


@pytest.fixture(autouse=True)
def _every_chunk_is_synced_early(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The bytes of a small log are synced early, like those of a large log; no thread stays."""
    monkeypatch.setattr(copy_segments, "EARLY_SYNC_BYTES", 1)
    with no_thread_leaks():
        yield


class Syncs:
    """Record the syncs of segments below a directory, in order, each with its kind (early or last).

    Attributes:
        before: called in the thread of an early sync before it is made.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, under: Path) -> None:
        self.under = str(under) + "/"
        self.made: list[str] = []
        self.before: Callable[[], object] = lambda: None
        self._real = files.fdatasync
        monkeypatch.setattr(files, "fdatasync", self._call)

    def _call(self, fd: int) -> None:
        path = fd_path(fd)
        is_early = threading.current_thread().name == NAME
        if is_early:
            self.before()
        self._real(fd)
        if path.startswith(self.under) and path.endswith(".log"):
            self.made.append("early" if is_early else "last")


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch, base: Path) -> Syncs:
    return Syncs(monkeypatch, base / "b")


@pytest.fixture
def awaited(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return the event that is set when a thread waits for an early sync."""
    awaited, join = threading.Event(), threading.Thread.join

    def join_and_tell(self: threading.Thread, timeout: float | None = None) -> None:
        if self.name == NAME:
            awaited.set()
        join(self, timeout)

    monkeypatch.setattr(threading.Thread, "join", join_and_tell)
    return awaited


def test_the_copying_goes_on_beside_a_sync_and_the_last_one_waits_for_it(
    store: LogStore, log: Log, base: Path, syncs: Syncs, awaited: threading.Event
) -> None:
    """An early sync that ends late delays neither the copying of chunks nor the swap."""

    def wait() -> None:
        assert awaited.wait(SECONDS_MAX)
        awaited.clear()

    syncs.before = wait
    with gated(store) as (mover, gate):
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is MoveState.DONE
        assert gate.passed > syncs.made.count("early") > 0
    assert syncs.made == ["early", "last"] * syncs.made.count("early")
    settle(store)
    check_whole(log, base, "b")


def test_a_failed_early_sync_is_not_lost(
    store: LogStore, log: Log, base: Path, syncs: Syncs
) -> None:
    """The kernel reports success for the next sync, but the move fails: its target is offline."""
    failed: list[bool] = []

    def fail_once() -> None:
        if not failed:
            failed.append(True)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    syncs.before = fail_once
    with gated(store) as (mover, _):
        move = mover.move("orders", 0, base / "b")
        assert move.wait(SECONDS_MAX) is MoveState.FAILED
    assert isinstance(move.error, LogDirOfflineError)
    assert "a flush failed" in str(move.error)
    assert str(base / "b") in str(move.error)
    assert [row.is_live for row in store.describe_dirs().log_dirs] == [True, False, True]
    check_whole(log, base, "a")


def test_a_failed_early_sync_is_told_by_whoever_waits_for_it(
    store: LogStore, log: Log, base: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the log dir reports nothing, bytes that were not written are never swapped in."""
    log_dir = store.host.replicas.log_dirs[1]
    failure = LogDirOfflineError(path=log_dir.path, reason="a flush failed")
    monkeypatch.setattr(log_dir, "failed", lambda *_: failure)

    def fail() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    syncs.before = fail
    with gated(store) as (mover, _):
        move = mover.move("orders", 0, base / "b")
        assert move.wait(SECONDS_MAX) is MoveState.FAILED
        assert move.error is failure
    check_whole(log, base, "a")


def test_a_cancel_waits_for_the_sync_under_way(
    store: LogStore, log: Log, base: Path, syncs: Syncs, awaited: threading.Event
) -> None:
    """When `cancel` returns, no thread of the move is left, and its space is free."""
    syncs.before = lambda: awaited.wait(10)  # longer than anybody takes who does not wait
    with gated(store) as (mover, gate):
        gate.hold(after=2)
        move = mover.move("orders", 0, base / "b")
        gate.wait_until_held()
        move.cancel()
        assert move.state is MoveState.CANCELLED
        assert NAME not in [thread.name for thread in threading.enumerate()]
        assert syncs.made == ["early"]
        assert replica_dirs(base) == ["a/orders-0"]
    check_whole(log, base, "a")


def test_nobody_waits_for_a_sync_that_hangs(
    store: LogStore, log: Log, base: Path, syncs: Syncs
) -> None:
    """A move is held up when its target is SUSPECT, and its mover can be closed."""
    answered = threading.Event()
    syncs.before = lambda: answered.wait(SECONDS_MAX)
    target = store.host.replicas.log_dirs[1]
    try:
        with gated(store) as (mover, gate):
            gate.hold(after=2)
            move = mover.move("orders", 0, base / "b")
            gate.wait_until_held()
            target.change(Event.STUCK, "as a test has it")
            gate.open()
            with mover.changed:
                assert mover.changed.wait_for(lambda: move.is_held_up, SECONDS_MAX)
        assert NAME in [thread.name for thread in threading.enumerate()]
    finally:
        answered.set()
        target.change(Event.ANSWERED)
    check_whole(log, base, "a")


def test_without_a_thread_the_last_sync_does_it_all(
    store: LogStore, log: Log, base: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the process can start no thread, the move does not fail."""
    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name == NAME:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with gated(store) as (mover, _):
        assert mover.move("orders", 0, base / "b").wait(SECONDS_MAX) is MoveState.DONE
    assert set(syncs.made) == {"last"}
    settle(store)
    check_whole(log, base, "b")
