"""A flush keeps its guarantees after interrupts, full disks, truncations and reopenings."""

from __future__ import annotations

import errno
import glob
import os
from pathlib import Path
from typing import Any

import pytest

from logstore import LogConfig, LogDirOfflineError, LogStore
from logstore.disk import files
from logstore.errors import LogDirError
from logstore.log.write import flush
from logstore.log.write.flush import hidden_failure
from support.inside import abandon


def test_regression_appends_after_a_truncation_are_counted_from_its_end(store: LogStore) -> None:
    """`flush_messages` was counted up to the old end, and nothing was flushed before that."""
    log = store.create("orders", 0, config=LogConfig(flush_messages=5))
    log.extend([b"x"] * 100)
    assert log.recovery_point == 100
    log.truncate_to(10)
    for offset in range(10, 15):
        assert log.append(b"y") == offset
    assert log.recovery_point == 15


def test_unflushed_records_below_a_truncation_count(store: LogStore) -> None:
    """Four records wait, three of them are dropped: four more make five."""
    log = store.create("orders", 0, config=LogConfig(flush_messages=5))
    log.extend([b"x"] * 4)
    log.truncate_to(1)
    for _ in range(3):
        log.append(b"y")
        assert log.recovery_point == 0
    log.append(b"y")
    assert log.recovery_point == 5


def test_regression_a_log_closed_after_its_recovery_is_not_scanned_again(tmp_path: Path) -> None:
    """The recovery point was at the log end, so the close treated it as flushed."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=LogConfig(segment_bytes=2048))
        for _ in range(100):
            log.append(b"x" * 50)
    for path in (tmp_path / "orders-0").glob("*.index"):
        path.unlink()
    with LogStore.open(tmp_path) as store:
        assert store.log("orders", 0).recovery.scanned_bytes > 0
        assert store.log("orders", 0).recovery_point == 100
    with LogStore.open(tmp_path) as store:
        assert store.log("orders", 0).recovery.scanned_bytes == 0
        assert len(list(store.log("orders", 0))) == 100


def test_regression_a_full_disk_at_the_epochs_fails_no_durable_append(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record was on the disk, but the error said that nothing was written."""
    log = store.create("orders", 0)
    real = files.write_new

    def full(path: str, data: bytes, *rest: int) -> None:
        if "leader-epoch" in path:
            raise OSError(errno.ENOSPC, "full", path)
        real(path, data, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_new", full)
        assert log.append(b"first", durable=True) == 0
        assert log.recovery_point == 1
    assert not (Path(log.directory) / "leader-epoch-checkpoint").exists()
    log.append(b"second", durable=True)
    assert (Path(log.directory) / "leader-epoch-checkpoint").exists()


@pytest.mark.parametrize("way", ["append", "extend", "flush_messages"])
def test_a_flush_that_can_be_tried_again_makes_no_append_retriable(
    store: LogStore, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """No descriptor is free after the write: the record exists, so an append would double it."""
    config = LogConfig(flush_messages=1) if way == "flush_messages" else LogConfig()
    log = store.create("orders", 0, config=config)
    log._state.names_changed = True

    def none_left(path: str) -> None:
        raise OSError(errno.EMFILE, "too many open files", path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "sync_dir", none_left)
        with pytest.raises(LogDirError, match="not flushed") as caught:
            if way == "extend":
                log.extend([b"x"], durable=True)
            else:
                log.append(b"x", durable=way == "append")
    assert not caught.value.retriable
    assert len(log) == 1
    assert log.flush() == 1


class Fails:
    """Fails a call, and is interrupted before any code handles the error."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def __call__(self, *_: Any) -> None:
        try:
            raise OSError(errno.EIO, "the disk is gone")
        except OSError:
            self.interrupt(self.depth)

    def interrupt(self, depth: int) -> None:
        if not depth:
            raise KeyboardInterrupt
        try:
            raise ValueError("something handled meanwhile")
        except ValueError:
            self.interrupt(depth - 1)


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_regression_a_sync_that_failed_under_an_interrupt_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int, call: str
) -> None:
    """This holds wherever the interrupt comes while the error is handled."""
    store = LogStore.open(tmp_path)
    log = store.create("orders", 0)
    log.append(b"x")
    log._state.names_changed = True
    with monkeypatch.context() as patch:
        patch.setattr(files, call, Fails(depth))
        with pytest.raises(KeyboardInterrupt):
            log.flush()
    with pytest.raises(LogDirOfflineError):
        log.flush()
    abandon(store)


def test_regression_a_truncation_whose_sync_failed_under_an_interrupt_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The truncation looked at its files again, and the next sync was believed."""
    store = LogStore.open(tmp_path)
    log = store.create("orders", 0)
    log.extend([b"x"] * 10)
    with monkeypatch.context() as patch:
        patch.setattr(files, "fsync", Fails(0))
        with pytest.raises(KeyboardInterrupt):
            log.truncate_to(5)
    with pytest.raises(LogDirOfflineError):
        log.flush()
    abandon(store)


def test_an_error_that_the_caller_handles_is_not_the_disks(store: LogStore) -> None:
    """If a flush is interrupted inside a caller's `except OSError`, no disk goes offline."""
    log = store.create("orders", 0)
    log.append(b"x")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "fdatasync", interrupted)
        try:
            raise OSError(errno.ENOENT, "a file of the caller's")
        except OSError:
            with pytest.raises(KeyboardInterrupt):
                log.flush()
    assert log.flush() == 1


def test_the_error_under_an_interrupt_is_found_at_any_depth() -> None:
    """Errors that the caller handled before do not count."""
    found: list[BaseException] = []
    try:
        try:
            raise OSError(errno.EIO, "outer")
        except OSError as outer:
            found.append(outer)
            Fails(3)()
    except KeyboardInterrupt as error:
        found.append(error)
    outer_error, interrupt = found
    failure = hidden_failure(interrupt, outer_error)
    assert failure is not None and failure.strerror == "the disk is gone"
    assert hidden_failure(outer_error, None) is None


@pytest.mark.parametrize("size", [10, 900])
def test_regression_a_flush_that_is_interrupted_twice_is_made_up_for(
    store: LogStore, size: int
) -> None:
    """The second interrupt came before the flush recorded what was still to be synced."""
    log = store.create("orders", 0, config=LogConfig(segment_bytes=1024))
    log.extend([b"x" * size])
    log.extend([b"y" * size])

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "fdatasync", interrupted)
        patch.setattr(flush, "hidden_failure", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.flush()
    assert log.recovery_point == 0
    synced: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "fdatasync", synced.append)
        assert log.flush() == 2
    assert len(synced) == (1 if size == 10 else 2)


def test_what_is_appended_during_a_sync_is_synced_by_the_next_flush(store: LogStore) -> None:
    """This holds in the same segment, and in a segment that is begun meanwhile."""
    log = store.create("orders", 0, config=LogConfig(segment_bytes=1024))
    log.append(b"x")
    real, synced = files.fdatasync, dict[int, int]()

    def sync(fd: int) -> None:
        facts = os.fstat(fd)
        synced[facts.st_ino] = facts.st_size
        real(fd)
        if log.log_end_offset < 6:
            log.append(b"y" * (900 if log.log_end_offset % 2 else 10))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "fdatasync", sync)
        while log.flush() < 6:
            pass
        files_now = [Path(name).stat() for name in glob.glob(f"{store.log_dirs[0]}/orders-0/*.log")]
        assert synced == {facts.st_ino: facts.st_size for facts in files_now}
        synced.clear()
        assert log.flush() == 6
    assert synced == {}
