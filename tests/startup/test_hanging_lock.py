"""A log dir stays locked as long as a call of its last owner can still change it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import LogDirLockedError, LogDirOfflineError, LogStore
from logstore.disk import files, gates
from logstore.disk.dir_lock import DirLock
from logstore.errors import LogDirError
from logstore.store.state import OwnerState
from mover import ReplicaMover
from support.faulty import no_thread_leaks
from support.hanging import QUIET, Caller, Watch
from support.inside import failure_threads

# Where a call hangs: in the kernel, so below the gate of its log dir.
BARE: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "pwrite": lambda hang: gates.writing(hang(os.pwrite)),
    "pwritev": lambda hang: gates.writing(hang(os.pwritev)),
    "sendfile": lambda hang: gates.changing_fd(hang(os.sendfile)),
    "rename": lambda hang: gates.changing_two_names(hang(os.rename)),
    "unlink": lambda hang: gates.changing_name(hang(os.unlink)),
    "mkdir": lambda hang: gates.changing_name(hang(os.mkdir)),
    "open_file": lambda hang: gates.opening(hang(os.open), os.close, files.FILE_MODE),
    "fsync": lambda hang: gates.syncing(hang(os.fsync)),
}
TRY = """
import sys
from logstore.disk.dir_lock import DirLock
from logstore.errors import LogDirLockedError
lock = DirLock(sys.argv[1])
try:
    lock.acquire()
except LogDirLockedError as error:
    print(error.pid)
else:
    lock.release()
    print("free")
"""


class Kernel:
    """A kernel in which the first call of one kind below a path hangs until it is released."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, under: str) -> None:
        self.under, self.name = under, name
        self.began, self.released = threading.Event(), threading.Event()
        patch.setattr(files, name, BARE[name](self._hanging))

    def _hanging(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            first = args[0]
            path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else first
            changes = self.name != "open_file" or args[1] & (os.O_TRUNC | os.O_EXCL)
            if path.startswith(self.under + "/") and changes and not self.began.is_set():
                self.began.set()
                assert self.released.wait(120)
            return real(*args)

        return call


def asked_by_another_process(path: str) -> str:
    """Have another process try to take a log dir; give `free`, or the pid it was refused for."""
    done = subprocess.run(
        [sys.executable, "-c", TRY, path], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()


def is_free(path: str) -> bool:
    """Ask the kernel whether nobody holds the lock, beside all that the library notes."""
    fd = os.open(os.path.join(path, ".lock"), os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    return [str(tmp_path / "disk0"), str(tmp_path / "disk1")]


@pytest.fixture
def store(dirs: list[str]) -> Iterator[LogStore]:
    with no_thread_leaks(120):
        store = LogStore.open(dirs, config=QUIET, admin_socket=False)
        for number, path in enumerate(dirs):
            store.create("orders", number, log_dir=path).extend([b"x"] * 10)
        yield store
        store.close()


def give_up(store: LogStore, bad: str) -> None:
    """Have the watchdog free the locks of the thread that hangs, then do without its log dir."""
    watch = Watch(store)
    watch.suspect()
    watch.look(5)
    store.host.replicas.dir_of(bad).take_offline("it hangs")
    for thread in list(failure_threads(store)):
        thread.join(60)
        assert not thread.is_alive()


def move_onto(store: LogStore, bad: str) -> None:
    with ReplicaMover(store) as mover:
        mover.move("orders", 0, bad).wait()


USES: dict[str, tuple[str, Callable[[LogStore, str], object]]] = {
    "an append": ("pwrite", lambda store, bad: store["orders", 1].append(b"late")),
    "a batch": ("pwritev", lambda store, bad: store["orders", 1].extend([b"late"] * 10)),
    "a truncation": ("rename", lambda store, bad: store["orders", 1].truncate_to(5)),
    "a new partition": ("mkdir", lambda store, bad: store.create("new", 0, log_dir=bad)),
    "a new file": ("open_file", lambda store, bad: store.create("new", 0, log_dir=bad)),
    "a new topic": ("mkdir", lambda store, bad: store.create_topic("new", 4)),
    "a topic's rename": ("rename", lambda store, bad: store.create_topic("new", 4)),
    "a configuration": (
        "rename",
        lambda store, bad: store.set_config("orders", 1, {"retention_ms": 5}),
    ),
    "a deletion": ("rename", lambda store, bad: store.delete("orders", 1)),
    "settings": ("rename", lambda store, bad: store.cordon(bad)),
    "a move": ("sendfile", move_onto),
}


@pytest.mark.parametrize("use", USES)
def test_regression_a_change_that_hangs_keeps_the_lock(
    store: LogStore, dirs: list[str], monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    """The lock was free as soon as the dir was given up, and the call landed under a new owner."""
    name, work = USES[use]
    bad = dirs[1]
    kernel = Kernel(monkeypatch, name, bad)
    caller = Caller(lambda: work(store, bad))
    try:
        assert kernel.began.wait(60)
        assert asked_by_another_process(bad) == str(os.getpid())
        give_up(store, bad)
        assert asked_by_another_process(bad) == str(os.getpid())
        with pytest.raises(LogDirLockedError, match="still running"):
            DirLock(bad).acquire()
        assert store["orders", 0].append(b"x") == 10
    finally:
        kernel.released.set()
    caller.outcome()
    assert is_free(bad)
    assert asked_by_another_process(bad) == "free"
    store.reopen_dir(bad)
    assert store["orders", 0].append(b"x") == 11


def test_regression_a_close_leaves_a_hanging_dir_locked(
    store: LogStore, dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was closed, and the dir free, while its call was yet to land."""
    bad = dirs[1]
    kernel = Kernel(monkeypatch, "pwrite", bad)
    caller = Caller(lambda: store["orders", 1].append(b"late"))
    try:
        assert kernel.began.wait(60)
        give_up(store, bad)
        assert store.close() == (bad,)
        assert is_free(dirs[0])
        with pytest.raises(LogDirLockedError, match="still running"):
            LogStore.open(dirs, config=QUIET, admin_socket=False)
    finally:
        kernel.released.set()
    caller.outcome()
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as after:
        assert len(after["orders", 1]) >= 10


def test_a_hanging_dir_does_not_come_back_before_its_call(
    store: LogStore, dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reopens it is refused for as long, and works then."""
    bad = dirs[1]
    kernel = Kernel(monkeypatch, "pwrite", bad)
    caller = Caller(lambda: store["orders", 1].append(b"late"))
    try:
        assert kernel.began.wait(60)
        give_up(store, bad)
        monkeypatch.setattr(OwnerState, "patience_seconds", 0.05)
        with pytest.raises(LogDirError, match="has not returned"):
            store.reopen_dir(bad)
    finally:
        kernel.released.set()
    caller.outcome()
    monkeypatch.undo()
    store.reopen_dir(bad)
    assert store["orders", 1].append(b"x") >= 10


def test_regression_a_sync_that_hung_is_the_last_step(
    store: LogStore, dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It delays no new owner; its thread then neither renames nor removes anything."""
    bad = dirs[1]
    before = {path: path.read_bytes() for path in Path(bad, "orders-1").iterdir()}
    kernel = Kernel(monkeypatch, "fsync", bad)
    caller = Caller(lambda: store.cordon(bad))
    try:
        assert kernel.began.wait(60)
        give_up(store, bad)
        assert asked_by_another_process(bad) == "free"
        names = sorted(os.listdir(bad))
    finally:
        kernel.released.set()
    assert isinstance(caller.outcome(), LogDirOfflineError)
    assert sorted(os.listdir(bad)) == names
    assert {path: path.read_bytes() for path in Path(bad, "orders-1").iterdir()} == before


def test_regression_a_late_step_of_the_old_owner_is_refused(
    store: LogStore, dirs: list[str]
) -> None:
    """Between two calls, a thread of it cannot know that the dir was given up."""
    bad = dirs[1]
    handle = files.open_regular(os.path.join(bad, "meta.properties"), files.READ_WRITE)
    names = sorted(os.listdir(bad))
    give_up(store, bad)
    meta = os.path.join(bad, "meta.properties")
    late: list[Callable[[], object]] = [
        lambda: files.rename(meta, meta + ".old"),
        lambda: files.unlink(meta),
        lambda: files.link(meta, meta + ".too"),
        lambda: files.mkdir(os.path.join(bad, "new-0")),
        lambda: files.rmdir(os.path.join(bad, "orders-1")),
        lambda: files.open_file(os.path.join(bad, "new"), files.CREATE),
        lambda: files.open_file(meta, files.REPLACE),
        lambda: files.pwrite(handle, b"late", 0),
        lambda: files.pwritev(handle, [b"late"], 0),
        lambda: files.ftruncate(handle, 0),
        lambda: files.fsync(handle),
        lambda: files.fdatasync(handle),
    ]
    for call in late:
        with pytest.raises(gates.LetGoError):
            call()
    files.close(handle)
    assert sorted(os.listdir(bad)) == names
    assert files.read_file(meta)
    store.reopen_dir(bad)
    store.cordon(bad)
