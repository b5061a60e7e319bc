"""Add, remove and reopen log dirs of a running store; the decisions last."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import (
    DuplicateLogError,
    LogDirError,
    LogDirIdentityError,
    LogDirOfflineError,
    LogDirSuspectError,
    LogStore,
    PartitionExistsError,
    UnknownPartitionError,
)
from logstore.disk import files
from logstore.disk.states import Event
from logstore.names import TopicPartition
from support.bad_disk import failing, fill
from support.faulty import open_below
from support.hanging import QUIET
from support.inside import state_of, wait_for_failures, watchdog_of


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    """Return three log dirs, with a partition on each."""
    paths = [str(tmp_path / f"disk{number}") for number in range(3)]
    fill(paths)
    return paths


@pytest.fixture
def store(dirs: list[str]) -> Iterator[LogStore]:
    """Return a store over the three log dirs."""
    with LogStore.open(dirs, config=QUIET) as store:
        yield store


def states(store: LogStore) -> list[str]:
    return [row.state for row in store.describe_dirs().log_dirs]


def break_disk(store: LogStore, path: str) -> None:
    """Make the disk of one log dir fail at a flush."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "fdatasync", failing("fdatasync", path, errno.EIO))
        for log in store.host.replicas.on(store.host.dir_of(path)):
            log.append(b"unflushed")
            with pytest.raises(LogDirOfflineError):
                log.flush()
    wait_for_failures(store, 60)


def test_a_failed_dir_comes_back_whole(store: LogStore, dirs: list[str]) -> None:
    """The replicas of the dir serve again, old log objects do not, and the dir can fail again."""
    old, other = store["orders", 1], store["orders", 0]
    for life in range(2):
        break_disk(store, dirs[1])
        assert states(store) == ["online", "offline", "online"]
        assert not open_below(dirs[1])
        assert other.append(b"meanwhile") == 10 + life
        report = store.reopen_dir(dirs[1])
        assert not report.problems
        assert states(store) == ["online"] * 3
        log = store["orders", 1]
        assert log.append(b"again", durable=True) >= 10
        with pytest.raises(LogDirOfflineError):
            old.append(b"x")
        assert store.metrics().OfflineLogDirectoryCount == 0
        assert store.metrics().OfflineReplicaCount == 0
        assert len(store) == 3
        assert store.host.replicas.figures[dirs[1]].partition_count == 1
    with pytest.raises(LogDirError, match="not offline"):
        store.reopen_dir(dirs[1])
    store.close()
    with LogStore.open(dirs) as after:
        assert after.recovery_report.was_clean
        assert len(after["orders", 1]) >= 12


def test_a_disk_that_is_still_broken_stays_offline(store: LogStore, dirs: list[str]) -> None:
    """A failed attempt changes nothing and keeps nothing open; the next attempt may succeed."""
    break_disk(store, dirs[1])
    for name in ("open_file", "fsync", "pwritev", "scandir", "statvfs", "flock", "rename"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, name, failing(name, dirs[1], errno.EIO))
            with pytest.raises(LogDirOfflineError):
                store.reopen_dir(dirs[1])
        wait_for_failures(store, 60)
        assert states(store) == ["online", "offline", "online"]
        assert not open_below(dirs[1]), name
        with pytest.raises(LogDirOfflineError):
            store.log("orders", 1)
    store.reopen_dir(dirs[1])
    assert store["orders", 1].append(b"x") >= 10


def test_a_deletion_cut_short_by_its_disk_ends_when_the_dir_is_back(
    store: LogStore, dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion is recorded in the replica, and completed; the name can be used again."""
    real = files.rename

    def rename(source: str, target: str) -> None:
        if target.endswith(".delete"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), source)
        real(source, target)

    monkeypatch.setattr(files, "rename", rename)
    with pytest.raises(LogDirOfflineError):
        store.delete("orders", 1)
    monkeypatch.undo()
    store.reopen_dir(dirs[1])
    with pytest.raises(UnknownPartitionError):
        store.log("orders", 1)
    assert store.metrics().OfflineReplicaCount == 0
    assert store.create("orders", 1, log_dir=dirs[1]).append(b"anew") == 0


def test_a_replica_that_does_not_open_with_its_dir_is_not_unknown(
    store: LogStore, dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This replica alone is offline; it cannot be created again, and opens when it can."""
    store.take_offline(dirs[1])
    replica = os.path.join(dirs[1], "orders-1")
    monkeypatch.setattr(files, "scandir", failing("scandir", replica, errno.EMFILE))
    store.reopen_dir(dirs[1])
    for call in (store.log, store.create):
        with pytest.raises((LogDirError, PartitionExistsError)):
            call("orders", 1)
    assert store.metrics().OfflineReplicaCount == 1
    monkeypatch.undo()
    assert len(store.log("orders", 1)) == 10


def test_log_dirs_with_a_parent_that_neither_has_yet_are_both_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both dirs are made at the same time, so each may find that the parent exists already."""
    real, parent = files.mkdir, tmp_path / "new"

    def mkdir(path: str) -> None:
        if path == str(parent):
            parent.mkdir(exist_ok=True)  # the other one comes first
        real(path)

    monkeypatch.setattr(files, "mkdir", mkdir)
    dirs = [parent / "a", parent / "b"]
    with LogStore.open(dirs, config=QUIET, admin_socket=False) as made:
        assert states(made) == ["online", "online"]


def test_an_empty_mount_point_is_not_taken_for_it(store: LogStore, dirs: list[str]) -> None:
    """Nothing is formatted without a request, and the mounted disk is unchanged."""
    store.take_offline(dirs[1])
    os.rename(dirs[1], dirs[1] + ".away")
    os.mkdir(dirs[1])
    with pytest.raises(LogDirIdentityError, match="not formatted"):
        store.reopen_dir(dirs[1])
    assert os.listdir(dirs[1]) == []
    os.rmdir(dirs[1])
    os.rename(dirs[1] + ".away", dirs[1])
    store.reopen_dir(dirs[1])
    assert len(store["orders", 1]) == 10


def test_a_dir_taken_offline_lets_go_of_everything(store: LogStore, dirs: list[str]) -> None:
    """The disk can be unmounted at once, and all records are durable."""
    log = store["orders", 1]
    log.append(b"last")
    store.take_offline(dirs[1])
    assert log.recovery_point == 11
    assert not open_below(dirs[1])
    with pytest.raises(LogDirOfflineError, match="the user"):
        log.append(b"x")
    assert store.create("new", 0, is_new=True).log_dir != dirs[1]
    store.reopen_dir(dirs[1])
    assert [r.value for r in store["orders", 1].read(10)] == [b"last"]


def test_kip112_scenario_4_a_disk_is_replaced(store: LogStore, dirs: list[str]) -> None:
    """The new disk replaces the old one; its partitions must be created again."""
    break_disk(store, dirs[1])
    shutil.rmtree(dirs[1])
    os.mkdir(dirs[1])
    with pytest.raises(LogDirOfflineError):
        store.create("orders", 1)
    store.reopen_dir(dirs[1], format_new=True)
    assert states(store) == ["online"] * 3
    with pytest.raises(UnknownPartitionError):
        store.log("orders", 1)
    store.create("orders", 1, log_dir=dirs[1]).append(b"anew", durable=True)
    store.close()
    with LogStore.open(dirs) as after:
        assert not after.recovery_report.warnings, str(after.recovery_report)
        assert states(after) == ["online"] * 3
        assert len(after["orders", 1]) == 1


def test_kip112_scenario_4_a_disk_is_taken_out(store: LogStore, dirs: list[str]) -> None:
    """A dead disk is removed with its replicas, which are listed; then no log dir is bad."""
    break_disk(store, dirs[1])
    with pytest.raises(LogDirError, match="serves"):
        store.remove_dir(dirs[0], lost=True)
    assert store.remove_dir(dirs[1], lost=True) == (TopicPartition("orders", 1),)
    assert store.log_dirs == (dirs[0], dirs[2])
    assert store.create("orders", 1).log_dir in store.log_dirs
    assert store.metrics().OfflineLogDirectoryCount == 0
    store.close()
    with LogStore.open([dirs[0], dirs[2]]) as after:
        assert not after.recovery_report.warnings, str(after.recovery_report)
        assert len(after) == 3
    with LogStore.open(dirs) as after:  # the old disk comes back: it is no member any more
        assert states(after) == ["online", "offline", "online"]


def test_kip112_scenario_8_a_topic_is_deleted_while_a_dir_is_offline(
    store: LogStore, dirs: list[str]
) -> None:
    """Replicas on good dirs are deleted; the others can be deleted when their dir is back."""
    store.take_offline(dirs[1])
    store.delete("orders", 0)
    with pytest.raises(LogDirOfflineError):
        store.delete("orders", 1)
    with pytest.raises(UnknownPartitionError):
        store.log("orders", 0)
    store.reopen_dir(dirs[1])
    with pytest.raises(UnknownPartitionError):
        store.log("orders", 0)
    store.delete("orders", 1)
    store.close()
    with LogStore.open(dirs) as after:
        assert [str(key) for key in after] == ["orders-2"]


def test_a_further_dir_joins(store: LogStore, dirs: list[str], tmp_path: Path) -> None:
    """The new dir gets replicas at once, and belongs to the store from then on."""
    new = str(tmp_path / "disk3")
    with pytest.raises(LogDirIdentityError):
        store.add_dir(new, format_new=False)
    store.add_dir(new)
    assert store.create("fresh", 0, log_dir=new).append(b"x", durable=True) == 0
    with pytest.raises(LogDirError, match="already"):
        store.add_dir(new + "/.")
    store.close()
    with LogStore.open([*dirs, new]) as after:
        assert states(after) == ["online"] * 4
        assert len(after["fresh", 0]) == 1
    with LogStore.open(dirs) as after:
        assert after.metrics().OfflineLogDirectoryCount == 1


def test_a_dir_that_was_missing_is_added_with_what_it_holds(dirs: list[str]) -> None:
    """A store that started without the dir then serves the replicas of the dir."""
    with LogStore.open(dirs[:2]) as store:
        with pytest.raises(LogDirOfflineError):
            store.log("orders", 2)
        store.add_dir(dirs[2])
        assert len(store["orders", 2]) == 10
        assert store.metrics().OfflineLogDirectoryCount == 0
        with pytest.raises(UnknownPartitionError):
            store.log("orders", 9)


def test_a_missing_dir_is_given_up_by_its_id(dirs: list[str]) -> None:
    """The path of the missing dir is no longer known."""
    with LogStore.open(dirs[:2]) as store:
        (missing,) = store.host.replicas.missing_ids
        with pytest.raises(LogDirError, match="lost"):
            store.remove_dir(missing)
        assert store.remove_dir(missing, lost=True) == (("orders", 2),)
        store.create("orders", 2)
    with LogStore.open(dirs[:2]) as store:
        assert not store.recovery_report.warnings


def test_what_was_given_up_is_missed_no_more(store: LogStore, dirs: list[str]) -> None:
    """If a second disk fails, its replicas are offline, but not those of the first disk."""
    store.take_offline(dirs[1])
    assert store.remove_dir(dirs[1], lost=True) == (("orders", 1),)
    store.take_offline(dirs[2])
    assert store.metrics().OfflineReplicaCount == 1
    assert ("orders", 1) not in store
    assert store.create("orders", 1, is_new=True).append(b"anew") == 0


def test_a_dir_of_another_store_is_refused(store: LogStore, tmp_path: Path) -> None:
    """A dir that another process, or another store, has open is refused, too."""
    other = str(tmp_path / "theirs")
    with LogStore.open(other), pytest.raises(LogDirError):
        store.add_dir(other)
    with pytest.raises(LogDirIdentityError, match="another store"):
        store.add_dir(other)
    assert len(store.log_dirs) == 3


def test_a_dir_is_removed_when_it_holds_nothing(store: LogStore, dirs: list[str]) -> None:
    """A dir must be empty before its removal; after that, it is not a member."""
    with pytest.raises(LogDirError, match="orders-1"):
        store.remove_dir(dirs[1])
    store.delete("orders", 1)
    assert store.remove_dir(dirs[1]) == ()
    assert store.log_dirs == (dirs[0], dirs[2])
    assert not open_below(dirs[1])
    store.add_dir(dirs[1])
    assert store.create("orders", 1, log_dir=dirs[1]).append(b"x") == 0


def test_a_dir_that_others_need_is_not_removed(store: LogStore, dirs: list[str]) -> None:
    """While a dir is offline, the record of a deletion must be kept."""
    store.take_offline(dirs[2])
    store.delete("orders", 1)
    with pytest.raises(LogDirError, match="deleted replicas"):
        store.remove_dir(dirs[1])
    store.reopen_dir(dirs[2])


def test_the_last_dir_stays(tmp_path: Path) -> None:
    """A store needs at least one log dir."""
    with LogStore.open(tmp_path / "a") as store, pytest.raises(LogDirError, match="no other"):
        store.remove_dir(tmp_path / "a")


def test_cordon_and_wishes_last(store: LogStore, dirs: list[str]) -> None:
    """Both can be set and removed, and survive a restart; a wish for a partition is refused."""
    store.cordon(dirs[0])
    with pytest.raises(PartitionExistsError):
        store.prefer_dir("orders", 0, dirs[1])
    store.prefer_dir("later", 0, dirs[1])
    store.prefer_dir("later", 0, dirs[2])
    store.prefer_dir("barred", 0, dirs[0])
    store.close()
    with LogStore.open(dirs) as after:
        assert states(after)[0] == "cordoned"
        assert after.create("later", 0).log_dir == dirs[2]
        assert after.create("barred", 0).log_dir != dirs[0]
        after.uncordon(dirs[0])
        assert states(after) == ["online"] * 3


def test_regression_an_offline_dir_says_how_it_is_removed(store: LogStore, dirs: list[str]) -> None:
    """The refusal did not say how the dir can be removed."""
    store.take_offline(dirs[2])
    with pytest.raises(LogDirOfflineError, match="remove-dir --lost"):
        store.remove_dir(dirs[2])
    store.remove_dir(dirs[2], lost=True)


def test_a_copy_that_is_open_is_never_replaced(store: LogStore, dirs: list[str]) -> None:
    """If a copy that outranks the open one returns, both are reported, and the open one serves."""
    from logstore.log.metadata import FILE_NAME, PartitionMetadata

    store.take_offline(dirs[1])
    copy = Path(dirs[1], "orders-0")
    shutil.copytree(Path(dirs[0], "orders-0"), copy)
    metadata = PartitionMetadata.read(str(copy))
    assert metadata is not None
    metadata._replace(generation=metadata.generation + 1).write(str(copy.parents[1]))
    shutil.copy(copy.parents[1] / FILE_NAME, copy)  # the library writes to no dir it let go of
    with pytest.raises(DuplicateLogError) as raised:
        store.reopen_dir(dirs[1])
    assert str(copy) in str(raised.value)
    assert str(Path(dirs[0], "orders-0")) in str(raised.value)
    assert store["orders", 0].log_dir == dirs[0]
    assert len(store["orders", 1]) == 10
    assert copy.exists()


def test_a_dir_that_hangs_keeps_nobody_from_administration(
    store: LogStore, dirs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No administration of the other dirs calls the disk that hangs."""
    watchdog_of(store).stop()
    store.host.replicas.dir_of(dirs[0]).change(Event.STUCK, "it hangs")
    for name in ("open_file", "scandir", "mkdir", "rename", "lstat"):
        monkeypatch.setattr(files, name, failing(name, dirs[0], errno.EDEADLK))
    store.add_dir(tmp_path / "disk3")
    store.take_offline(dirs[1])
    store.reopen_dir(dirs[1])
    store.cordon(dirs[2])
    store.remove_dir(tmp_path / "disk3")
    with pytest.raises(LogDirSuspectError):
        store.cordon(dirs[0])
    store.take_offline(dirs[0])
    assert states(store) == ["offline", "online", "cordoned"]


def test_two_changes_of_one_dir_do_not_meet(store: LogStore, dirs: list[str]) -> None:
    """The second change is told to try again."""
    with state_of(store).claims.change_of(dirs[0]), pytest.raises(LogDirError, match="is running"):
        store.cordon(dirs[0])
    store.cordon(dirs[0])
