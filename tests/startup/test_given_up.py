"""What a start gave up changes nothing any more, and what it opened is open once."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import LogDirError, LogDirOfflineError, LogStore
from logstore.disk import files
from logstore.disk.calls import calls_under_way
from logstore.log.recovery.open_log import open_log as open_log_of_disk
from logstore.store.dirs import parallel, watchdog
from logstore.store.start import loader
from logstore.store.upkeep.keeper import DirKeeper
from support.hanging import LATE, QUIET, Caller
from support.places import fast_directory

RECORDS = [b"record %d" % number for number in range(10)]


@pytest.fixture
def dirs() -> Iterator[list[str]]:
    """Name two log dirs in memory."""
    with fast_directory() as base:
        yield [str(base / "disk0"), str(base / "disk1")]


class LateCall:
    """The first call of a kind to a path: it seems to hang for hours, then comes back."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, is_it: Callable[..., bool]) -> None:
        self.began, self.released = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None
        real = getattr(files, name)

        def call(*arguments: Any) -> Any:
            if self.thread is not None or not is_it(*arguments):
                return real(*arguments)
            self.thread = threading.current_thread()
            answer = real(*arguments)
            for one in calls_under_way():
                if str(arguments[0]).startswith(one.path):
                    one.since -= LATE
            self.began.set()
            assert self.released.wait(60)
            return answer

        patch.setattr(files, name, call)
        patch.setattr(parallel, "LOOK_SECONDS", 0.001)
        patch.setattr(watchdog, "LOOK_SECONDS_MAX", 0.002)

    def come_back(self) -> None:
        self.released.set()
        assert self.thread is not None
        self.thread.join(60)
        assert not self.thread.is_alive()


def test_a_listing_that_was_given_up_removes_nothing(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It found a half-made replica; nobody takes the dir before it is back, nor does it then."""
    LogStore.open(dirs, admin_socket=False).close()
    half_made = Path(dirs[1], "orders-0")
    half_made.mkdir()
    late = LateCall(monkeypatch, "scandir", lambda path: path == str(half_made))
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        assert late.began.is_set()
        with pytest.raises(LogDirOfflineError, match="hangs"):
            store.reopen_dir(dirs[1])
        late.come_back()
        assert half_made.exists()
        store.reopen_dir(dirs[1])
        store.create("orders", 0, log_dir=dirs[1]).extend(RECORDS)
    with LogStore.open(dirs, admin_socket=False) as store:
        assert [record.value for record in store.log("orders", 0)] == RECORDS


def test_a_recovery_that_was_given_up_cuts_nothing(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was about to cut a torn tail; nobody takes the dir before it is back, nor does it then."""
    with LogStore.open(dirs, admin_socket=False) as store:
        store.create("orders", 0, log_dir=dirs[1]).extend(RECORDS)
    path = next(Path(dirs[1], "orders-0").glob("*.log"))
    with path.open("ab") as file:
        file.write(b"torn")
    Path(dirs[1], ".clean-shutdown").unlink()
    late = LateCall(
        monkeypatch,
        "open_file",
        lambda name, flags, *_: name == str(path) and flags & os.O_RDWR != 0,
    )
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        assert late.began.is_set()
        with pytest.raises(LogDirOfflineError, match="hangs"):
            store.reopen_dir(dirs[1])
        late.come_back()
        assert path.read_bytes().endswith(b"torn")
        store.reopen_dir(dirs[1])
        store.log("orders", 0).extend(RECORDS)
    with LogStore.open(dirs, admin_socket=False) as store:
        assert [record.value for record in store.log("orders", 0)] == RECORDS * 2


def test_a_lock_that_comes_late_is_given_back(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One log dir hangs while the opening breaks off for want of descriptors: try again."""
    LogStore.open(dirs, admin_socket=False).close()
    locks = [os.path.join(path, ".lock") for path in dirs]
    opening = files.open_file
    is_short = threading.Event()

    def open_file(path: str, flags: int, *rest: int) -> int:
        if path == locks[0] and flags & os.O_RDWR and not is_short.is_set():
            is_short.set()
            raise OSError(errno.EMFILE, "Too many open files", path)
        return opening(path, flags, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(files, "open_file", open_file)
        late = LateCall(patch, "open_file", lambda p, f, *_: p == locks[1] and f & os.O_RDWR != 0)
        with pytest.raises(LogDirError) as caught:
            LogStore.open(dirs, config=QUIET, admin_socket=False)
        assert caught.value.retriable
        late.come_back()
    LogStore.open(dirs, admin_socket=False).close()


def test_a_start_without_threads_leaves_nothing_behind(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second keeper cannot be started: the first one ends, and all locks are given back."""
    before = set(threading.enumerate())
    starting = DirKeeper.start

    def start(keeper: DirKeeper) -> None:
        if keeper.log_dir.path == dirs[1]:
            raise RuntimeError("can't start new thread")
        starting(keeper)

    with monkeypatch.context() as patch:
        patch.setattr(DirKeeper, "start", start)
        with pytest.raises(RuntimeError):
            LogStore.open(dirs, admin_socket=False)
    assert set(threading.enumerate()) <= before
    LogStore.open(dirs, admin_socket=False).close()


def test_a_replica_is_opened_once_while_another_dir_comes_back(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lacked a descriptor at the start; then both its user and a returning dir try again."""
    with LogStore.open(dirs, admin_socket=False) as store:
        store.create("orders", 0, log_dir=dirs[0]).extend(RECORDS)
    path = os.path.join(dirs[0], "orders-0")
    opening = open_log_of_disk
    tries: list[str] = []
    inside, go_on = threading.Event(), threading.Event()

    def open_log(log_dir: Any, name: str, *arguments: Any, **options: Any) -> Any:
        if name == "orders-0":
            tries.append(threading.current_thread().name)
            if len(tries) == 1:
                raise log_dir.failed(OSError(errno.EMFILE, "Too many open files", path))
            if len(tries) == 2:
                inside.set()
                assert go_on.wait(60)
        return opening(log_dir, name, *arguments, **options)

    monkeypatch.setattr(loader, "open_log", open_log)
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        store.take_offline(dirs[1])
        asking = Caller(lambda: store.log("orders", 0))
        assert inside.wait(60)
        reserving = type(store.host.replicas).reserved
        coming = threading.Event()

        def reserved(replicas: Any, key: Any) -> Any:
            coming.set()
            return reserving(replicas, key)

        monkeypatch.setattr(type(store.host.replicas), "reserved", reserved)
        returning = Caller(lambda: store.reopen_dir(dirs[1]))
        while not coming.is_set() and not returning.is_back():
            coming.wait(0.01)
        go_on.set()
        log = asking.outcome()
        assert not isinstance(returning.outcome(), Exception), returning.outcome()
        assert store.log("orders", 0) is log
        assert len(tries) == 2
