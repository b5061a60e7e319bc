"""Test the engine when this process runs short of a resource; random programs found these."""

from __future__ import annotations

import errno
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from logstore import (
    LogClosedError,
    LogConfig,
    LogDirError,
    LogDirOfflineError,
    LogStore,
    LogStoreError,
    ReplicaOfflineError,
)
from logstore.disk import calls
from logstore.disk.log_dir import LogDir
from logstore.disk.threads import Thread
from logstore.disk.uninterrupted import Work
from logstore.format import compression
from logstore.format.kafka import codecs as kafka_codecs
from logstore.log.recovery import open_log as recovery
from logstore.log.state import LogState
from logstore.log.write import batch_group
from logstore.store.admin.client import find_owner
from logstore.store.dirs import old_copies, parallel
from support.hanging import QUIET
from support.shortage import no_descriptors, no_threads, small_files


class NoMemory(Exception):
    """The error that a codec's library raises if it cannot allocate memory."""


class Poor:
    """A codec's library in a process without memory."""

    def __getattr__(self, name: str) -> Any:
        def fail(*arguments: Any, **options: Any) -> Any:
            raise NoMemory("Unable to decompress data: Allocation error : not enough memory")

        return fail


def test_regression_no_memory_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A codec without memory reported damaged bytes, and a repair would have removed them."""
    raw = dict.fromkeys(("lz4", "zstd"), b"")
    for name in raw:
        raw[name] = compression.compress(compression.CODEC_IDS[name], bytes(1000))
    monkeypatch.setattr(compression, "decompressor", lambda *_: Poor())
    for name, data in raw.items():
        with pytest.raises(MemoryError):
            compression.decompress(compression.CODEC_IDS[name], data, 1000)
        with pytest.raises(MemoryError):
            kafka_codecs.decompress(compression.CODEC_IDS[name], data)
    monkeypatch.setattr(compression, "_library", lambda _: Poor())
    with pytest.raises(MemoryError):
        compression.compress(4, bytes(1000))


def test_damage_stays_damage() -> None:
    """Bytes that no codec made still cause a ValueError."""
    for codec_id in (3, 4):
        with pytest.raises(ValueError, match="does not decompress"):
            compression.decompress(codec_id, b"\1\2\3\4" * 9, 100)


def test_regression_a_thread_that_never_begins_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread ended for lack of memory before its first step, and `start` waited forever."""

    def begins_never(self: threading.Thread) -> None:
        raise MemoryError

    monkeypatch.setattr(threading.Thread, "_bootstrap", begins_never)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    before = threading.enumerate()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        Thread(target=print, daemon=True).start()
    assert threading.enumerate() == before


def test_a_thread_starts_and_is_let_go_of() -> None:
    """The thread runs and ends as usual, and no object refers to it afterwards."""
    began = threading.Event()
    thread = Thread(target=began.set, name="x")
    thread.start()
    thread.join()
    assert began.is_set() and not thread.is_alive()
    gone = weakref.ref(thread)
    del thread
    assert gone() is None


def test_regression_work_whose_thread_died_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread may also end between its start and its work."""
    monkeypatch.setattr(Work, "_run", lambda self: None)
    work = Work(lambda _: 1)
    work.start()
    work.wait()
    with pytest.raises(MemoryError):
        work.outcome()


def test_regression_a_thread_of_many_that_died_hangs_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The item of the thread gets its own error; before, its log dir was said to hang."""
    real = threading.Thread.run

    def run(thread: threading.Thread) -> None:
        if thread.name != "logstore-1":
            real(thread)

    monkeypatch.setattr(threading.Thread, "run", run)
    first, second = parallel.for_each(["a", "b"], len)
    assert first.is_finished and first.error is None
    assert second.is_finished and isinstance(second.error, MemoryError)


def test_regression_a_log_dir_that_no_thread_could_be_had_for(tmp_path: Path) -> None:
    """The dir stayed locked after the close, and its id was in the roster: no create worked.

    Whatever number of threads there are before there is none.
    """
    for first in range(1, 12):
        base = tmp_path / str(first)
        store = LogStore.open(base / "a", config=QUIET)
        with no_threads(first):
            try:
                store.add_dir(base / "b")
            except LogStoreError as error:
                assert error.retriable, error
                is_added = False
            else:
                is_added = True
            assert store.close() == ()
        with LogStore.open([base / "a", base / "b"][: 1 + is_added], config=QUIET) as store:
            store.create("orders", 0)
            assert is_added or store.add_dir(base / "b")


def test_regression_who_asks_for_the_owner_is_told_of_threads(tmp_path: Path) -> None:
    """The error was a bare RuntimeError."""
    with (
        LogStore.open(tmp_path, config=QUIET),
        no_threads(),
        pytest.raises(LogDirError, match="cannot start a thread"),
    ):
        find_owner([tmp_path])


@pytest.mark.parametrize("is_spare_gone", [False, True])
def test_regression_a_creation_without_descriptors_leaves_nothing(
    tmp_path: Path, is_spare_gone: bool
) -> None:
    """The directory stayed, prevented the next attempt, and was a partition after a start."""
    for left in range(6):
        base = tmp_path / str(left)
        with LogStore.open(base, config=QUIET) as store:
            if is_spare_gone:
                for one in store.host.replicas.log_dirs:
                    one.spare.empty()
            with no_descriptors(left):
                try:
                    store.create("orders", 0)
                except LogStoreError:
                    is_there = False
                else:
                    is_there = True
        with LogStore.open(base, config=QUIET) as store:
            assert (("orders", 0) in store) is is_there
            assert is_there or store.create("orders", 0)


def test_regression_a_creation_without_memory_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a MemoryError, nothing was removed."""

    def fail(*_: object) -> None:
        raise MemoryError

    with LogStore.open(tmp_path, config=QUIET) as store:
        with monkeypatch.context() as patch:
            patch.setattr(type(store.host.replicas), "add", fail)
            with pytest.raises(MemoryError):
                store.create("orders", 0)
        store.create("orders", 0)


def test_regression_a_store_that_was_opened_on_a_full_disk_closes_in_order(tmp_path: Path) -> None:
    """The lock file had no room for the owner, so the next start found no clean close."""
    LogStore.open(tmp_path, config=QUIET).close()
    with small_files(20):
        store = LogStore.open(tmp_path, config=QUIET)
    assert store.recovery_report.warnings
    assert store.close() == ()
    with LogStore.open(tmp_path, config=QUIET) as store:
        assert store.recovery_report.was_clean


def test_regression_a_group_is_shown_whole_once_there_is_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second MemoryError in a row left a part of a group in the log."""
    monkeypatch.setattr(batch_group, "SHORTAGE_SECONDS", 0.0)
    store = LogStore.open(tmp_path, config=QUIET)
    source = store.create("a", 0)
    log = store.create("b", 0, config=LogConfig(segment_bytes=1024))
    for _ in range(9):
        source.append(bytes(300))
    raw = source.read_raw(0, 1 << 20)
    log.append(b"first")
    real, left = batch_group._begin, [5]

    def begin(*arguments: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise MemoryError
        real(*arguments)

    monkeypatch.setattr(batch_group, "_begin", begin)
    assert log.append_encoded(raw) == range(1, 10)
    left[0] = 1000
    with pytest.raises(MemoryError):
        log.append_encoded(raw)
    with pytest.raises(ReplicaOfflineError, match="open the store again"):
        list(log)
    with pytest.raises(ReplicaOfflineError):
        store.close()
    with LogStore.open(tmp_path, config=QUIET) as store:
        assert len(list(store["b", 0])) == 10 and not store["b", 0].verify()


def test_regression_an_import_without_descriptors_is_an_error_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A codec's library is imported at its first use, which opens files."""
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    with monkeypatch.context() as patch:
        patch.setattr("builtins.__import__", _no_import)
        with pytest.raises(LogStoreError) as caught:
            compression.compress(4, b"x")
    assert "cannot be loaded" in str(caught.value)
    assert caught.value.retriable


def _no_import(name: str, *_: object) -> Any:
    raise OSError(errno.EMFILE, "Too many open files", name)


def test_regression_a_log_that_opened_late_leaves_an_orderly_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log dir was not marked as closed cleanly, although the close reported success."""
    real, shortages = recovery.open_log, [1]

    def open_log(log_dir: LogDir, *rest: Any) -> Any:
        if shortages:
            shortages.pop()
            raise log_dir.failed(OSError(errno.EMFILE, "Too many open files"))
        return real(log_dir, *rest)

    with LogStore.open(tmp_path, config=QUIET) as store:
        store.create("orders", 0).append(b"x")
    monkeypatch.setattr("logstore.store.start.loader.open_log", open_log)
    with LogStore.open(tmp_path, config=QUIET) as store:
        assert list(store.host.replicas.offline) == [("orders", 0)]
        assert store["orders", 0].append(b"y") == 1
        assert store.close() == ()
    with LogStore.open(tmp_path, config=QUIET) as store:
        assert store.recovery_report.was_clean


def test_regression_a_close_without_memory_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each further close raised the MemoryError of the first close again."""
    store = LogStore.open([tmp_path / "a", tmp_path / "b"], config=QUIET)
    store.create("orders", 0, log_dir=tmp_path / "a").append(b"x")
    real = old_copies.checkpoint

    def checkpoint(replicas: Any, log_dir: LogDir, *rest: Any, **options: Any) -> None:
        if log_dir.path.endswith("a"):
            raise MemoryError
        real(replicas, log_dir, *rest, **options)

    monkeypatch.setattr(old_copies, "checkpoint", checkpoint)
    with pytest.raises(MemoryError):
        store.close()
    assert store.close() == (str(tmp_path / "a"),)
    monkeypatch.undo()
    with LogStore.open([tmp_path / "a", tmp_path / "b"], config=QUIET) as store:
        assert [record.value for record in store["orders", 0]] == [b"x"]


def _without_memory(monkeypatch: pytest.MonkeyPatch, thing: object, name: str) -> None:
    """Let a function raise MemoryError."""

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(thing, name, fail)


@pytest.mark.parametrize("is_detached", [True, False])
def test_regression_no_log_appends_after_a_close_without_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_detached: bool
) -> None:
    """The lock was free, and the append overwrote a durable record of the next owner.

    A thread that waits for records of the log ends, too, as soon as there is memory.
    """
    with LogStore.open(tmp_path, config=QUIET) as store:
        store.create("orders", 0).append(b"x")
    store = LogStore.open(tmp_path, config=QUIET)
    log = store["orders", 0]
    with monkeypatch.context() as patch:
        _without_memory(patch, old_copies, "checkpoint")
        if not is_detached:
            _without_memory(patch, LogState, "detach")
        with pytest.raises(MemoryError):
            store.close()
        with pytest.raises(LogClosedError if is_detached else LogDirOfflineError):
            log.append(b"late")
    assert store.close() == (str(tmp_path),)
    with LogStore.open(tmp_path, config=QUIET) as later:
        assert later["orders", 0].append(b"y", durable=True) == 1
        for durable in (True, False):
            with pytest.raises((LogClosedError, LogDirOfflineError)):
                log.append(b"late", durable=durable)
        with pytest.raises((LogClosedError, LogDirOfflineError)):
            log.wait_for(9, 60)
        assert [record.value for record in later["orders", 0]] == [b"x", b"y"]


def test_regression_a_close_whose_thread_died_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log dir stayed locked until the process ended, and nothing was flushed."""
    store = LogStore.open([tmp_path / "a", tmp_path / "b"], config=QUIET)
    store.create("orders", 0, log_dir=tmp_path / "a").append(b"x")
    real = threading.Thread.run

    def run(thread: threading.Thread) -> None:
        if thread.name != "logstore-close-0":
            real(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "run", run)
        with pytest.raises(MemoryError):
            store.close()
    assert store.close() == ()
    with LogStore.open([tmp_path / "a", tmp_path / "b"], config=QUIET) as store:
        assert store.recovery_report.was_clean


def test_regression_a_wait_without_memory_waits_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller returned, and a second close worked while the first one's threads did."""
    real, shortages, ended = calls.wait_awake, [1, 2, 3], []

    def wait_awake(*arguments: Any) -> Any:
        if shortages:
            shortages.pop()
            raise MemoryError
        return real(*arguments)

    def work(item: int) -> None:
        while shortages:
            threading.Event().wait(0.001)
        ended.append(item)

    monkeypatch.setattr(parallel, "wait_awake", wait_awake)
    outcomes = parallel.for_each([1, 2], work, is_given_up=lambda _: False)
    assert sorted(ended) == [1, 2] and all(one.is_finished for one in outcomes)
