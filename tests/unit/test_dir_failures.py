"""The failure of a log dir is handled, even if the process lacks threads or memory."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from logstore import LogDirOfflineError, LogStore
from logstore.store.dirs import shutdown
from support.hanging import QUIET


def test_a_dir_that_fails_while_no_thread_can_be_had_is_offline_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers get the disk's error, not the lack of a thread; the dir can be reopened later."""
    dirs = [str(tmp_path / name) for name in ("a", "b")]
    b, real = dirs[1], threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name in ("logstore-failure", "logstore-callback"):
            raise RuntimeError("can't start new thread")
        real(thread)

    told: list[LogDirOfflineError] = []
    with LogStore.open(
        dirs, config=QUIET, admin_socket=False, on_log_dir_failure=told.append
    ) as store:
        log = store.create("orders", 0, log_dir=b)
        log.append(b"first", durable=True)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            store.take_offline(b)
            with pytest.raises(LogDirOfflineError):
                log.append(b"lost")
        store.reopen_dir(b)
        assert [error.path for error in told] == [b]
        assert store.log("orders", 0).append(b"second", durable=True) == 1
        assert store.close() == ()
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        assert len(store.log("orders", 0)) == 2


def test_regression_a_dir_that_fails_while_memory_is_short_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that should release the dir ended for lack of memory, and the lock stayed."""
    dirs = [str(tmp_path / name) for name in ("a", "b")]
    real = shutdown.drop_logs
    refused: list[object] = []

    def drop_logs(replicas: Any, log_dir: Any) -> None:
        if not refused:
            refused.append(log_dir)
            raise MemoryError
        real(replicas, log_dir)

    with LogStore.open(dirs, config=QUIET, admin_socket=False) as store:
        log = store.create("orders", 0, log_dir=dirs[1])
        log.append(b"first", durable=True)
        monkeypatch.setattr(shutdown, "drop_logs", drop_logs)
        store.take_offline(dirs[1])
        assert refused
        store.reopen_dir(dirs[1])
        assert store.log("orders", 0).append(b"second", durable=True) == 1
