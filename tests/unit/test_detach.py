"""A log that was detached from a dead disk keeps no file open, whatever was running."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from logstore import Log, LogConfig, LogStore, LogStoreError
from logstore.disk import files
from logstore.log import relocation
from logstore.log.segments.segment import Segment
from mover import MoveState, ReplicaMover
from support.faulty import fd_path, open_below
from support.gate import SECONDS_MAX
from support.inside import wait_for_failures


def read_all(log: Log) -> None:
    list(log)


def append_one(log: Log) -> None:
    log.append(b"one more")


def append_much(log: Log) -> None:
    for _ in range(10):
        log.append(b"v" * 8000)


@pytest.mark.parametrize(
    ("call", "opens"),
    [
        (read_all, files.READ),
        (append_one, files.READ_WRITE),
        (append_much, files.READ_WRITE),
        (append_much, files.CREATE),
    ],
)
def test_regression_a_file_that_is_opened_as_its_log_is_detached_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[Log], None], opens: int
) -> None:
    """An open file keeps a mount point busy, and keeps the space of deleted files in use."""
    with LogStore.open(tmp_path / "disk", admin_socket=False) as store:
        log = store.create("orders", 0, config=LogConfig(segment_bytes=16 << 10))
        log.extend([b"a", b"b"], durable=True)
        for segment in log._state.segments:
            segment.forget(log._state.environment)
        detached: list[str] = []

        def opening(name: str) -> Callable[..., int]:
            return partial(open_and_detach, getattr(files, name))

        def open_and_detach(real: Callable[..., int], path: str, flags: int, *rest: int) -> int:
            fd = real(path, flags, *rest)
            if path.endswith(".log") and flags == opens and not detached:
                detached.append(path)
                log_dir = log._state.log_dir
                log.detach(log_dir.take_offline("as a test has it"), of=log_dir)
            return fd

        for name in ("open_file", "open_regular"):
            monkeypatch.setattr(files, name, opening(name))
        with contextlib.suppress(LogStoreError):
            call(log)
        monkeypatch.undo()
        wait_for_failures(store, None)
        gc.collect()
        assert detached and open_below(log.directory) == []


def test_regression_what_retention_left_out_is_closed_though_its_files_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk fails at the first file, the other files are closed, too."""
    with LogStore.open(tmp_path / "disk", admin_socket=False) as store:
        log = store.create("orders", 0, config=LogConfig(segment_bytes=16 << 10))
        append_much(log)
        log.flush()
        read_all(log)

        def unlink(path: str) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

        monkeypatch.setattr(files, "unlink", unlink)
        with pytest.raises(LogStoreError):
            log.delete_records_before(9)
        monkeypatch.undo()
        wait_for_failures(store, None)
        assert open_below(log.directory) == []


def test_regression_a_log_that_has_moved_meanwhile_is_not_let_go_of_in_its_new_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old disk fails when the log already uses the new one: new records are synced there."""
    leave, point_to = Segment.leave, relocation.point_to
    begun, appended, threads = threading.Event(), threading.Event(), list[threading.Thread]()

    def leave_late(segment: Segment, environment: Any) -> None:
        begun.set()
        assert appended.wait(SECONDS_MAX)
        leave(segment, environment)

    def detach_first(log: Log, *args: Any) -> None:
        failure, source = log._state.log_dir.offline_error(), log._state.log_dir
        threads.append(threading.Thread(target=log.detach, args=(failure, source), daemon=True))
        threads[0].start()
        assert begun.wait(SECONDS_MAX)
        point_to(log, *args)

    def sync(fd: int) -> None:
        synced.append(fd_path(fd))
        fdatasync(fd)

    with LogStore.open([tmp_path / "a", tmp_path / "b"], admin_socket=False) as store:
        log = store.create("orders", 0, log_dir=tmp_path / "a")
        log.extend([b"a", b"b"], durable=True)
        monkeypatch.setattr(relocation, "point_to", detach_first)
        monkeypatch.setattr(Segment, "leave", leave_late)
        with ReplicaMover(store) as mover:
            assert mover.move("orders", 0, tmp_path / "b").wait(SECONDS_MAX) is MoveState.DONE
        log.append(b"c")
        appended.set()
        threads[0].join(SECONDS_MAX)
        synced: list[str] = []
        fdatasync = files.fdatasync
        monkeypatch.setattr(files, "fdatasync", sync)
        log.flush()
        assert synced == [log._state.segments[-1].log_path]
        assert not any(segment.is_left for segment in log._state.segments)
        assert [record.value for record in log] == [b"a", b"b", b"c"]
