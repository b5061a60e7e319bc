"""Interrupt threads that wait for a durable append of others."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from logstore import LogConfig, LogStore
from logstore.disk import files


def test_regression_an_interrupted_waiter_leaves_no_gate_shut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C in a waiting append, the next one that needs a group of its own returns."""
    may_sync, syncs = threading.Event(), threading.Event()
    real = files.fdatasync

    def slow(fd: int) -> None:
        syncs.set()
        may_sync.wait()
        real(fd)

    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0, config=LogConfig(max_message_bytes="64KiB"))
        monkeypatch.setattr(files, "fdatasync", slow)
        first = threading.Thread(target=log.append, args=(b"first",), kwargs={"durable": True})
        first.start()
        syncs.wait()
        handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(KeyboardInterrupt):
                log.append(bytes(40_000), durable=True)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
        may_sync.set()
        first.join()
        last = threading.Thread(target=log.append, args=(bytes(40_000),), kwargs={"durable": True})
        last.start()
        last.join(20)
        assert not last.is_alive()
        assert log.recovery_point == log.log_end_offset == 3
