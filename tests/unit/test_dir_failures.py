"""A log dir that fails is seen to whatever its process is short of."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from logstore import LogDirOfflineError, LogStore
from support.hanging import QUIET


def test_a_dir_that_fails_while_no_thread_can_be_had_is_offline_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its users get the disk's error, not the thread's; it is let go of before it is reopened."""
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
