"""A store that is dropped without a close releases everything, and says where it was opened."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logstore import Log, LogStore, StoreConfig
from logstore.disk.dir_lock import DirLock
from logstore.store.dirs.watchdog import LOOK_SECONDS_MAX
from mover import ReplicaMover
from support.faulty import no_thread_leaks, open_below
from support.inside import keepers_of, watchdog_of
from support.places import fast_directory

RECORDS = [b"record %d" % number for number in range(10)]
SLOW = StoreConfig(log_flush_scheduler_interval_ms=3_600_000)


@pytest.fixture
def dirs() -> Iterator[list[str]]:
    with fast_directory() as base:
        yield [str(base / f"disk{number}") for number in range(3)]


@pytest.fixture(autouse=True)
def few_objects() -> Iterator[None]:
    """Let a collection examine only the objects of a test: it takes 1 ms instead of 300 ms.

    A process of many tests has millions of objects, and each test here collects, some 100 times.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@contextmanager
def warned() -> Iterator[list[warnings.WarningMessage]]:
    """Collect the warnings of stores that are dropped in this block."""
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
        gc.collect()


def is_free(path: str) -> bool:
    lock = DirLock(path)
    lock.acquire()
    lock.release()
    return True


def sockets() -> list[str]:
    """Name the admin sockets of this process."""
    names = Path("/proc/net/unix").read_text("utf-8").splitlines()
    return [name for name in names if f"/{os.getpid()}-" in name]


def test_regression_a_dropped_store_says_where_it_was_opened(dirs: list[str]) -> None:
    """The dropped store stayed locked by its own process, without any message."""
    with no_thread_leaks(), warned() as caught:
        line = sys._getframe().f_lineno + 1
        store = LogStore.open(dirs)
        store.create("orders", 0, log_dir=dirs[0]).extend(RECORDS)
        store["orders", 0].flush()
        del store
        gc.collect()
        assert all(is_free(path) for path in dirs)
    assert [one.category for one in caught] == [ResourceWarning]
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)
    text = str(caught[0].message)
    assert f"{__file__}:{line}" in text
    assert all(path in text for path in dirs)
    assert not any(open_below(path) for path in dirs)


def test_regression_a_dropped_store_opens_at_once_and_is_recovered(dirs: list[str]) -> None:
    """The process could not open the store again; a dropped store is not closed cleanly."""
    with warned() as caught:
        store = LogStore.open(dirs)
        store.create("orders", 0, log_dir=dirs[0]).extend(RECORDS)
        del store
        gc.collect()
        assert not any(Path(path, ".clean-shutdown").exists() for path in dirs)
        with LogStore.open(dirs) as after:
            assert [record.value for record in after["orders", 0]] == RECORDS
            assert after["orders", 0].append(b"x") == 10
    assert len(caught) == 1


def test_regression_a_hundred_dropped_stores_leave_nothing(dirs: list[str]) -> None:
    """Each dropped store left its lock, its descriptors, a socket and several threads."""
    before, sockets_before = len(os.listdir("/proc/self/fd")), len(sockets())
    with no_thread_leaks(60), warned() as caught:
        for number in range(100):
            store = LogStore.open(dirs[:2], config=SLOW)
            store.create("orders", 0, log_dir=dirs[0], exist_ok=True).append(b"%d" % number)
            del store
            gc.collect()
    assert len(caught) == 100
    assert len(os.listdir("/proc/self/fd")) <= before
    assert len(sockets()) <= sockets_before
    with LogStore.open(dirs[:2]) as after:
        assert len(after["orders", 0]) == 100


USES: dict[str, Callable[[LogStore, Log], Any]] = {
    "log": lambda store, log: log,
    "reader": lambda store, log: iter(log),
    "tail": lambda store, log: log.tail("start", timeout=0),
    "appender": lambda store, log: log.appender(),
    "admin": lambda store, log: store.admin,
    "host": lambda store, log: store.host,
}


@pytest.mark.parametrize("way", USES)
def test_what_is_in_use_keeps_its_store_open(dirs: list[str], way: str) -> None:
    """A log in use continues to work; when it is dropped, its store is released, too."""
    with no_thread_leaks(), warned() as caught:
        store: Any = LogStore.open(dirs)
        log: Any = store.create("orders", 0)
        log.extend(RECORDS)
        used = USES[way](store, log)
        if way == "appender":
            assert used.append(b"x").result() == 10
        del store, log
        gc.collect()
        assert caught == []
        if way == "log":
            assert used.append(b"x", durable=True) == 10
        elif way == "appender":
            assert used.append(b"x").result() == 11
        elif way in ("reader", "tail"):
            assert [record.value for record in used] == RECORDS
        elif way == "admin":
            assert used.call("ping")["pid"] == os.getpid()
        else:
            used.check()
        del used
    assert len(caught) == 1
    assert all(is_free(path) for path in dirs)


def collect_until(is_over: Callable[[], object]) -> None:
    """Run collections until the thread that was working waits again."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        gc.collect()
        if is_over():
            return
        threading.Event().wait(0.01)


def test_regression_a_dropped_appender_lets_go_of_its_store(dirs: list[str]) -> None:
    """The thread of the appender kept the appender and the store alive, without a message."""
    with no_thread_leaks(), warned() as caught:
        store = LogStore.open(dirs)
        appender = store.create("orders", 0).appender()
        assert appender.append(b"x").result() == 0
        del store, appender
        collect_until(lambda: caught)
    assert len(caught) == 1
    assert all(is_free(path) for path in dirs)


def test_a_dropped_appender_sends_what_waits(dirs: list[str]) -> None:
    """A record that was added is in the log after its linger time."""
    with no_thread_leaks(), warned() as caught:
        store = LogStore.open(dirs)
        log = store.create("orders", 0)
        log.appender(linger=0.05).append(b"x")
        gc.collect()
        assert log.wait_for(0, 60)
        log.appender(linger=0.05).append(b"y")
        del store, log
        collect_until(lambda: caught)
    assert len(caught) == 1
    with LogStore.open(dirs) as after:
        assert [record.value for record in after["orders", 0]] == [b"x", b"y"]


def test_regression_a_dropped_mover_lets_go_of_its_store(dirs: list[str]) -> None:
    """A mover keeps the store open while it moves; its threads kept the store open forever."""
    with no_thread_leaks(60), warned() as caught:
        store = LogStore.open(dirs)
        log = store.create("orders", 0, log_dir=dirs[0])
        log.extend([b"x" * 1000] * 1000)
        mover = ReplicaMover(store, 2)
        move = mover.move("orders", 0, dirs[1])
        del store, mover, log
        gc.collect()
        assert caught == []
        move.wait()
        del move
        movers = [one for one in threading.enumerate() if one.name.startswith("ReplicaMoveThread")]
        for _ in range(1000):  # until the thread that moved waits again
            gc.collect()
            if caught:
                break
            movers[0].join(0.05)
    assert len(caught) == 1
    with LogStore.open(dirs) as after:
        assert after["orders", 0].log_dir == dirs[1]
        assert len(after["orders", 0]) == 1000


def test_a_store_that_is_closed_gives_no_warning(dirs: list[str]) -> None:
    """The store was closed by a with statement, by a call, or because its opening failed."""
    with warned() as caught:
        with LogStore.open(dirs) as store:
            store.create("orders", 0)
        LogStore.open(dirs).close()
        with pytest.raises(TypeError):
            LogStore.open(dirs, admin_socket=2)  # type: ignore[arg-type]
        del store
    assert caught == []


def test_a_dropped_view_leaves_nothing(dirs: list[str]) -> None:
    """A view has locked nothing, so there is no warning."""
    with LogStore.open(dirs) as store:
        store.create("orders", 0, log_dir=dirs[0]).extend(RECORDS)
    with no_thread_leaks(), warned() as caught:
        for _ in range(10):
            view = LogStore.open(dirs, read_only=True)
            assert len(view["orders", 0]) == 10
            del view
    assert caught == []
    assert not any(open_below(path) for path in dirs)


def test_a_dropped_store_of_which_a_dir_has_failed(dirs: list[str]) -> None:
    """Dirs that were released before are ignored; a dir that came back is released."""
    with no_thread_leaks(), warned() as caught:
        store = LogStore.open(dirs)
        store.take_offline(dirs[1])
        store.take_offline(dirs[2])
        store.reopen_dir(dirs[2])
        del store
        gc.collect()
        assert all(is_free(path) for path in dirs)
    assert len(caught) == 1


def test_a_watchful_thread_does_not_end_by_a_collection(dirs: list[str]) -> None:
    """A store in use keeps its threads, however often the collector runs."""
    with LogStore.open(dirs) as store:
        threads = [watchdog_of(store)._thread, *(one._thread for one in keepers_of(store).values())]
        gc.collect()
        for thread in threads:
            thread.join(LOOK_SECONDS_MAX)
            assert thread.is_alive()
        assert store.create("orders", 0).append(b"x") == 0


# If it hangs, it says where, in each thread.
SCRIPT = """
import faulthandler, gc, sys
faulthandler.dump_traceback_later(60, exit=True)
from logstore import LogStore
store = LogStore.open(sys.argv[1:])
store.create("orders", 0).append(b"x")
"""
# A thread that is at work refers to the store until it rests. Only this thread collects, so that
# the locks are free once the event is set.
DROPS = """
import threading, weakref
gc.disable()
is_gone = threading.Event()
weakref.finalize(store, is_gone.set)
del store
gc.collect()
rounds = 0
while not is_gone.wait(0.01):
    gc.collect()
    rounds += 1
    if rounds == 500:  # something refers to it: say what
        held = [one for one in gc.get_objects() if type(one) is LogStore]
        for _ in range(5):
            held = [
                one
                for each in held[:12]
                for one in gc.get_referrers(each)
                if one is not held and type(one).__name__ not in ("frame", "list_iterator")
            ]
            print([f"{type(one).__name__}: {str(one)[:160]}" for one in held], file=sys.stderr)
LogStore.open(sys.argv[1:]).close()
print("done")
"""


# On busy cores something kept the store for a minute, seldom; what it was is not known yet.
@pytest.mark.alone
@pytest.mark.parametrize(
    ("flags", "more", "said"),
    [
        (("-W", "error"), DROPS, "ResourceWarning: the store of"),
        (("-X", "dev"), DROPS, "ResourceWarning: the store of"),
        ((), DROPS, ""),
        (("-X", "dev"), "print('done')", "was still open when the process ended"),
        (("-X", "dev"), "store.ring = store; print('done')", "was still open when"),
        (("-W", "error"), "print('done')", "was still open when the process ended"),
        (("-X", "dev"), "store.close(); print('done')", ""),
        ((), "print('done')", ""),
        ((), "store.ring = store; log = store['orders', 0]; print('done')", ""),
    ],
)
def test_a_process_with_an_open_store_ends_in_order(
    dirs: list[str], flags: tuple[str, ...], more: str, said: str
) -> None:
    """A warning that is turned into an error does no harm; without a filter, none is shown."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", SCRIPT + more, *dirs],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert said in done.stderr
    assert said or not done.stderr
