"""A store is closed cleanly, whatever one of its disks does."""

from __future__ import annotations

import errno
import os
import signal
import threading
from pathlib import Path

import pytest

from logstore.disk import files
from logstore.errors import LogDirOfflineError, UnknownPartitionError
from logstore.log.log import Log
from logstore.store.store import LogStore
from support.bad_disk import failing, fill


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    """Return three log dirs that do not exist yet."""
    return [str(tmp_path / f"disk{number}") for number in range(3)]


def test_close_skips_a_disk_that_hangs(dirs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The other dirs are closed; the hanging one is reported, and recovers at the next start."""
    fill(dirs)
    release = threading.Event()
    real = files.fdatasync

    def hang(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(dirs[1]):
            release.wait(30)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    store = LogStore.open(dirs)
    for number in range(3):
        store["orders", number].append(b"more")
    with monkeypatch.context() as patch:
        patch.setattr(files, "fdatasync", hang)
        assert store.close(timeout=1.0) == (dirs[1],)
        for path in (dirs[0], dirs[2]):
            assert Path(path, ".clean-shutdown").exists()
        assert not Path(dirs[1], ".clean-shutdown").exists()
        release.set()
        for thread in threading.enumerate():
            if thread.name.startswith("logstore-close"):
                thread.join(10)
    with LogStore.open(dirs) as store:
        assert [len(store["orders", number]) for number in range(3)] == [11, 11, 11]


def test_a_failed_flush_at_close_raises_after_the_others_are_closed(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failed dir has no clean marker; an earlier error is not hidden by the failure."""
    fill(dirs)
    store = LogStore.open(dirs)
    for number in range(3):
        store["orders", number].append(b"more")
    with monkeypatch.context() as patch:
        patch.setattr(files, "fdatasync", failing("fdatasync", dirs[1], errno.EIO))
        with pytest.raises(LogDirOfflineError):
            store.close()
    present = [Path(path, ".clean-shutdown").exists() for path in dirs]
    assert present == [True, False, True]

    def fail_twice() -> None:
        with LogStore.open(dirs) as store:
            store["orders", 1].append(b"more")
            monkeypatch.setattr(files, "fdatasync", failing("fdatasync", dirs[1], errno.EIO))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail_twice()


def test_regression_a_partition_is_deleted_during_a_flush_or_a_close(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call failed with UnknownPartitionError, and the log dirs were not marked as clean."""
    store, flush = LogStore.open(dirs), Log.flush
    for number in range(6):
        store.create("orders", number).append(b"x")

    def delete_then_flush(log: Log) -> int:
        """Delete an uneven partition just before its flush, as another thread may do."""
        if log.partition == 1:
            store.delete("orders", 1)
        elif log.partition % 2:
            raise UnknownPartitionError(topic=log.topic, partition=log.partition)
        return flush(log)

    monkeypatch.setattr(Log, "flush", delete_then_flush)
    assert store.flush() == ()
    assert store.close() == ()
    assert all(Path(path, ".clean-shutdown").exists() for path in dirs)


def test_figures_and_lookups_touch_no_disk(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If every disk is dead or hangs, all that is in memory can still be read."""
    fill(dirs)
    with LogStore.open(dirs) as store, monkeypatch.context() as patch:

        def refuse(*arguments: object) -> None:
            raise AssertionError("a disk was asked")

        for name in ("open_file", "pread", "stat", "lstat", "fstat", "scandir", "statvfs"):
            patch.setattr(files, name, refuse)
        assert len(store) == 3
        assert [key.partition for key in store] == [0, 1, 2]
        assert ("orders", 1) in store
        assert store["orders", 1].log_end_offset == 10
        assert store.describe_dirs([dirs[0]]).log_dirs[0].partitions[0].size > 0
        assert store.metrics().size_bytes > 0
        assert store.flush() == ()


def test_a_disk_that_hangs_delays_nobody_else(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a log dir hangs in a sync, the others append, flush, read and are described."""
    fill(dirs)
    release, is_stuck = threading.Event(), threading.Event()
    real = files.fdatasync

    def hang(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(dirs[1]):
            is_stuck.set()
            assert release.wait(30)
        real(fd)

    with LogStore.open(dirs) as store, monkeypatch.context() as patch:
        patch.setattr(files, "fdatasync", hang)
        stuck = store["orders", 1]
        stuck.append(b"slow")
        thread = threading.Thread(target=stuck.flush)
        thread.start()
        assert is_stuck.wait(10)
        for number in (0, 2):
            log = store["orders", number]
            assert log.append(b"fast", durable=True) == 10
            assert log[10].value == b"fast"
        assert stuck.append(b"appends go on") == 11
        assert stuck[11].value == b"appends go on"
        assert store.describe_dirs().log_dirs[1].is_live
        store.delete("orders", 2)
        store.create("orders", 2, log_dir=dirs[2])
        release.set()
        thread.join(10)


def test_regression_a_second_close_claims_no_orderly_one(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed close, the next close reported that every log dir was closed cleanly."""
    fill(dirs)
    store = LogStore.open(dirs)
    for number in range(3):
        store["orders", number].append(b"more")
    with monkeypatch.context() as patch, pytest.raises(LogDirOfflineError):
        patch.setattr(files, "fdatasync", failing("fdatasync", dirs[1], errno.EIO))
        store.close()
    assert store.close() == store.close() == (dirs[1],)
    assert not Path(dirs[1], ".clean-shutdown").exists()


def test_regression_an_interrupted_close_is_ended_by_the_next(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next close reported that all was clean, but the log dirs stayed locked."""
    fill(dirs)
    store = LogStore.open(dirs)

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(store.admin, "stop", interrupted)
        store.close()
    assert store.close() == ()
    with LogStore.open(dirs) as store:
        assert store.recovery_report.was_clean


def test_an_interrupt_lets_a_close_complete(dirs: list[str]) -> None:
    """If Ctrl-C comes during a close, it is raised after every log dir is closed cleanly."""
    fill(dirs)
    store = LogStore.open(dirs)
    main = threading.main_thread().ident
    assert main is not None
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        store.host.before_close(lambda: signal.pthread_kill(main, signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            store.close()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert store.close() == ()
    assert all(Path(path, ".clean-shutdown").exists() for path in dirs)


@pytest.mark.parametrize("remedy", ["repair", "delete"])
def test_regression_a_log_dir_is_closed_in_order_after_its_damage_is_gone(
    dirs: list[str], remedy: str
) -> None:
    """A log that was damaged at the start was repaired or deleted, so the close is clean."""
    fill(dirs)
    for path in Path(dirs[1], "orders-1").glob("*index"):
        path.unlink()
    (log_path,) = Path(dirs[1], "orders-1").glob("*.log")
    data = bytearray(log_path.read_bytes())
    data[40] ^= 0xFF  # in the first of several batches
    log_path.write_bytes(data)
    with LogStore.open(dirs) as store:
        assert store["orders", 1].recovery.problems
        getattr(store, remedy)("orders", 1)
    assert Path(dirs[1], ".clean-shutdown").exists()
    with LogStore.open(dirs) as store:
        assert store.recovery_report.was_clean
