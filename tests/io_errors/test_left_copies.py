"""A copy that an earlier process left becomes the log only as far as its disk has it (R6)."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import Log, LogStore, LogStoreError, ReplicaIncompleteError
from logstore.disk import bulk
from mover.copying import copy_segments
from mover.copying.early_sync import EarlySync
from support.dropped_pages import DroppedPages
from support.gate import SECONDS_MAX, gated
from support.moving import CONFIG, fill
from support.places import fast_directory

CHUNKS = (1, 9, 18, 30)


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch, base: Path) -> DroppedPages:
    return DroppedPages(monkeypatch, base / "b")


def leave_a_copy(
    base: Path, pages: DroppedPages, monkeypatch: pytest.MonkeyPatch, chunks: int
) -> None:
    """Stop a move of which the last early sync fails, then lose its source for good."""
    is_let_go, let_go = threading.Event(), EarlySync.let_go

    def let_it_fail(sync: EarlySync) -> None:
        is_let_go.set()
        let_go(sync)

    with monkeypatch.context() as patch:
        patch.setattr(copy_segments, "EARLY_SYNC_BYTES", 1)
        patch.setattr(EarlySync, "let_go", let_it_fail)
        pages.thread, pages.before = "ReplicaMoveSync", lambda: is_let_go.wait(SECONDS_MAX)
        with LogStore.open([base / "a", base / "b"], admin_socket=False) as store:
            log = store.create("orders", 0, log_dir=base / "a", config=CONFIG)
            fill(log, 60)
            with gated(store) as (mover, gate):
                gate.hold(after=chunks - 1)
                move = mover.move("orders", 0, base / "b")
                gate.wait_until_held()
                for thread in threading.enumerate():
                    if thread.name == pages.thread:  # the next sync begins only after this one
                        thread.join(SECONDS_MAX)
                is_let_go.clear()
                pages.fails = True
                gate.hold(after=1)
                gate.wake()
                gate.wait_until_held()
                move.pause()
                assert pages.has_failed.wait(SECONDS_MAX)
    shutil.rmtree(base / "a")
    with LogStore.open(base / "b", admin_socket=False) as store:
        (missing,) = store.host.replicas.missing_ids
        store.remove_dir(missing, lost=True)


def records(log: Log) -> list[int]:
    """Give the offsets that a log has, after a look at each value."""
    found = [(record.offset, record.value) for record in log]
    assert all(value.startswith(b"%d:" % offset) for offset, value in found if value)
    assert [offset for offset, _ in found] == list(range(len(found)))
    return [offset for offset, _ in found]


@pytest.mark.parametrize("chunks", CHUNKS)
def test_regression_a_left_copy_is_not_believed_from_memory(
    base: Path, pages: DroppedPages, monkeypatch: pytest.MonkeyPatch, chunks: int
) -> None:
    """Its early sync had failed; the next process read it from memory, and promoted that."""
    leave_a_copy(base, pages, monkeypatch, chunks)
    with LogStore.open(base / "b", admin_socket=False) as store:
        (entry,) = store.recovery_report.incomplete
        assert isinstance(entry.error, ReplicaIncompleteError)
        end = len(records(store.log("orders", 0)))
        assert store.promote("orders", 0)
        log = store.log("orders", 0)
        assert log.log_end_offset == end
        assert log.append(b"%d:" % end, durable=True) == end
    pages.forget_all(base)
    with LogStore.open(base / "b", admin_socket=False) as store:
        assert store.recovery_report.is_sound, str(store.recovery_report)
        assert len(records(store.log("orders", 0))) == end + 1
        assert store.log("orders", 0).verify() == []


def test_a_left_copy_whose_disk_fails_then_is_offline(
    base: Path, pages: DroppedPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync before the memory is given up may fail as any may: the log dir is offline."""
    leave_a_copy(base, pages, monkeypatch, 9)
    pages.thread, pages.before, pages.fails = "", lambda: None, True
    with pytest.raises(LogStoreError, match="a flush failed"):
        LogStore.open(base / "b", admin_socket=False)
    with LogStore.open(base / "b", admin_socket=False) as store:
        assert records(store.log("orders", 0)) is not None


def test_a_view_gives_up_no_memory(
    base: Path, pages: DroppedPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that only reads syncs nothing and promotes nothing."""
    leave_a_copy(base, pages, monkeypatch, 9)
    monkeypatch.setattr(bulk, "drop_cache", pytest.fail)
    with LogStore.open(base / "b", read_only=True) as store:
        assert records(store.log("orders", 0)) is not None
