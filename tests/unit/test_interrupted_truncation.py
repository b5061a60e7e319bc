"""After one or two Ctrl-C in a truncation, no disk is blamed and no reader waits forever."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from logstore import Log, LogConfig, LogStore, LogStoreError, ReplicaOfflineError
from logstore.disk import files
from logstore.log.recovery import open_log
from logstore.log.removal import truncation
from support.hanging import QUIET, Caller
from support.interrupts import WRITING, InterruptAt, in_own_thread
from support.places import fast_directory

SMALL = LogConfig(segment_bytes=1024)


def filled(store: LogStore, number: int) -> Log:
    log = store.create("orders", number, config=SMALL)
    for _ in range(12):
        log.append(bytes(200))
    return log


def test_regression_a_missing_file_is_no_failed_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Ctrl-C came while a missing index file was ignored, the log dir went offline."""
    real = files.unlink

    def unlink(path: str) -> None:
        try:
            real(path)
        except FileNotFoundError:
            raise KeyboardInterrupt from None  # the context stays, as the interpreter leaves it

    with LogStore.open(tmp_path, config=QUIET) as store:
        log = filled(store, 0)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(files, "unlink", unlink)
            log.truncate_to(5)
        assert log.append(b"next", durable=True) == len(log) - 1
        assert not [one for one in store.describe_dirs().log_dirs if one.error]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_sync_that_failed_is_seen_behind_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """This also holds before the error is a SyncError, and for any errno."""

    def fails(fd: int) -> None:
        raise OSError(code, os.strerror(code))

    def interrupted(error: OSError) -> files.SyncError:
        patch.undo()
        raise KeyboardInterrupt

    store = LogStore.open(tmp_path, config=QUIET)
    log = filled(store, 0)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(files, "fdatasync", fails)
        patch.setattr(files.SyncError, "of", interrupted)
        log.flush()
    with pytest.raises(LogStoreError, match="a flush failed"):
        log.append(b"another")
    store.close()


def test_regression_readers_end_after_two_interrupts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second interrupt came while the log was opened again: readers waited forever."""

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    def rename(source: str, target: str) -> None:
        if target.endswith(".log"):
            raise KeyboardInterrupt
        real(source, target)

    real = files.rename
    store = LogStore.open(tmp_path, config=QUIET)
    log = filled(store, 0)
    log.flush()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(files, "rename", rename)
        patch.setattr(open_log, "reopen", interrupted)
        log.truncate_to(1)
    reads: list[Callable[[], Any]] = [lambda: log[8], lambda: log.read_raw(8), lambda: log[0]]
    for read in reads:
        assert isinstance(Caller(read).outcome(), ReplicaOfflineError)
    with pytest.raises(ReplicaOfflineError):
        store.close()
    with LogStore.open(tmp_path, config=QUIET) as store:
        log = store["orders", 0]
        assert not log.recovery.problems
        assert len(list(log)) == len(log) >= 1


def test_a_truncation_is_whole_at_every_line() -> None:
    """The truncation runs in its own thread, as usual, and in the interrupted thread."""
    with fast_directory() as tmp_path, LogStore.open(tmp_path, config=QUIET) as store:
        numbers, threads = itertools.count(), threading.active_count()
        for place in (contextlib.nullcontext, in_own_thread):
            for line in itertools.count(1):
                log = filled(store, next(numbers))
                with (
                    suppress(KeyboardInterrupt),
                    place(),
                    InterruptAt(line, truncation, *WRITING, files, open_log) as it,
                ):
                    log.truncate_to(5)
                assert 5 <= len(log) <= 12
                assert [one.offset for one in log] == list(range(len(log)))
                assert log.append(b"next", durable=True) == len(log) - 1
                if not it.was_hit:
                    break
            assert line > (1 if place is contextlib.nullcontext else 100)
        assert not [one for one in store.describe_dirs().log_dirs if one.error]
        assert threading.active_count() < threads + 20
