"""A store has at most one owner among all processes, and never a dead one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore.errors import LogClosedError, LogDirLockedError, LogStoreError
from logstore.store.store import LogStore
from support.places import environment

# Python 3.12 and later warn of a fork among threads, which is just what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

OWNER = """
import sys
from logstore import LogStore
store = LogStore.open(sys.argv[1:])
log = store["orders", 0] if ("orders", 0) in store else store.create("orders", 0)
log.append(b"durable", durable=True)
print("open", flush=True)
sys.stdin.read()
"""

RACER = """
import sys
from logstore import LogDirLockedError, LogStore
sys.stdin.readline()
try:
    store = LogStore.open(sys.argv[1:])
    print("owner", flush=True)
    sys.stdin.readline()
    store.close()
except LogDirLockedError:
    print("locked", flush=True)
"""


def start(program: str, dirs: list[str]) -> subprocess.Popen[str]:
    """Start another process."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *dirs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def line_of(process: subprocess.Popen[str]) -> str:
    """Return a line that another process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    """Close the pipes of a process that has ended or ends now."""
    process.kill()
    process.communicate()


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    """Return two log dirs that do not exist yet."""
    return [str(tmp_path / f"disk{number}") for number in range(2)]


def test_another_process_is_refused_with_the_owners_pid(dirs: list[str]) -> None:
    """After a SIGKILL, the owner leaves no lock, and all durable records."""
    owner = start(OWNER, dirs)
    try:
        assert line_of(owner) == "open"
        with pytest.raises(LogDirLockedError) as raised:
            LogStore.open(dirs)
        assert raised.value.pid == owner.pid
        assert str(owner.pid) in str(raised.value)
        with LogStore.open(dirs, read_only=True) as view:
            assert len(view["orders", 0]) == 1
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    finally:
        end(owner)
    with LogStore.open(dirs) as store:
        assert not store.recovery_report.was_clean
        assert [record.value for record in store["orders", 0]] == [b"durable"]


def test_of_two_that_form_a_store_at_once_one_owns_it(dirs: list[str]) -> None:
    """The other process is refused, or waits; in the end there is one store."""
    for turn in range(3):
        paths = [f"{path}-{turn}" for path in dirs]
        racers = [start(RACER, order) for order in (paths, paths[::-1])]
        try:
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write("go\n")
                racer.stdin.flush()
            said = [line_of(racer) for racer in racers]
            assert said.count("owner") <= 1
            for racer in racers:
                racer.communicate("close\n")
        finally:
            for racer in racers:
                end(racer)
        with LogStore.open(paths) as store:
            assert store.metrics().OfflineLogDirectoryCount == 0


def in_child(work: Callable[[], bool]) -> bool:
    """Fork, do something in the child, and return its result."""
    child = os.fork()
    if child == 0:
        is_right = False
        try:
            is_right = work()
        finally:
            os._exit(0 if is_right else 1)
    return os.waitpid(child, 0)[1] == 0


def test_a_forked_child_cannot_use_the_store(dirs: list[str]) -> None:
    """Every call in the child raises LogClosedError; the parent continues."""
    with LogStore.open(dirs) as store:
        log = store.create("orders", 0)
        log.append(b"before")
        calls: list[Callable[[], object]] = [
            lambda: store.log("orders", 0),
            lambda: store.create("orders", 1),
            lambda: list(store),
            store.flush,
            store.metrics,
            lambda: store["orders", 0],
            lambda: log.append(b"durable", durable=True),
            store.describe_dirs,
            lambda: log.append(b"child"),
            lambda: log.read(0),
            log.flush,
        ]

        def refused() -> bool:
            count = 0
            for call in calls:
                try:
                    call()
                except LogClosedError:
                    count += 1
            return count == len(calls)

        assert in_child(refused)
        state = log._state
        with state.lock, state.flush_lock:  # as if another thread were at work in the parent
            assert in_child(refused)
        assert in_child(lambda: store.close() == ())
        log.append(b"after")
        store.flush()
        with pytest.raises(LogDirLockedError):
            LogStore.open(dirs)
    with LogStore.open(dirs) as store:
        assert [record.value for record in store["orders", 0]] == [b"before", b"after"]
        assert store.recovery_report.was_clean


def test_a_forked_child_does_not_keep_the_store_of_its_parent_locked(dirs: list[str]) -> None:
    """A child that lives longer does not own the store; it may even open the store itself."""
    store = LogStore.open(dirs)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(read_end, 1)
        is_opened = False
        try:
            with LogStore.open(dirs) as mine:
                mine.create("orders", 0)
                is_opened = True
        except LogStoreError:
            pass
        finally:
            os._exit(0 if is_opened else 1)
    try:
        store.close()
        with LogStore.open(dirs):
            pass
        os.write(write_end, b"x")
        assert os.waitpid(child, 0)[1] == 0
    finally:
        os.close(read_end)
        os.close(write_end)
    with LogStore.open(dirs) as store:
        assert ("orders", 0) in store
