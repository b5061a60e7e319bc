"""The keeper of a log dir does its duties on time, and continues after errors."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from logstore.config import LogConfig
from logstore.disk import files
from logstore.disk.documents.checkpoint import RECOVERY_POINTS
from logstore.errors import LogDirOfflineError
from logstore.names import TopicPartition
from logstore.store.store import LogStore
from logstore.store.upkeep.keeper import DirKeeper
from support.inside import keepers_of


class HandClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        """Return the time that was set."""
        return self.ms


@pytest.fixture
def clock() -> HandClock:
    """Make a clock."""
    return HandClock()


def keeper_of(store: LogStore) -> DirKeeper:
    """Give the keeper of the only dir."""
    (keeper,) = keepers_of(store).values()
    return keeper


def test_flush_ms_is_kept(tmp_path: Path, clock: HandClock) -> None:
    """Records are durable after their time has passed, not before."""
    with LogStore.open(tmp_path, clock=clock) as store:
        log = store.create("orders", 0, config=LogConfig(flush_ms=1000))
        log.append(b"x")
        keeper_of(store).flush_due()
        assert log.recovery_point == 0
        clock.ms += 1000
        keeper_of(store).flush_due()
        assert log.recovery_point == 1


def test_retention_is_kept(tmp_path: Path, clock: HandClock) -> None:
    """The active segment is rolled when it is old, and is dropped by retention."""
    config = LogConfig(segment_ms=10_000, retention_ms=60_000)
    with LogStore.open(tmp_path, clock=clock) as store:
        log = store.create("orders", 0, config=config)
        log.extend([b"x"] * 10)
        clock.ms += 70_000
        keeper_of(store).retain()
        log.append(b"y")
        keeper_of(store).retain()
        assert log.log_start_offset == 10
        assert [record.value for record in log] == [b"y"]


def test_checkpoints_say_what_is_durable(tmp_path: Path) -> None:
    """An append alone does not move the recovery point on disk; a flush does (R5)."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        log.append(b"x")
        keeper = keeper_of(store)
        key = TopicPartition("orders", 0)
        keeper.write_offsets()
        assert keeper.log_dir.checkpoints.recovery_point(key) == 0
        log.flush()
        keeper.write_offsets()
        assert keeper.log_dir.checkpoints.recovery_point(key) == 1
        before = (tmp_path / RECOVERY_POINTS).stat().st_ino
        keeper.write_offsets()
        assert (tmp_path / RECOVERY_POINTS).stat().st_ino == before


def test_what_is_due_is_done_and_due_again_later(tmp_path: Path) -> None:
    """Each duty has its own interval."""
    with LogStore.open(tmp_path) as store:
        keeper = keeper_of(store)
        store.create("orders", 0).extend([b"x"])
        store.flush()
        later = max(keeper._due.values()) + 1
        keeper.run_due(later)
        assert min(keeper._due.values()) > later
        key = TopicPartition("orders", 0)
        assert keeper.log_dir.checkpoints.recovery_point(key) == 1


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ValueError("another")])
def test_a_keeper_outlives_every_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The failure of one log is logged; other logs are served, and the thread continues."""
    with LogStore.open(tmp_path) as store:
        logs = [store.create("orders", n, config=LogConfig(flush_ms=1)) for n in range(3)]
        keeper = keeper_of(store)
        done: list[int] = []

        def flush_if_due(log: object, now_ms: int) -> bool:
            if log is logs[0]:
                raise error
            done.append(1)
            return False

        monkeypatch.setattr(type(logs[0]), "flush_if_due", flush_if_due)
        keeper.flush_due()
        assert done == [1, 1]
        store.delete("orders", 2)
        assert keeper.wait_idle(10)
        assert not [name for name in os.listdir(tmp_path) if "delete" in name]


def test_a_disk_error_in_the_background_takes_the_dir_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is not ignored: the next caller gets it."""
    with LogStore.open(tmp_path) as store:
        log = store.create("orders", 0)
        log.append(b"x")

        def fail(fd: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patch:
            patch.setattr(files, "fsync", fail)
            keeper_of(store).run_due(max(keeper_of(store)._due.values()) + 1)
        with pytest.raises(LogDirOfflineError):
            log.append(b"y")


def test_a_full_disk_in_the_background_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkpoint is written, nothing goes offline, and the next checkpoint succeeds."""
    with LogStore.open(tmp_path) as store:
        store.create("orders", 0).append(b"x")
        store.flush()
        keeper = keeper_of(store)

        def fail(fd: int, buffers: object, position: int) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(files, "pwritev", fail)
            keeper.run_one("checkpoint")
        assert not keeper.log_dir.is_offline
        keeper.run_one("checkpoint")
        assert keeper.log_dir.checkpoints.recovery_point(TopicPartition("orders", 0)) == 1


def test_regression_what_could_not_be_removed_is_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If descriptors are missing for a moment, the removal of a replica is only postponed."""
    scandir, refused = files.scandir, list[str]()

    def refuse(path: str) -> object:
        if path.endswith(".delete") and len(refused) < 2:
            refused.append(path)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return scandir(path)

    with LogStore.open(tmp_path) as store:
        store.create("orders", 0).append(b"x", durable=True)
        monkeypatch.setattr(files, "scandir", refuse)
        store.delete("orders", 0)
        keeper = keeper_of(store)
        assert keeper.wait_idle(60)
        for count in (1, 2):
            assert len(refused) == count and os.path.isdir(refused[0])
            keeper.run_one("checkpoint")
        assert not os.path.exists(refused[0]) and not store.host.replicas.copies.doomed
