"""Test an embedded coordination store whose disks hang: one of them, or all."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from broker.coordination import disk_workers, embedded
from broker.coordination.disk_workers import Call, DiskWorker, wait_for
from broker.coordination.embedded import EmbeddedStore
from broker.coordination.errors import (
    CoordinationError,
    CopiesOfflineError,
    StoreClosedError,
)
from broker.coordination.tree import EmbeddedSettings
from broker.coordination.verbs import Session
from logstore.disk import files
from support.heard import Heard
from support.places import fast_directory


@pytest.fixture
def dirs() -> Iterator[list[str]]:
    """Make three log dirs."""
    with fast_directory() as base:
        paths = [base / name for name in "abc"]
        for path in paths:
            path.mkdir()
        yield [str(path) for path in paths]


def names(dirs: list[str]) -> tuple[int, list[str]]:
    """Open a store, and give its zxid and the names of its znodes."""
    with EmbeddedStore(dirs, accept_incomplete=True) as store, store.connect() as session:
        return session.zxid(), session.children("/")


def hang_at(path: str, monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Make the syncs of a log dir hang; returns events of the first hang and of its end."""
    hangs, may_end, real = threading.Event(), threading.Event(), files.sync_data

    def sync(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(path):
            hangs.set()
            assert may_end.wait(60)
        real(fd)

    monkeypatch.setattr(files, "sync_data", sync)
    return hangs, may_end


def test_a_disk_that_hangs_is_left_out(dirs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The others continue soon. When the disk answers at last, no damage results."""
    settings = EmbeddedSettings(disk_seconds_max=0.1)
    with EmbeddedStore(dirs, settings) as store, store.connect() as session:
        _, may_end = hang_at(dirs[1], monkeypatch)
        session.create("/while")
        assert isinstance(store.failures[dirs[1]], TimeoutError)
        session.create("/later")
        may_end.set()
        session.create("/last")
    assert names(dirs) == (3, ["last", "later", "while"])
    assert names([dirs[1]]) == (3, ["last", "later", "while"])


def test_no_disk_is_slow_alone(dirs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """If no other disk answers, a change waits, and a close does not wait for it."""
    monkeypatch.setattr(embedded, "CALLBACK_SECONDS_MAX", 0.05)
    settings = EmbeddedSettings(disk_seconds_max=0.05)
    store = EmbeddedStore(dirs[:1], settings)
    session = store.connect()
    hangs, may_end = hang_at(dirs[0], monkeypatch)
    errors: list[CoordinationError] = []

    def write() -> None:
        try:
            session.create("/slow")
        except CoordinationError as error:
            errors.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    assert hangs.wait(60)
    writer.join(0.3)
    assert writer.is_alive() and not store.failures
    store.close()
    may_end.set()
    writer.join(60)
    assert names(dirs)[1] == ["slow"]


def test_calls_are_made_in_their_order_and_keep_their_errors() -> None:
    """Calls run in order, keep their errors, and the last call ends the thread."""
    made: list[int] = []

    def fail() -> None:
        raise OSError(5, "as a test wants it")

    worker = DiskWorker("x")
    calls = [worker.begin(partial(made.append, number)) for number in range(5)]
    bad = worker.begin(fail)
    last = worker.end(lambda: made.append(9))
    wait_for([*calls, bad, last], 60)
    assert made == [0, 1, 2, 3, 4, 9]
    assert isinstance(bad.error, OSError) and not bad.is_good
    assert all(call.is_good for call in [*calls, last])


def test_a_wait_ends_for_a_call_that_hangs_alone() -> None:
    """A wait for one hanging call ends, but only after another disk has a good answer."""
    over, hanging = Call(lambda: None), Call(lambda: None)
    over.make()
    wait_for([over, hanging], 0.01)
    assert not hanging.is_over.is_set()
    threading.Timer(0.1, hanging.make).start()
    wait_for([hanging], 0.01)
    assert hanging.is_good


# --- disks that hang at an open -------------------------------------------------------------------


class HangAt:
    """Makes one call of `files` hang for paths or files in a log dir, until it may end."""

    def __init__(self, name: str, under: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hangs, self.may_end, real = threading.Event(), threading.Event(), getattr(files, name)

        def call(first: Any, *rest: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else first
            if path.startswith(under) and not self.may_end.is_set():
                self.hangs.set()
                assert self.may_end.wait(60)
            return real(first, *rest)

        monkeypatch.setattr(files, name, call)


@pytest.mark.parametrize("name", ["lstat", "read_file", "names", "open_regular", "write_fully"])
def test_regression_a_disk_that_hangs_at_an_open_is_left_out(
    dirs: list[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any call of an open may hang; when it ends at last, it damages nothing."""
    settings = EmbeddedSettings(disk_seconds_max=0.5)
    with EmbeddedStore(dirs) as store, store.connect() as session:
        session.create("/a")
    with monkeypatch.context() as patch:
        hang = HangAt(name, dirs[1], patch)
        done = Heard[EmbeddedStore]()
        opening = threading.Thread(target=lambda: done(EmbeddedStore(dirs, settings)), daemon=True)
        opening.start()
        store = done.next()
        assert isinstance(store.failures[dirs[1]], TimeoutError)
        with store, store.connect() as session:
            session.create("/b")
            hang.may_end.set()
    assert names(dirs)[1] == ["a", "b"]
    assert names(dirs[1:])[1] == ["a", "b"]


def test_regression_a_write_that_hangs_over_a_close_damages_no_later_store(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next store of the process leaves the log dir out until the call has ended."""
    settings = EmbeddedSettings(disk_seconds_max=0.5)
    with EmbeddedStore(dirs) as store, store.connect() as session:
        session.create("/a")
    with monkeypatch.context() as patch:
        store = EmbeddedStore(dirs, settings)
        hang = HangAt("write_fully", dirs[1], patch)
        store.connect().create("/b")
        store.close()
        with EmbeddedStore(dirs, settings) as later, later.connect() as session:
            assert isinstance(later.failures[dirs[1]], TimeoutError)
            for number in range(9):
                session.create(f"/{number}")
            hang.may_end.set()
            assert disk_workers.is_free(dirs[1], 60)
            session.create("/c")
    for _ in range(2):
        assert names(dirs)[1] == [*map(str, range(9)), "a", "b", "c"]


def test_the_only_disk_is_not_opened_while_a_call_of_before_hangs(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other log dir can be used, so the open is refused; later it succeeds."""
    monkeypatch.setattr(embedded, "CALLBACK_SECONDS_MAX", 0.05)
    settings = EmbeddedSettings(disk_seconds_max=0.05)
    store = EmbeddedStore(dirs[:1], settings)
    session = store.connect()
    with monkeypatch.context() as patch:
        hang = HangAt("write_fully", dirs[0], patch)
        writer = threading.Thread(target=_create, args=(session, "/slow"))
        writer.start()
        assert hang.hangs.wait(60)
        store.close()
        with pytest.raises(CopiesOfflineError, match="still hangs"):
            EmbeddedStore(dirs[:1], settings)
        hang.may_end.set()
        writer.join(60)
    assert names(dirs[:1])[1] == ["slow"]


def _create(session: Session, path: str) -> None:
    with suppress(CoordinationError):
        session.create(path)


def test_no_call_follows_the_last_one() -> None:
    """A call after the last call fails at once, because its caller would wait forever."""
    worker = DiskWorker("x")
    assert worker.end(lambda: None).is_over.wait(60)
    after = worker.begin(lambda: None)
    assert after.is_over.is_set() and isinstance(after.error, StoreClosedError)
