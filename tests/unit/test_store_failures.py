"""If a log dir fails, only its own replicas are affected."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from logstore.disk import files
from logstore.errors import (
    DuplicateLogError,
    LogDirFullError,
    LogDirIdentityError,
    LogDirOfflineError,
    LogStoreError,
    ReplicaOfflineError,
    UnknownPartitionError,
)
from logstore.store.store import LogStore
from support.bad_disk import failing, fill


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    """Return three log dirs that do not exist yet."""
    return [str(tmp_path / f"disk{number}") for number in range(3)]


def offline_dirs(store: LogStore) -> list[str]:
    """Return the log dirs that do not serve."""
    return [row.path for row in store.describe_dirs().log_dirs if not row.is_live]


CALLS_AT_START = (
    "open_file",
    "scandir",
    "stat",
    "fsync",
    "fdatasync",
    "flock",
    "pwritev",
    "pread",
    "rename",
    "statvfs",
    "fstat",
    "lstat",
    "ftruncate",
    "unlink",
)


@pytest.mark.parametrize("name", CALLS_AT_START)
@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_each_call_of_a_start_may_fail_on_one_dir(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    """The others serve, the bad dir is reported with its reason, and no record is lost."""
    fill(dirs)
    with monkeypatch.context() as patch:
        patch.setattr(files, name, failing(name, dirs[1], code))
        with LogStore.open(dirs) as store:
            assert offline_dirs(store) == [dirs[1]]
            assert len(store["orders", 0]) == len(store["orders", 2]) == 10
            with pytest.raises(LogDirOfflineError) as raised:
                store.log("orders", 1)
            assert dirs[1] in str(raised.value)
            assert errno.errorcode[code] in str(raised.value)
            assert store.metrics().OfflineLogDirectoryCount == 1
            assert dirs[1] in str(store.recovery_report)
            store["orders", 0].append(b"more")
    with LogStore.open(dirs) as store:
        assert [len(store["orders", number]) for number in range(3)] == [11, 10, 10]
        assert store.recovery_report.problems == []


@pytest.mark.parametrize("name", ["write_new", "pwritev"])
def test_a_full_disk_at_the_start_serves(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """ENOSPC does not mean a broken disk; the dir is not closed as clean, no record is lost."""
    fill(dirs)
    with monkeypatch.context() as patch:
        patch.setattr(files, name, failing(name, dirs[1], errno.ENOSPC))
        store = LogStore.open(dirs)
        assert offline_dirs(store) == []
        assert len(store["orders", 1]) == 10
        try:
            store.close()
        except LogStoreError as error:
            assert isinstance(error, LogDirFullError)
    with LogStore.open(dirs) as store:
        assert len(store["orders", 1]) == 10


def test_every_dir_bad_is_an_error_at_open(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names all dirs, and no dir stays locked."""
    fill(dirs)
    with monkeypatch.context() as patch:
        patch.setattr(files, "scandir", failing("scandir", str(Path(dirs[0]).parent), errno.EIO))
        with pytest.raises(LogDirOfflineError) as raised:
            LogStore.open(dirs)
        for path in dirs:
            assert path in str(raised.value)
    with LogStore.open(dirs) as store:
        assert len(store) == 3


def test_a_missing_disk_is_offline_and_its_mount_point_stays_empty(dirs: list[str]) -> None:
    """Nothing is formatted at its path; a partition that is not found may be on it."""
    fill(dirs)
    os.rename(dirs[1], dirs[1] + ".away")
    for is_made in (False, True):
        if is_made:
            os.mkdir(dirs[1])
        with LogStore.open(dirs) as store:
            assert offline_dirs(store) == [dirs[1]]
            with pytest.raises(LogDirOfflineError, match="which does not serve"):
                store.log("orders", 1)
            with pytest.raises(LogDirOfflineError):
                store.create("orders", 1)
            with pytest.raises(LogDirOfflineError):
                store.create("never", 0)
            assert store.create("new", int(is_made), is_new=True).log_dir in (dirs[0], dirs[2])
        assert not is_made or os.listdir(dirs[1]) == []
    os.rmdir(dirs[1])
    os.rename(dirs[1] + ".away", dirs[1])
    with LogStore.open(dirs) as store:
        assert len(store["orders", 1]) == 10


def test_a_dir_left_out_of_the_configuration_is_missed(dirs: list[str]) -> None:
    """The partitions of the dir are unavailable, not unknown."""
    fill(dirs)
    with LogStore.open(dirs[:2]) as store:
        told = str(store.recovery_report)
        assert f"(last at {dirs[2]})" in told
        assert "mount it and add it to --log-dirs" in told
        with pytest.raises(LogDirOfflineError):
            store.log("orders", 2)
        assert store.metrics().OfflineLogDirectoryCount == 1


def test_format_new_takes_an_empty_disk_into_the_store(dirs: list[str], tmp_path: Path) -> None:
    """The new dir serves from then on, without a further request."""
    fill(dirs)
    more = [*dirs, str(tmp_path / "disk3"), str(tmp_path / "disk4")]
    with LogStore.open(more) as store:
        assert offline_dirs(store) == more[3:]
    assert not os.path.lexists(more[3])
    with LogStore.open(more, format_new=True) as store:
        assert offline_dirs(store) == []
        store.create("new", 0, log_dir=more[3]).append(b"x")
    with LogStore.open(more) as store:
        assert offline_dirs(store) == []
        assert len(store["new", 0]) == 1
        store.create("orders", 9)


def test_a_foreign_disk_is_offline_and_untouched(dirs: list[str], tmp_path: Path) -> None:
    """A disk of another store at the path is reported as foreign."""
    fill(dirs)
    with LogStore.open(tmp_path / "other") as store:
        store.create("theirs", 0).append(b"x")
    os.rename(dirs[1], dirs[1] + ".away")
    os.rename(tmp_path / "other", dirs[1])
    with LogStore.open(dirs) as store:
        (row,) = store.describe_dirs([dirs[1]]).log_dirs
        assert "another store" in (row.error or "")
        assert ("theirs", 0) not in store
    with LogStore.open(dirs[1]) as store:
        assert store.recovery_report.was_clean
    with pytest.raises(LogDirIdentityError):
        LogStore.open([dirs[0], dirs[1]])


def test_a_dir_that_fails_while_it_serves_is_offline_alone(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replicas go offline, the callback is called once, and the lock is freed."""
    fill(dirs)
    told: list[LogDirOfflineError] = []
    is_told = threading.Event()

    def on_failure(error: LogDirOfflineError) -> None:
        told.append(error)
        is_told.set()

    with LogStore.open(dirs, on_log_dir_failure=on_failure) as store:
        log = store["orders", 1]
        with monkeypatch.context() as patch:
            patch.setattr(files, "fdatasync", failing("fdatasync", dirs[1], errno.EIO))
            log.append(b"lost")
            with pytest.raises(LogDirOfflineError):
                store.flush()
        assert is_told.wait(10)
        for call in (lambda: log.append(b"x"), lambda: log.read(0), lambda: store["orders", 1]):
            with pytest.raises(LogDirOfflineError):
                call()
        assert ("orders", 1) in store
        assert len(store) == 3
        with pytest.raises(LogDirOfflineError):
            store.delete("orders", 1)
        with pytest.raises(LogDirOfflineError):
            store.create("orders", 1, is_new=True)
        with pytest.raises(LogDirOfflineError):
            store.create("new", 0, log_dir=dirs[1], is_new=True)
        assert store.flush() == (dirs[1],)
        for _ in range(4):
            log = store.create("new", _, is_new=True)
            assert log.log_dir != dirs[1]
        assert store.metrics().OfflineReplicaCount == 1
        assert store.close() == (dirs[1],)
    assert [error.path for error in told] == [dirs[1]]
    with LogStore.open(dirs) as store:
        assert len(store["orders", 1]) >= 10
        assert len(store) == 7


def test_an_exception_in_the_callback_is_survived(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A second dir that fails is handled, too (KAFKA-19289)."""
    fill(dirs)
    told: list[str] = []
    is_done = threading.Event()

    def on_failure(error: LogDirOfflineError) -> None:
        told.append(error.path)
        if len(told) == 2:
            is_done.set()
        raise RuntimeError("the handler is broken")

    with LogStore.open(dirs, on_log_dir_failure=on_failure) as store:
        with monkeypatch.context() as patch:
            for number in (0, 1):
                patch.setattr(files, "fdatasync", failing("fdatasync", dirs[number], errno.EIO))
                store["orders", number].append(b"x")
                with pytest.raises(LogDirOfflineError):
                    store["orders", number].flush()
        assert is_done.wait(10)
        assert sorted(told) == dirs[:2]
        assert len(store["orders", 2]) == 10


def test_a_dir_that_is_bad_at_the_start_is_told_too(dirs: list[str]) -> None:
    """The callback is called for it after the store is open."""
    fill(dirs)
    os.rename(dirs[0], dirs[0] + ".away")
    is_told = threading.Event()
    with LogStore.open(dirs, on_log_dir_failure=lambda error: is_told.set()):
        assert is_told.wait(10)


def test_creation_goes_to_the_next_dir_when_one_fails(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a log dir is broken or full, the partition is made in another one (KAFKA-8526)."""
    for code in (errno.EIO, errno.ENOSPC):
        paths = [f"{path}-{code}" for path in dirs]
        with LogStore.open(paths) as store, monkeypatch.context() as patch:
            patch.setattr(files, "mkdir", failing("mkdir", paths[0], code))
            for number in range(6):
                log = store.create("orders", number, is_new=True)
                assert log.log_dir != paths[0]
            assert offline_dirs(store) == ([paths[0]] if code == errno.EIO else [])


def test_a_creation_that_fails_half_way_leaves_nothing(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On full disks the creation raises, and succeeds when there is room."""
    with LogStore.open(dirs) as store:
        root = str(Path(dirs[0]).parent)
        with monkeypatch.context() as patch:
            patch.setattr(files, "pwritev", failing("pwritev", root, errno.ENOSPC))
            with pytest.raises(LogDirFullError):
                store.create("orders", 0)
        assert ("orders", 0) not in store
        for path in dirs:
            assert not [name for name in os.listdir(path) if name.startswith("orders")]
        store.create("orders", 0)


def test_something_in_the_way_is_not_overwritten(dirs: list[str]) -> None:
    """If a foreign file has the replica's name, the replica is created in another dir."""
    with LogStore.open(dirs) as store:
        Path(dirs[0], "orders-0").write_bytes(b"mine")
        assert store.create("orders", 0).log_dir != dirs[0]
        Path(dirs[1], "orders-1").mkdir()
        with pytest.raises(LogStoreError, match="exists already"):
            store.create("orders", 1, log_dir=dirs[1])
        assert Path(dirs[0], "orders-0").read_bytes() == b"mine"


def test_two_live_copies_are_both_left_alone(dirs: list[str]) -> None:
    """The replica is offline, both copies are reported, and all other replicas serve."""
    import shutil

    fill(dirs)
    shutil.copytree(Path(dirs[0], "orders-0"), Path(dirs[1], "orders-0"))
    with LogStore.open(dirs) as store:
        with pytest.raises(LogStoreError) as raised:
            store.log("orders", 0)
        assert f"{dirs[0]}/orders-0" in str(raised.value)
        assert f"{dirs[1]}/orders-0" in str(raised.value)
        assert len(store["orders", 1]) == 10
        assert store.metrics().OfflineReplicaCount == 1
        with pytest.raises(DuplicateLogError):
            store.create("orders", 0)
    shutil.rmtree(Path(dirs[1], "orders-0"))
    with LogStore.open(dirs) as store:
        assert len(store["orders", 0]) == 10


def test_one_unreadable_file_takes_its_replica_offline_alone(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one log raises EACCES and the probe passes, the dir and its other replicas serve."""
    with LogStore.open(dirs) as store:
        for number in range(3):
            store.create("orders", number, log_dir=dirs[0]).append(b"x")
    with monkeypatch.context() as patch:
        where = f"{dirs[0]}/orders-1"
        patch.setattr(files, "open_file", failing("open_file", where, errno.EACCES))
        with LogStore.open(dirs) as store:
            assert offline_dirs(store) == []
            with pytest.raises(ReplicaOfflineError):
                store.log("orders", 1)
            assert len(store["orders", 0]) == len(store["orders", 2]) == 1
            assert ("orders", 1) in store
    with LogStore.open(dirs) as store:
        assert not store.recovery_report.was_clean
        assert len(store["orders", 1]) == 1


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM, errno.ENOSPC])
def test_a_replica_that_lacked_room_is_opened_once_there_is_some(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A limit of the process, or a full disk, may pass; then no restart is needed."""
    fill(dirs)
    where = f"{dirs[0]}/orders-0"
    with monkeypatch.context() as patch:
        patch.setattr(files, "open_file", failing("open_file", where, code))
        store = LogStore.open(dirs)
        with pytest.raises(LogStoreError) as raised:
            store.log("orders", 0)
        assert raised.value.retriable
        with pytest.raises(LogStoreError):
            store.delete("orders", 0)
        assert offline_dirs(store) == []
    with store:
        assert store.metrics().OfflineReplicaCount == 1
        assert len(store["orders", 0]) == 10
        assert store.metrics().OfflineReplicaCount == 0
        assert store["orders", 0].append(b"x") == 10
        store.delete("orders", 0)


def test_what_never_was_is_unknown_while_every_dir_is_good(dirs: list[str]) -> None:
    """Only while a log dir is bad can an unknown partition exist."""
    fill(dirs)
    with LogStore.open(dirs) as store, pytest.raises(UnknownPartitionError):
        store.log("orders", 7)


def test_a_disk_that_is_unmounted_under_the_store_is_offline(dirs: list[str]) -> None:
    """Nothing is written into the mount point that appears."""
    fill(dirs)
    with LogStore.open(dirs) as store, LogStore.open(dirs, read_only=True) as view:
        assert len(view) == 3
        os.rename(dirs[1], dirs[1] + ".away")
        os.mkdir(dirs[1])
        with pytest.raises(LogDirOfflineError, match="unmounted"):
            store.create("new", 0, log_dir=dirs[1])
        assert offline_dirs(store) == [dirs[1]]
        assert len(view) == 3
        with pytest.raises(LogDirOfflineError):
            view.log("orders", 1)
        assert len(view["orders", 0]) == 10
        assert store.close() == (dirs[1],)
        assert os.listdir(dirs[1]) == []
    os.rmdir(dirs[1])
    os.rename(dirs[1] + ".away", dirs[1])
    with LogStore.open(dirs) as store:
        assert len(store["orders", 1]) == 10


def test_a_reader_formats_nothing(dirs: list[str]) -> None:
    """The two arguments exclude each other."""
    with pytest.raises(ValueError, match="read_only"):
        LogStore.open(dirs, read_only=True, format_new=True)
