"""Log dirs are taken into possession in an order that crashes and rivals cannot break."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore.config import StoreConfig
from logstore.errors import LogDirIdentityError, LogDirLockedError, LogStoreError
from logstore.store.store import LogStore
from mover import plan_moves
from support.crashing import CrashError, crash_at
from support.places import fast_directory


@pytest.fixture
def fast_path() -> Iterator[Path]:
    """Make a directory in memory, because these tests make many stores."""
    with fast_directory() as path:
        yield path


def crashes(dirs: list[str], *, format_new: bool = False) -> int:
    """Start repeatedly, and crash one call later each time; count the crashes."""
    number = 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            calls = crash_at(patch, number)
            try:
                store = LogStore.open(dirs, format_new=format_new, admin_socket=False)
            except CrashError:
                assert len(calls) == number
                number += 1
                continue
        store.close()
        return number


def test_a_crash_at_any_point_of_forming_is_completed_by_the_next_start(fast_path: Path) -> None:
    """Each start continues where the last one crashed, and in the end all dirs serve."""
    dirs = [str(fast_path / f"disk{n}" / "logs") for n in range(3)]
    assert crashes(dirs) > 0
    with LogStore.open(dirs) as store:
        assert [row.is_live for row in store.describe_dirs().log_dirs] == [True] * 3
        assert store.metrics().OfflineLogDirectoryCount == 0
        store.create("orders", 0)


def test_a_crash_at_any_single_point_of_forming_is_completed(fast_path: Path) -> None:
    """For each point, a new store is formed."""
    for number in range(200):
        dirs = [str(fast_path / f"{number}-{n}") for n in range(2)]
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, number)
            try:
                LogStore.open(dirs, admin_socket=False).close()
                break
            except CrashError:
                pass
        with LogStore.open(dirs) as store:
            assert store.metrics().OfflineLogDirectoryCount == 0
            store.create("orders", 0)
    else:
        raise AssertionError("opening a store takes too many calls")


def test_a_crash_while_disks_join_leaves_no_phantom(fast_path: Path) -> None:
    """Two new disks join; after any crash, the next start is complete with or without them."""
    for number in range(200):
        dirs = [str(fast_path / f"{number}-{n}") for n in range(4)]
        with LogStore.open(dirs[:2]) as store:
            store.create("orders", 0).append(b"x")
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, number)
            try:
                LogStore.open(dirs, format_new=True, admin_socket=False).close()
                break
            except CrashError:
                pass
        with LogStore.open(dirs, format_new=True) as store:
            assert store.metrics().OfflineLogDirectoryCount == 0
            assert len(store["orders", 0]) == 1
    else:
        raise AssertionError("opening a store takes too many calls")


def test_a_start_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    """One of three dirs is locked: the others keep their markers, and are unlocked again."""
    dirs = [str(tmp_path / f"disk{n}") for n in range(3)]
    LogStore.open(dirs).close()
    owner = LogStore.open(dirs[2])
    with pytest.raises(LogDirLockedError):
        LogStore.open(dirs)
    assert Path(dirs[0], ".clean-shutdown").exists()
    owner.close()
    with LogStore.open(dirs) as store:
        assert store.recovery_report.was_clean


def test_a_kafka_log_dir_is_refused_and_untouched(tmp_path: Path) -> None:
    """The error names the Kafka log dir as such."""
    data = b"#\n#Tue Nov 03 12:00:00 UTC 2026\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nversion=1\n"
    (tmp_path / "meta.properties").write_bytes(data)
    with pytest.raises(LogStoreError, match="Kafka"):
        LogStore.open(tmp_path)
    assert os.listdir(tmp_path) == ["meta.properties"]


def test_a_file_is_no_log_dir(tmp_path: Path) -> None:
    """A directory below a file is refused, too."""
    (tmp_path / "file").write_bytes(b"x")
    for path in (tmp_path / "file", tmp_path / "file" / "logs"):
        with pytest.raises(LogStoreError):
            LogStore.open(path)


def test_a_store_keeps_its_broker_id(fast_path: Path) -> None:
    """Without a number, the configuration uses the recorded one; another number is refused."""
    with LogStore.open(fast_path, config=StoreConfig(broker_id=7)) as store:
        assert store.broker_id == 7
    for config in (StoreConfig(), StoreConfig(broker_id=-1), StoreConfig(broker_id=7)):
        with LogStore.open(fast_path, config=config) as store:
            assert (store.broker_id, plan_moves(store).broker_id) == (7, 7)
            with LogStore.open(fast_path, read_only=True) as reader:
                assert reader.broker_id == 7
    with pytest.raises(LogDirIdentityError, match="broker id 7 is recorded, but 0"):
        LogStore.open(fast_path, config=StoreConfig(broker_id=0))
