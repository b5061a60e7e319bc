"""Failures that others met, played through here: those that no other test of this tree plays."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logstore import Log, LogConfig, LogDirOfflineError, LogStore
from logstore.disk import files
from logstore.disk.states import Event
from mover import MoveState, ReplicaMover
from support.gate import SECONDS_MAX, gated
from support.inside import keepers_of
from support.moving import CONFIG, check_whole, fill, replica_dirs, settle

DIRS = ("a", "b", "c")


def opened(base: Path) -> LogStore:
    return LogStore.open([base / name for name in DIRS], admin_socket=False)


def test_a_move_that_failed_at_its_half_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 64: three times the target has no room at the half; the fourth try leaves one copy."""
    real, copied = files.sendfile, 0

    def sendfile(*arguments: Any) -> int:
        nonlocal copied
        copied += 1
        if copied % 20 == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    with opened(tmp_path) as store:
        log = store.create("orders", 0, log_dir=tmp_path / "a", config=CONFIG)
        fill(log, 60)
        with gated(store) as (mover, _), monkeypatch.context() as patch:
            patch.setattr(files, "sendfile", sendfile)
            move = mover.move("orders", 0, tmp_path / "b")
            for _ in range(3):
                assert move.wait(SECONDS_MAX) is MoveState.FAILED
                assert log.log_dir == str(tmp_path / "a")
                copied = 0
                move.retry()
            assert move.wait(SECONDS_MAX) is MoveState.FAILED
            patch.undo()
            move.retry()
            assert move.wait(SECONDS_MAX) is MoveState.DONE
        settle(store)
        check_whole(log, tmp_path, "b")
    assert replica_dirs(tmp_path) == ["b/orders-0"]


def never_written(log: Log) -> None:
    """Leave a log that has no record."""


def emptied(log: Log) -> None:
    """Leave a log that has no record any more, and starts at 600."""
    fill(log, 60)
    log.delete_records_before(log.log_end_offset)


def truncated(log: Log) -> None:
    """Leave a log that was cut to nothing."""
    fill(log, 60)
    log.truncate_to(0)


def unflushed(log: Log) -> None:
    """Leave a log of one segment, nothing of it flushed."""
    fill(log, 1)


@pytest.mark.parametrize("leave", [never_written, emptied, truncated, unflushed])
def test_a_log_of_next_to_nothing_moves(tmp_path: Path, leave: Any) -> None:
    """Row 68: it arrives with its offsets, is appended to, and opens again."""
    with opened(tmp_path) as store:
        log = store.create("orders", 0, log_dir=tmp_path / "a", config=CONFIG)
        leave(log)
        offsets = log.log_start_offset, log.log_end_offset
        with ReplicaMover(store) as mover:
            assert mover.move("orders", 0, tmp_path / "b").wait(SECONDS_MAX) is MoveState.DONE
        assert (log.log_start_offset, log.log_end_offset) == offsets
        assert log.append(b"%d:goes on" % offsets[1], durable=True) == offsets[1]
        settle(store)
    assert replica_dirs(tmp_path) == ["b/orders-0"]
    with opened(tmp_path) as store:
        log = store.log("orders", 0)
        assert (log.log_start_offset, log.log_end_offset) == (offsets[0], offsets[1] + 1)
        check_whole(log, tmp_path, "b")


@pytest.mark.parametrize("kept", DIRS)
def test_a_disk_alone_has_all_of_its_logs(tmp_path: Path, kept: str) -> None:
    """Row 73: with every other disk wiped, what is on this one opens whole."""
    with opened(tmp_path) as store:
        for number, name in enumerate(DIRS):
            log = store.create("orders", number, log_dir=tmp_path / name, config=CONFIG)
            fill(log, 60)
            log.delete_records_before(100)
            log.truncate_to(500)
            log.flush()
    for name in DIRS:
        if name != kept:
            shutil.rmtree(tmp_path / name)
            (tmp_path / name).mkdir()
    with opened(tmp_path) as store:
        for number, name in enumerate(DIRS):
            if name != kept:
                with pytest.raises(LogDirOfflineError):
                    store.log("orders", number)
                continue
            log = store.log("orders", number)
            assert [record.offset for record in log] == list(range(100, 500))
            assert log.verify() == []
            assert log.append(b"goes on", durable=True) == 500


def cordon(store: LogStore, path: str) -> None:
    store.cordon(path)


def fill_disk(store: LogStore, path: str) -> None:
    store.host.replicas.dir_of(path).change(Event.FULL, "not a byte of it is free")


def hang(store: LogStore, path: str) -> None:
    store.host.replicas.dir_of(path).change(Event.STUCK, "it hangs")


@pytest.mark.parametrize(
    ("bring", "state"), [(cordon, "cordoned"), (fill_disk, "read-only"), (hang, "suspect")]
)
def test_figures_are_live_in_every_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bring: Any, state: str
) -> None:
    """Row 77: a log dir that takes no records tells its room and its replicas all the same."""
    free = 3  # of 1,000 blocks: too little for a full disk to return

    def statvfs(path: str) -> SimpleNamespace:
        return SimpleNamespace(f_blocks=1000, f_frsize=4096, f_bavail=free, f_files=0, f_favail=0)

    monkeypatch.setattr(files, "statvfs", statvfs)
    with LogStore.open(tmp_path, admin_socket=False) as store:
        log = store.create("orders", 0, config=LogConfig(segment_bytes=1024))
        log.extend([b"x" * 100] * 20)
        bring(store, str(tmp_path))
        for free in (3, 5, 2):
            keepers_of(store)[str(tmp_path)].run_one("usage")
            (row,) = store.metrics().log_dirs
            (described,) = store.describe_dirs().log_dirs
            assert row.state == described.state == state
            assert row.usable_bytes == described.usable_bytes == free * 4096
            assert row.total_bytes == described.total_bytes == 1000 * 4096
            assert (row.partition_count, row.size_bytes) == (1, log.size_bytes)
            assert described.partitions[0].size == log.size_bytes
