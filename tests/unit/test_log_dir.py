"""A log dir fails only once, for the right errors, and reports the reason."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from logstore.disk import files
from logstore.disk.documents.meta_properties import FILE_NAME, MetaProperties, decode_meta
from logstore.disk.documents.settings import SETTINGS_NAME, DirSettings
from logstore.disk.log_dir import LogDir, LogDirState
from logstore.errors import (
    LogDirError,
    LogDirFullError,
    LogDirLockedError,
    LogDirOfflineError,
    ReplicaOfflineError,
)
from logstore.names import TopicPartition
from support.hanging import Caller


def error_of(code: int, path: str | None = None) -> OSError:
    """Make an error as the kernel reports it."""
    return OSError(code, os.strerror(code), path)


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.ENODEV])
def test_an_error_of_the_disk_takes_the_dir_offline_once(tmp_path: Path, code: int) -> None:
    """The callback is called only for the first error, and every error has its reason."""
    calls: list[LogDir] = []
    log_dir = LogDir(str(tmp_path), on_failure=calls.append)
    log_dir.check()
    first = log_dir.failed(error_of(code, "x.log"))
    second = log_dir.failed(error_of(errno.ENOSPC), "y.log")
    assert isinstance(first, LogDirOfflineError)
    assert isinstance(second, LogDirOfflineError)
    assert "x.log" in second.reason
    assert calls == [log_dir]
    assert log_dir.state is LogDirState.OFFLINE
    with pytest.raises(LogDirOfflineError):
        log_dir.check()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_not_offline(tmp_path: Path, code: int) -> None:
    """The error is retriable, and the state does not change to OFFLINE."""
    log_dir = LogDir(str(tmp_path))
    error = log_dir.failed(error_of(code))
    assert isinstance(error, LogDirFullError)
    assert error.retriable
    log_dir.check()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EFBIG])
def test_a_limit_of_the_process_is_not_the_disks_fault(tmp_path: Path, code: int) -> None:
    """The error is retriable, and names the limit."""
    log_dir = LogDir(str(tmp_path))
    error = log_dir.failed(error_of(code), "a.log")
    assert type(error) is LogDirError
    assert error.retriable
    assert "a.log" in str(error)
    log_dir.check()


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EACCES, errno.ESTALE, errno.EPERM])
def test_one_bad_file_on_a_good_disk_is_the_replicas_trouble(tmp_path: Path, code: int) -> None:
    """The probe passes, so only the replica is offline; without a replica, the call fails."""
    log_dir = LogDir(str(tmp_path))
    error = log_dir.failed(error_of(code), "a.log", topic="orders", partition=1)
    assert isinstance(error, ReplicaOfflineError)
    assert (error.topic, error.partition) == ("orders", 1)
    assert type(log_dir.failed(error_of(code), "a.log")) is LogDirError
    log_dir.check()
    assert list(tmp_path.iterdir()) == []


def test_one_bad_file_on_a_bad_disk_takes_the_dir_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe fails, so the disk is at fault; both reasons are reported."""
    log_dir = LogDir(str(tmp_path))

    def fail(fd: int) -> None:
        raise error_of(errno.EIO)

    monkeypatch.setattr(files, "fsync", fail)
    error = log_dir.failed(error_of(errno.ENOENT, "a.log"), topic="orders", partition=1)
    assert isinstance(error, LogDirOfflineError)
    assert "ENOENT" in error.reason
    assert "EIO" in error.reason


def test_a_probe_that_reads_back_other_bytes_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that returns wrong bytes does not pass."""
    log_dir = LogDir(str(tmp_path))
    monkeypatch.setattr(files, "read_file", lambda path: b"lies")
    with pytest.raises(OSError, match="other bytes"):
        log_dir.probe()


def test_a_full_disk_passes_the_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is not broken (R7), and the probe leaves no file."""
    log_dir = LogDir(str(tmp_path))

    def fail(fd: int, buffers: object, position: int) -> int:
        raise error_of(errno.ENOSPC)

    monkeypatch.setattr(files, "pwritev", fail)
    log_dir.probe()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EINTR, errno.EACCES])
def test_a_failed_flush_takes_the_dir_offline_whatever_the_errno(tmp_path: Path, code: int) -> None:
    """R6: the sync is never repeated."""
    log_dir = LogDir(str(tmp_path))
    error = log_dir.flush_failed(error_of(code), "a.log")
    assert isinstance(error, LogDirOfflineError)
    assert "flush" in error.reason
    assert log_dir.is_offline


def test_a_reader_probes_without_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a dir that is opened for reading, only the identity is read."""
    (tmp_path / "meta.properties").write_bytes(b"x")
    log_dir = LogDir(str(tmp_path), read_only=True)

    def refuse(*arguments: object) -> int:
        raise AssertionError("a reader writes")

    monkeypatch.setattr(files, "pwritev", refuse)
    log_dir.probe()


def test_a_full_disk_at_the_start_costs_the_next_start_a_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock file cannot be written; the dir serves, and the report has a warning."""
    log_dir = LogDir(str(tmp_path))
    log_dir.belong("a" * 32, "b" * 32)
    log_dir.lock.acquire()

    def fail(fd: int, buffers: object, position: int) -> int:
        raise error_of(errno.ENOSPC)

    monkeypatch.setattr(files, "pwritev", fail)
    log_dir.begin("1" * 32)
    assert log_dir.start_id == ""
    assert "full" in log_dir.warnings[0]
    log_dir.release()


def test_a_marker_that_stays_lets_no_start_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, a crash of this start would look like the clean close of the last one."""
    log_dir = LogDir(str(tmp_path))
    log_dir.belong("a" * 32, "b" * 32)
    log_dir.lock.acquire()
    log_dir.begin("1" * 32)
    log_dir.lock.mark_clean(log_dir.start_id)
    log_dir.release()

    def fail(path: str) -> None:
        raise error_of(errno.ENOSPC)

    with monkeypatch.context() as patch:
        patch.setattr(files, "unlink", fail)
        second = LogDir(str(tmp_path))
        second.lock.acquire()
        with pytest.raises(OSError, match="No space"):
            second.begin("2" * 32)
        second.release()
    third = LogDir(str(tmp_path))
    third.lock.acquire()
    third.begin("3" * 32)
    assert third.was_clean
    third.release()


def test_the_space_of_the_disk_is_remembered(tmp_path: Path) -> None:
    """Usable bytes are the bytes that an ordinary user gets."""
    log_dir = LogDir(str(tmp_path))
    assert log_dir.usage == (0, 0)
    usage = log_dir.refresh_usage()
    assert 0 < usage.usable_bytes <= usage.total_bytes
    assert log_dir.usage is usage


def test_a_log_dir_shows_its_state(tmp_path: Path) -> None:
    """The repr has the path, the state and the reason."""
    log_dir = LogDir(str(tmp_path))
    assert repr(log_dir) == f"<LogDir {tmp_path} online>"
    log_dir.take_offline("it burnt")
    assert repr(log_dir) == f"<LogDir {tmp_path} offline: it burnt>"


def test_another_directory_in_its_place_is_not_written_to(tmp_path: Path) -> None:
    """An unmounted disk leaves an empty mount point; the probe reports this and writes nothing."""
    path = tmp_path / "logs"
    path.mkdir()
    log_dir = LogDir(str(path))
    log_dir.check_place()
    path.rename(tmp_path / "away")
    path.mkdir()
    error = log_dir.failed(error_of(errno.ENOENT, "a.log"), topic="orders", partition=1)
    assert isinstance(error, LogDirOfflineError)
    assert "unmounted" in error.reason
    assert list(path.iterdir()) == []


@pytest.fixture
def owned(tmp_path: Path) -> LogDir:
    """Return a log dir that this process has locked."""
    log_dir = LogDir(str(tmp_path))
    log_dir.belong("c" * 32, "d" * 32)
    log_dir.lock.acquire()
    return log_dir


class InSync:
    """Let the first file of a name hang in its sync, after it is durable, until its release."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, call: str = "fsync") -> None:
        self.began, self.released = threading.Event(), threading.Event()
        real = getattr(files, call)

        def stand(first: Any, *rest: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else first
            result = real(first, *rest)
            if name in os.path.basename(path) and not self.began.is_set():
                self.began.set()
                assert self.released.wait(60)
            return result

        patch.setattr(files, call, stand)


def is_free(log_dir: LogDir) -> bool:
    other = LogDir(log_dir.path)
    try:
        other.lock.acquire()
    except LogDirLockedError:
        return False
    other.release()
    return True


@pytest.mark.parametrize("is_offline", [False, True])
def test_a_small_file_that_hung_does_not_replace_the_one_of_the_next_owner(
    owned: LogDir, monkeypatch: pytest.MonkeyPatch, is_offline: bool
) -> None:
    """The file was durable, and about to be renamed when its dir had another owner."""
    standing = InSync(monkeypatch, SETTINGS_NAME)
    late = Caller(lambda: owned.change_settings(DirSettings(is_cordoned=True)))
    assert standing.began.wait(60)
    if is_offline:
        owned.take_offline("it hangs")
    owned.release()
    after = LogDir(owned.path)
    after.belong(owned.cluster_id, owned.directory_id)
    after.lock.acquire()
    wishes = {TopicPartition("orders", 0): 1}
    after.change_settings(DirSettings(preferred=wishes))
    standing.released.set()
    assert isinstance(late.outcome(), LogDirOfflineError)
    after.load_settings()
    assert after.settings == DirSettings(preferred=wishes)
    assert not [name for name in os.listdir(owned.path) if name.endswith(".tmp")]
    after.release()


def test_a_dir_is_let_go_of_once_a_rename_that_hangs_in_it_is_over(
    owned: LogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release does not wait; the lock is held until no rename can replace a file."""
    standing = InSync(monkeypatch, SETTINGS_NAME, "rename")
    late = Caller(lambda: owned.change_settings(DirSettings(is_cordoned=True)))
    assert standing.began.wait(60)
    owned.release()
    assert not is_free(owned)
    standing.released.set()
    assert late.outcome() is None
    assert is_free(owned)


def test_the_older_identity_is_written_before_the_newer_one_begins(
    owned: LogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write hung in its sync and was abandoned; the roster of the second remains."""
    older = MetaProperties(owned.cluster_id, 0, owned.directory_id, 5, (owned.directory_id,), False)
    standing = InSync(monkeypatch, FILE_NAME)
    first = Caller(lambda: owned.write_meta(older))
    assert standing.began.wait(60)
    second = Caller(lambda: owned.write_meta(older._replace(roster_epoch=6)))
    assert not second.is_back()
    standing.released.set()
    assert first.outcome() is None
    assert second.outcome() is None
    meta_path = os.path.join(owned.path, FILE_NAME)
    assert decode_meta(files.read_file(meta_path), meta_path).roster_epoch == 6
    owned.release()
