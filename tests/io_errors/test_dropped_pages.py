"""Open again what a failed flush has left: the disk is asked, not the memory, which lies (R6)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import LogDirOfflineError, LogStore
from mover import MoveState, ReplicaMover
from mover.copying import copy_segments
from mover.copying.early_sync import EarlySync
from support.dropped_pages import DroppedPages
from support.gate import SECONDS_MAX, gated
from support.inside import wait_for_failures
from support.moving import CONFIG, check_whole, fill
from support.places import fast_directory

FLUSHED, COUNT = 600, 700


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch, base: Path) -> DroppedPages:
    return DroppedPages(monkeypatch, base / "b")


def open_store(base: Path) -> LogStore:
    return LogStore.open([base / "a", base / "b"], admin_socket=False)


def make(base: Path) -> LogStore:
    """Make a store with a log on the second log dir, of which the end is not flushed."""
    store = open_store(base)
    log = store.create("orders", 0, log_dir=base / "b")
    fill(log, FLUSHED // 10)
    log.flush()
    fill(log, (COUNT - FLUSHED) // 10)
    return store


def check_acknowledged(store: LogStore, base: Path, pages: DroppedPages) -> None:
    """What was dropped is gone and was told; what is acknowledged now survives a power cut."""
    with store:
        log = store.log("orders", 0)
        assert log.log_end_offset == FLUSHED
        assert log.append(b"%d:" % FLUSHED, durable=True) == FLUSHED
        check_whole(log, base, "b")
    pages.forget_all(base)
    with open_store(base) as again:
        check_whole(log := again.log("orders", 0), base, "b")
        assert log[FLUSHED].value == b"%d:" % FLUSHED


@pytest.mark.parametrize("is_restarted", [False, True], ids=["reopened", "restarted"])
def test_regression_what_a_failed_flush_dropped_is_not_believed(
    base: Path, pages: DroppedPages, is_restarted: bool
) -> None:
    """A log dir that is back, in this process or the next, ends where its disk does."""
    store = make(base)
    pages.fails = True
    with pytest.raises(LogDirOfflineError, match="a flush failed"):
        store.log("orders", 0).flush()
    if is_restarted:
        store.close()
        store = open_store(base)
    else:
        wait_for_failures(store, SECONDS_MAX)
        store.reopen_dir(base / "b")
    check_acknowledged(store, base, pages)


def test_a_flush_that_fails_behind_the_end_of_its_log_dir_is_not_believed(
    base: Path, pages: DroppedPages
) -> None:
    """One that hung, and failed when its dir was offline already: its return asks the disk too."""
    store = make(base)
    log_dir = store.host.replicas.dir_of(str(base / "b"))
    log_dir.take_offline("it hangs")
    wait_for_failures(store, SECONDS_MAX)
    (segment,) = (base / "b" / "orders-0").glob("*.log")
    pages.lose(str(segment))
    store.reopen_dir(base / "b")
    check_acknowledged(store, base, pages)


def test_a_copy_that_was_left_is_held_against_the_disk(
    base: Path, pages: DroppedPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its early sync failed while it was paused: no byte of that is taken for copied."""
    monkeypatch.setattr(copy_segments, "EARLY_SYNC_BYTES", 1)
    is_let_go, let_go = threading.Event(), EarlySync.let_go

    def let_it_fail(sync: EarlySync) -> None:
        is_let_go.set()
        let_go(sync)

    monkeypatch.setattr(EarlySync, "let_go", let_it_fail)
    pages.fails, pages.thread = True, "ReplicaMoveSync"
    pages.before = lambda: is_let_go.wait(SECONDS_MAX)
    with open_store(base) as store:
        log = store.create("orders", 0, log_dir=base / "a", config=CONFIG)
        fill(log, 60)
        with gated(store) as (mover, gate):
            gate.hold(after=1)
            move = mover.move("orders", 0, base / "b")
            gate.wait_until_held()
            move.pause()
            assert not pages.fails
            assert [one.is_live for one in store.describe_dirs().log_dirs] == [True, False]
            wait_for_failures(store, SECONDS_MAX)
            store.reopen_dir(base / "b")
            gate.open()
            move.resume()
            assert move.wait(SECONDS_MAX) is MoveState.DONE
    pages.forget_all(base)
    with open_store(base) as store, ReplicaMover(store):
        check_whole(store.log("orders", 0), base, "b")
