"""Test the states of a log dir: full, cordoned, SUSPECT, OFFLINE; each is logged once."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from logstore.disk import files
from logstore.disk.documents.settings import SETTINGS_NAME, DirSettings
from logstore.disk.log_dir import LogDir
from logstore.disk.states import Event
from logstore.errors import (
    LogDirError,
    LogDirFullError,
    LogDirOfflineError,
    LogDirSuspectError,
)
from logstore.names import TopicPartition
from logstore.store.store import LogStore
from support.bad_disk import failing

NO_ROOM = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def state_of(log_dir: LogDir) -> str:
    """Return the state that is shown."""
    return log_dir.state.name


class Disk:
    """A disk of 1,000 blocks of 4 KiB, whose free blocks are set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: int = 500) -> None:
        self.free, self.names_free, self.names = free, 100, 100
        monkeypatch.setattr(files, "statvfs", self.statvfs)

    def statvfs(self, path: str) -> SimpleNamespace:
        return SimpleNamespace(
            f_blocks=1000, f_frsize=4096, f_bavail=self.free,
            f_files=self.names, f_favail=self.names_free,
        )  # fmt: skip


def test_a_full_disk_returns_when_a_part_of_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full at ENOSPC, and still just below the mark; it is writable at the mark."""
    disk, log_dir = Disk(monkeypatch, 0), LogDir(str(tmp_path))
    assert isinstance(log_dir.failed(NO_ROOM), LogDirFullError)
    assert state_of(log_dir) == "READ_ONLY"
    assert "ENOSPC" in (log_dir.reason or "")
    disk.free = 9
    with pytest.raises(LogDirFullError, match="resume by themselves if 40"):
        log_dir.check_appendable()
    log_dir.refresh_usage()
    assert state_of(log_dir) == "READ_ONLY"
    log_dir.check()
    disk.free = 10
    log_dir.check_appendable()
    assert state_of(log_dir) == "ONLINE"
    assert log_dir.reason is None


def test_regression_a_full_disk_says_when_appends_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error said that the disk is full, but not that appends resume by themselves."""
    Disk(monkeypatch, 0)
    log_dir = LogDir(str(tmp_path))
    error = str(log_dir.failed(NO_ROOM))
    assert re.search(r"appends resume by themselves if [0-9.]+ KiB are free$", error)


def test_a_write_too_big_for_the_rest_of_the_disk_does_not_make_it_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has room for other appends, so only this append is refused."""
    Disk(monkeypatch, 300)
    log_dir = LogDir(str(tmp_path))
    assert isinstance(log_dir.failed(NO_ROOM), LogDirFullError)
    assert state_of(log_dir) == "ONLINE"


def test_a_disk_without_names_left_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system can run out of inodes, not only of bytes."""
    disk, log_dir = Disk(monkeypatch), LogDir(str(tmp_path))
    disk.names_free = 0
    log_dir.failed(NO_ROOM)
    assert state_of(log_dir) == "READ_ONLY"
    disk.names_free = 1
    log_dir.refresh_usage()
    assert state_of(log_dir) == "ONLINE"


@pytest.mark.parametrize(("free", "is_full"), [(0, True), (1, False), (9, False), (10, False)])
def test_a_start_inside_the_band_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, is_full: bool
) -> None:
    """A dir that starts between the two marks does not stay full forever (BookKeeper 4640)."""
    Disk(monkeypatch, free)
    with LogStore.open(tmp_path) as store:
        (row,) = store.describe_dirs().log_dirs
        assert row.state == ("read-only" if is_full else "online")
        if is_full:
            with pytest.raises(LogDirFullError):
                store.create("orders", 0)
        else:
            assert store.create("orders", 0).append(b"x") == 0


def test_a_full_dir_serves_everything_but_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads, truncations and deletions continue, because they make room."""
    with LogStore.open([tmp_path / "a", tmp_path / "b"]) as store:
        log = store.create("orders", 0, log_dir=tmp_path / "a")
        log.extend([b"x"] * 10)
        disk = Disk(monkeypatch, 0)
        assert isinstance(store.host.replicas.dir_of(log.log_dir).failed(NO_ROOM), LogDirFullError)
        for call in (lambda: log.append(b"y"), lambda: log.extend([b"y"])):
            with pytest.raises(LogDirFullError):
                call()
        assert [record.value for record in log] == [b"x"] * 10
        log.truncate_to(8)
        log.flush()
        disk.free = 500
        assert log.append(b"y") == 8
        disk.free = 0
        store.host.replicas.dir_of(log.log_dir).refresh_usage()
        disk.free = 20
        assert store.create("orders", 1).append(b"z") == 0


def test_new_replicas_go_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs of a full dir wait, new replicas go to others; if all are full, an error says so."""
    dirs = [str(tmp_path / name) for name in "abc"]
    full: set[str] = {dirs[0]}

    def statvfs(path: str) -> SimpleNamespace:
        free = 0 if path in full else 500
        return SimpleNamespace(f_blocks=1000, f_frsize=4096, f_bavail=free, f_files=0, f_favail=0)

    monkeypatch.setattr(files, "statvfs", statvfs)
    with LogStore.open(dirs) as store:
        for number in range(6):
            assert store.create("orders", number).log_dir != dirs[0]
        full.update(dirs)
        for log_dir in store.host.replicas.log_dirs:
            log_dir.refresh_usage()
        with pytest.raises(LogDirFullError):
            store.create("orders", 6)


def test_a_cordoned_dir_serves_and_takes_no_new_replicas(tmp_path: Path) -> None:
    """The dir stays cordoned after a restart; the message says how to uncordon it."""
    dirs = [str(tmp_path / name) for name in "ab"]
    with LogStore.open(dirs) as store:
        log = store.create("orders", 0, log_dir=dirs[0])
        cordoned = store.host.replicas.dir_of(dirs[0])
        cordoned.change_settings(DirSettings(is_cordoned=True))
        assert state_of(cordoned) == "CORDONED"
        assert log.append(b"x") == 0
    with LogStore.open(dirs) as store:
        cordoned = store.host.replicas.dir_of(dirs[0])
        assert state_of(cordoned) == "CORDONED"
        assert store["orders", 0].append(b"y") == 1
        for number in range(1, 5):
            assert store.create("orders", number).log_dir == dirs[1]
        with pytest.raises(LogDirError, match="uncordon"):
            store.create("orders", 9, log_dir=dirs[0])
        cordoned.change_settings(DirSettings())
        assert state_of(cordoned) == "ONLINE"
        assert store.create("orders", 9, log_dir=dirs[0]).append(b"z") == 0


def test_conditions_combine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dir can be cordoned, full and SUSPECT; each ends by itself, and the gravest is shown."""
    disk, log_dir = Disk(monkeypatch, 0), LogDir(str(tmp_path))
    log_dir.change(Event.CORDON, "a")
    log_dir.refresh_usage()
    log_dir.change(Event.STUCK, "b")
    assert state_of(log_dir) == "SUSPECT"
    with pytest.raises(LogDirSuspectError, match="b") as raised:
        log_dir.check()
    assert raised.value.retriable
    log_dir.change(Event.ANSWERED)
    assert state_of(log_dir) == "READ_ONLY"
    disk.free = 500
    log_dir.refresh_usage()
    assert state_of(log_dir) == "CORDONED"
    assert not log_dir.is_refusing_appends


def test_offline_takes_all_else_away(tmp_path: Path) -> None:
    """A SUSPECT dir that fails is OFFLINE, and stays OFFLINE."""
    log_dir = LogDir(str(tmp_path))
    log_dir.change(Event.STUCK, "hangs")
    log_dir.take_offline("burnt")
    for event in (Event.ANSWERED, Event.FULL, Event.STUCK, Event.ROOM):
        assert not log_dir.change(event, "no")
    assert (log_dir.is_offline, log_dir.is_suspect, log_dir.is_full) == (True, False, False)
    with pytest.raises(LogDirOfflineError, match="burnt"):
        log_dir.check()


def test_every_change_is_logged_once_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """There is one message for each change, not one for each caller."""
    Disk(monkeypatch, 0)
    log_dir = LogDir(str(tmp_path), on_failure=lambda failed: None)
    for _ in range(5):
        log_dir.failed(NO_ROOM)
    (record,) = caplog.records
    assert "read-only" in record.getMessage()
    assert "free some space" in record.getMessage()
    caplog.clear()
    for _ in range(5):
        log_dir.take_offline("burnt")
    (record,) = caplog.records
    assert "reopen" in record.getMessage()


def test_a_wish_is_kept_until_it_comes_true(tmp_path: Path) -> None:
    """KIP-113: after a restart, the partition is created where the user wanted it, once."""
    dirs = [str(tmp_path / name) for name in "abc"]
    key = TopicPartition("orders", 0)
    with LogStore.open(dirs) as store:
        for number, path in enumerate(dirs[1:]):
            wish = DirSettings(preferred={key: number})
            store.host.replicas.dir_of(path).change_settings(wish)
    with LogStore.open(dirs) as store:
        assert store.create(*key).log_dir == dirs[2]
        assert not any(d.settings.preferred for d in store.host.replicas.log_dirs)


def test_a_wish_is_withdrawn_wherever_it_stands(tmp_path: Path) -> None:
    """All earlier wishes are withdrawn, too, but not on a log dir that is offline."""
    dirs = [str(tmp_path / name) for name in "abc"]
    with LogStore.open(dirs) as store:
        store.prefer_dir("later", 0, dirs[1])
        store.prefer_dir("later", 0, dirs[2])
        store.prefer_dir("other", 0, dirs[2])
        store.prefer_dir("later", 0, None)
        wishes = [list(log_dir.settings.preferred) for log_dir in store.host.replicas.log_dirs]
        assert wishes == [[], [], [("other", 0)]]
        store.prefer_dir("later", 0, None)  # there is none: that is fine
        store.take_offline(dirs[2])
        with pytest.raises(LogDirOfflineError):
            store.prefer_dir("other", 0, None)


@pytest.mark.parametrize("data", [b"", b"junk", b'{"version": 1}\nxxh3-64 0000000000000000\n'])
def test_settings_that_do_not_check_out_are_a_warning(tmp_path: Path, data: bytes) -> None:
    """The dir serves, and is not cordoned."""
    with LogStore.open(tmp_path / "a") as store:
        store.host.replicas.log_dirs[0].change_settings(DirSettings(is_cordoned=True))
    (tmp_path / "a" / SETTINGS_NAME).write_bytes(data)
    with LogStore.open(tmp_path / "a") as store:
        assert any(SETTINGS_NAME in warning for warning in store.recovery_report.warnings)
        assert store.create("orders", 0).append(b"x") == 0


def test_settings_of_another_dir_are_not_believed(tmp_path: Path) -> None:
    """A file that was copied from another dir is not used."""
    with LogStore.open([tmp_path / "a", tmp_path / "b"]) as store:
        store.host.replicas.log_dirs[0].change_settings(DirSettings(is_cordoned=True))
    data = (tmp_path / "a" / SETTINGS_NAME).read_bytes()
    (tmp_path / "b" / SETTINGS_NAME).write_bytes(data)
    with LogStore.open([tmp_path / "a", tmp_path / "b"]) as store:
        assert [d.is_cordoned for d in store.host.replicas.log_dirs] == [True, False]


def test_settings_that_cannot_be_written_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user gets an error, and the state of the dir does not change."""
    log_dir = LogDir(str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(files, "open_file", failing("open_file", str(tmp_path), errno.EMFILE))
        with pytest.raises(LogDirError):
            log_dir.change_settings(DirSettings(is_cordoned=True))
    assert not log_dir.is_cordoned
