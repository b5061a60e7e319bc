"""Another process reads a store while its owner works."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logstore.disk import files
from logstore.disk.log_dir import LogDir
from logstore.errors import (
    LogClosedError,
    LogDirIdentityError,
    LogDirOfflineError,
    OffsetOutOfRangeError,
    ReadOnlyStoreError,
    UnknownPartitionError,
)
from logstore.log import host
from logstore.names import TopicPartition
from logstore.store import view as views
from logstore.store.start import listing
from logstore.store.store import LogStore
from mover import MoveState, ReplicaMover
from support.inside import abandon, view_of


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    """Return two log dirs that do not exist yet."""
    return [str(tmp_path / f"disk{number}") for number in range(2)]


def tree(dirs: list[str]) -> dict[str, tuple[int, int]]:
    """Return the size and time of every file in the log dirs."""
    found = {}
    for one in dirs:
        for where, names, others in os.walk(one):
            for name in [".", *names, *others]:
                path = os.path.join(where, name)
                facts = os.lstat(path)
                found[path] = (facts.st_size, facts.st_mtime_ns)
    return found


def test_a_reader_sees_what_the_owner_does(dirs: list[str]) -> None:
    """Records, partitions and deletions appear in the reader without a new open."""
    with LogStore.open(dirs) as store, LogStore.open(dirs, read_only=True) as view:
        assert list(view) == []
        with pytest.raises(UnknownPartitionError):
            view.log("orders", 0)
        log = store.create("orders", 0)
        log.extend([b"a", b"b"])
        assert [record.value for record in view["orders", 0]] == [b"a", b"b"]
        log.append(b"c")
        assert view["orders", 0][2].value == b"c"
        store.create("orders", 1)
        assert ("orders", 1) in view
        assert list(view) == [TopicPartition("orders", 0), TopicPartition("orders", 1)]
        assert len(view) == 2
        store.delete("orders", 0)
        assert list(view) == [TopicPartition("orders", 1)]
        with pytest.raises(UnknownPartitionError):
            view.log("orders", 0)
        assert ("orders", 0) not in view


def test_regression_a_log_that_its_reader_closed_is_opened_anew(dirs: list[str]) -> None:
    """The view always returned the closed log; an owner's log says what to do."""
    with LogStore.open(dirs) as owner:
        owner.create("orders", 0).append(b"a")
        with LogStore.open(dirs, read_only=True) as view:
            log = view["orders", 0]
            log.close()
            assert view["orders", 0][0].value == b"a" and view["orders", 0] is not log
            with pytest.raises(LogClosedError, match="ask the store for the log again"):
                log[0]
        owner["orders", 0].close()
        with pytest.raises(LogClosedError, match="open the store again"):
            owner["orders", 0][0]


def test_a_partition_made_anew_under_an_old_name_is_another_one(dirs: list[str]) -> None:
    """The reader does not continue with the files of the deleted partition."""
    with LogStore.open(dirs) as store, LogStore.open(dirs, read_only=True) as view:
        store.create("orders", 0, log_dir=dirs[0]).extend([b"old"] * 5)
        assert len(view["orders", 0]) == 5
        store.delete("orders", 0)
        store.create("orders", 0, log_dir=dirs[0]).append(b"new")
        assert [record.value for record in view["orders", 0]] == [b"new"]


@pytest.mark.parametrize("source", [0, 1])
def test_a_replica_that_moves_while_the_log_dirs_are_listed_is_there(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch, source: int
) -> None:
    """Listed one after the other, the dirs may have the replica in no listing, or in two."""
    with (
        LogStore.open(dirs, admin_socket=False) as store,
        ReplicaMover(store) as mover,
        LogStore.open(dirs, read_only=True) as view,
    ):
        store.create("orders", 0, log_dir=dirs[source]).extend([b"a", b"b"])
        listed: list[LogDir] = []

        def list_log_dir(log_dir: LogDir) -> listing.Listing:
            found = listing.list_log_dir(log_dir)
            listed.append(log_dir)
            if len(listed) == 1:
                assert mover.move("orders", 0, dirs[1 - source]).wait() is MoveState.DONE
            return found

        monkeypatch.setattr(views, "list_log_dir", list_log_dir)
        looks: list[Callable[[], bool]] = [
            lambda: list(view) == [("orders", 0)],
            lambda: ("orders", 0) in view,
            lambda: [record.value for record in view.log("orders", 0)] == [b"a", b"b"],
        ]
        for look in looks:
            view_of(view)._seen.clear()
            assert look()
            listed.clear()
            source = 1 - source


def test_where_replicas_come_and_go_all_the_time_a_listing_ends(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that exists all the time is found."""
    with LogStore.open(dirs) as store, LogStore.open(dirs, read_only=True) as view:
        store.create("orders", 0)

        def list_log_dir(log_dir: LogDir) -> listing.Listing:
            store.create("others", len(store))
            return listing.list_log_dir(log_dir)

        monkeypatch.setattr(views, "list_log_dir", list_log_dir)
        assert ("orders", 0) in view


def test_a_reader_writes_nothing_and_starts_no_thread(dirs: list[str]) -> None:
    """This holds even after a crash: the start-up table changes nothing."""
    store = LogStore.open(dirs)
    for number in range(4):
        store.create("orders", number).extend([b"x"] * 10)
    abandon(store)
    Path(dirs[0], "unfinished-0").mkdir()
    Path(dirs[0], "meta.properties.0a1b2c3d.tmp").touch()
    before, threads = tree(dirs), threading.active_count()
    with LogStore.open(dirs, read_only=True) as view:
        assert len(view) == 4
        for key in view:
            assert len(view[key]) == 10
        assert [len(row.partitions) for row in view.describe_dirs().log_dirs] == [2, 2]
        assert all(p.size > 0 for row in view.describe_dirs().log_dirs for p in row.partitions)
        assert view.metrics().partition_count == 4
        assert view.verify().is_sound
        assert threading.active_count() == threads
    assert tree(dirs) == before


def test_a_reader_is_no_second_owner(dirs: list[str]) -> None:
    """A reader takes no lock, and the owner's close counts as clean."""
    LogStore.open(dirs).close()
    with LogStore.open(dirs, read_only=True), LogStore.open(dirs) as store:
        store.create("orders", 0)
        with LogStore.open(dirs, read_only=True):
            pass
    with LogStore.open(dirs) as store:
        assert store.recovery_report.was_clean


def test_regression_a_reader_changes_no_log_dir(dirs: list[str], tmp_path: Path) -> None:
    """A view wrote the settings of a log dir that another process owned."""
    with LogStore.open(dirs) as store, LogStore.open(dirs, read_only=True) as view:
        store.create("orders", 0).append(b"x")
        view["orders", 0].read(0)
        before = tree(dirs)
        calls: list[Callable[[], object]] = [
            lambda: view.add_dir(tmp_path / "another"),
            lambda: view.cordon(dirs[0]),
            lambda: view.uncordon(dirs[0]),
            lambda: view.prefer_dir("orders", 1, dirs[0]),
            lambda: view.remove_dir(dirs[1]),
            lambda: view.remove_dir(dirs[1], lost=True),
            lambda: view.reopen_dir(dirs[0]),
            lambda: view.take_offline(dirs[0]),
        ]
        for call in calls:
            with pytest.raises(ReadOnlyStoreError):
                call()
        assert tree(dirs) == before and not (tmp_path / "another").exists()
        assert view["orders", 0][0].value == b"x"


def test_regression_a_reader_tells_of_partitions_not_read_yet(dirs: list[str]) -> None:
    """The `repr` counted only the logs that were already opened."""
    with LogStore.open(dirs) as store:
        store.create("orders", 0)
        store.create("orders", 1)
    with LogStore.open(dirs, read_only=True) as view:
        assert repr(view).startswith("<LogStore 2 partitions in")


def test_a_reader_refuses_to_write(dirs: list[str]) -> None:
    """Each call that would change something raises ReadOnlyStoreError; later LogClosedError."""
    with LogStore.open(dirs) as store:
        store.create("orders", 0)
    view = LogStore.open(dirs, read_only=True)
    log = view["orders", 0]
    calls: list[Callable[[], object]] = [
        lambda: view.create("orders", 1),
        lambda: view.delete("orders", 0),
        lambda: view.repair("orders", 0),
        view.flush,
        lambda: log.append(b"x"),
        lambda: log.truncate_to(0),
        log.flush,
        lambda: log.subscribe(print),
        lambda: log.recovery_point,
        lambda: host.set_config(log, lambda config: config),
    ]
    for call in calls:
        with pytest.raises(ReadOnlyStoreError):
            call()
    view.close()
    view.close()
    with pytest.raises(LogClosedError):
        view.log("orders", 0)


def test_where_there_is_no_store_a_reader_makes_none(dirs: list[str]) -> None:
    """The path is wrong, or no store was made there yet; nothing is created."""
    with pytest.raises(LogDirIdentityError, match="no store"):
        LogStore.open(dirs, read_only=True)
    assert not Path(dirs[0]).exists()
    os.mkdir(dirs[0])
    with pytest.raises(LogDirIdentityError):
        LogStore.open(dirs[0], read_only=True)
    assert os.listdir(dirs[0]) == []


def test_a_missing_disk_is_offline_for_a_reader_too(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are read; a disk that fails later goes offline, and no OSError is raised."""
    with LogStore.open(dirs) as store:
        for number, path in enumerate(dirs):
            store.create("orders", number, log_dir=path).append(b"x")
    os.rename(dirs[1], dirs[1] + ".away")
    with LogStore.open(dirs, read_only=True) as view:
        assert len(view["orders", 0]) == 1
        with pytest.raises(LogDirOfflineError):
            view.log("orders", 1)
        assert view.recovery_report.offline_dirs[0].path == dirs[1]
        assert view.metrics().OfflineLogDirectoryCount == 1

        def fail(*arguments: object) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(files, "scandir", fail)
        assert list(view) == [TopicPartition("orders", 0)]
        with pytest.raises(LogDirOfflineError):
            view.log("orders", 0)


def test_regression_a_reader_names_what_a_missing_disk_holds(dirs: list[str]) -> None:
    """Its partitions were left out, as if the store did not have them."""
    third = dirs[0] + "-third"
    with LogStore.open([*dirs, third]) as store:
        for number, path in enumerate([*dirs, third]):
            store.create("orders", number, log_dir=path).append(b"x")
        store.create("doomed", 0, log_dir=dirs[1])
        store.delete("doomed", 0)
    every = [TopicPartition("orders", number) for number in range(3)]
    os.rename(dirs[1], dirs[1] + ".away")
    with LogStore.open([*dirs, third], read_only=True) as view:
        assert list(view) == every and len(view) == 3
        assert ("orders", 1) in view and ("doomed", 0) not in view
        with pytest.raises(LogDirOfflineError, match="there is no such directory"):
            view.log("orders", 1)
        with pytest.raises(LogDirOfflineError, match="on no log dir that serves; it may be on: "):
            view.log("orders", 3)  # the owner may have made it just now
        assert view.metrics().OfflineReplicaCount == 1
        assert repr(view).startswith("<LogStore 3 partitions")
        assert not view.verify().is_sound
    with LogStore.open(dirs[0], read_only=True) as view:
        assert list(view) == every
        with pytest.raises(LogDirOfflineError, match="add it to --log-dirs"):
            view.log("orders", 1)


def test_regression_a_view_whose_disk_fails_is_let_go(
    dirs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The release of its logs raised a TypeError, which was only logged."""
    with LogStore.open(dirs) as store:
        store.create("orders", 0, log_dir=dirs[0]).append(b"x")
        store.create("orders", 1, log_dir=dirs[1]).append(b"x")
    with LogStore.open(dirs, read_only=True) as view:
        logs = [view.log("orders", number) for number in range(2)]
        dead = view.host.replicas.dir_of(dirs[1])
        logs[0].detach(dead.take_offline("it is gone"), of=dead)
        logs[1].detach(dead.offline_error(), of=dead)
        assert logs[0][0].value == b"x"
        with pytest.raises(LogDirOfflineError):
            logs[1].read(0)
    assert not [record for record in caplog.records if "dropping" in record.getMessage()]


@pytest.mark.parametrize("next_value", [b"other", b"o", b"a longer one"])
@pytest.mark.parametrize("is_settled", [False, True])
def test_a_batch_that_was_taken_back_is_served_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, next_value: bytes, is_settled: bool
) -> None:
    """If the owner removes a batch, it is gone, or replaced, at the next look."""
    with LogStore.open(tmp_path) as store, LogStore.open(tmp_path, read_only=True) as beside:
        log = store.create("orders", 0)
        log.extend([b"a", b"b"])
        view = beside.log("orders", 0)
        if is_settled:  # so that only the file itself is looked at
            os.utime(log.directory, (1, 1))
        served: list[Any] = []

        def written(fd: int, data: bytes, position: int) -> int:
            os.pwrite(fd, data, position)
            raise KeyboardInterrupt

        def taken_back(fd: int, size_bytes: int) -> None:
            served.extend([*view, view[2]])
            os.ftruncate(fd, size_bytes)

        assert [record.value for record in view] == [b"a", b"b"]
        with monkeypatch.context() as patch:
            patch.setattr(files, "pwrite", written)
            patch.setattr(files, "ftruncate", taken_back)
            with pytest.raises(KeyboardInterrupt):
                log.append(b"never")
        assert [record.value for record in served] == [b"a", b"b", b"never", b"never"]
        assert [record.value for record in view] == [b"a", b"b"]
        with pytest.raises(OffsetOutOfRangeError) as caught:
            view[2]
        assert (caught.value.offset, caught.value.log_end_offset) == (2, 2)
        log.append(next_value)
        assert view[2].value == next_value
        assert [record.value for record in view] == [b"a", b"b", next_value]
        assert view.verify() == []


@pytest.mark.parametrize("is_known", [False, True])
def test_regression_a_replica_that_is_swapped_as_it_is_looked_at_is_not_empty(
    dirs: list[str], monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """Its directory is listed under one name, and renamed before the files are read."""
    with (
        LogStore.open(dirs, admin_socket=False) as store,
        ReplicaMover(store) as mover,
        LogStore.open(dirs, read_only=True) as view,
    ):
        log = store.create("orders", 0, log_dir=dirs[0])
        log.extend([b"a", b"b"])
        if is_known:
            known = view.log("orders", 0)
            assert len(list(known)) == 2
            os.utime(os.path.join(dirs[0], "orders-0"))  # it is listed anew
        live = os.path.join(dirs[0], "orders-0")
        moved: list[str] = []

        def names(path: str, ask: Callable[[str], list[str]] = files.names) -> list[str]:
            found = ask(path)
            if path == live and not moved:
                moved.append(path)
                assert mover.move("orders", 0, dirs[1]).wait() is MoveState.DONE
            return found

        monkeypatch.setattr(files, "names", names)
        found = known if is_known else view.log("orders", 0)
        assert [record.value for record in found] == [b"a", b"b"]
        assert moved
