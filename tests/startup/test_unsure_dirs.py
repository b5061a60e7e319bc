"""A log dir that is away after a kill may hold replicas that no catalog names."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore import (
    LogDirError,
    LogDirOfflineError,
    LogStore,
    TopicPartition,
    UnknownPartitionError,
)
from logstore.disk.documents.catalog_file import CATALOG_NAME, decode_catalog
from logstore.store.admin.commands import remove_dir, reopen_dir
from mover import ReplicaMover
from support.inside import state_of
from support.moves import directory_id_of

OLD, NEW = TopicPartition("old", 0), TopicPartition("new", 0)


def killed(paths: list[Path], work: Callable[[LogStore], object]) -> None:
    """Leave log dirs as they are when their owner is killed after some work."""
    with LogStore.open(paths, admin_socket=False) as store:
        work(store)
        for path in paths:
            shutil.copytree(path, path.with_suffix(".then"))
    for path in paths:
        shutil.rmtree(path)
        path.with_suffix(".then").rename(path)


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    """Make a store of three log dirs with a replica on the last one."""
    paths = [tmp_path / name for name in "abc"]
    with LogStore.open(paths, admin_socket=False) as store:
        store.create(*OLD, log_dir=paths[2]).append(b"1", durable=True)
    return paths


def create_new(store: LogStore) -> None:
    """Create a partition on the last log dir."""
    store.create(*NEW, log_dir=store.log_dirs[2]).append(b"2", durable=True)


def lose(disk: Path, *, is_replaced: bool) -> str:
    """Take a disk away, and perhaps put an empty one in its place; give the id of the lost one."""
    dead = disk.with_name("dead")
    disk.rename(dead)
    if is_replaced:
        disk.mkdir()
    return directory_id_of(dead)


def give_up(store: LogStore, disk: Path, *, is_replaced: bool, may_lose: bool = False) -> object:
    """Do what the command line does, without or with `--yes`."""
    if is_replaced:
        return reopen_dir(state_of(store), str(disk), format_new=True, may_lose=may_lose)
    return remove_dir(state_of(store), str(disk), lost=True, may_lose=may_lose)


@pytest.mark.parametrize("starts", [0, 2], ids=["the first start", "two starts later"])
@pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced", "lost"])
def test_regression_a_disk_is_not_given_up_unasked_after_a_kill(
    disks: list[Path], is_replaced: bool, starts: int
) -> None:
    """The partition was created within the last minute, and was lost without a word."""
    with LogStore.open(disks, admin_socket=False) as store:
        store.delete(*OLD)
    killed(disks, create_new)
    lose(disks[2], is_replaced=is_replaced)
    for _ in range(starts):  # closed in order, which the loss must survive
        LogStore.open(disks, admin_socket=False).close()
    with LogStore.open(disks, admin_socket=False) as store:
        with pytest.raises(LogDirOfflineError):  # it may be there, so it is not unknown
            store.log(*NEW)
        with pytest.raises(LogDirError, match="was killed while"):
            give_up(store, disks[2], is_replaced=is_replaced)
        give_up(store, disks[2], is_replaced=is_replaced, may_lose=True)
        with pytest.raises(UnknownPartitionError):
            store.log(*NEW)
        store.create(*NEW)
    with LogStore.open(store.log_dirs, admin_socket=False) as store:
        assert store.recovery_report.is_sound and not store.recovery_report.warnings


@pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced", "lost"])
def test_known_replicas_are_named_with_a_warning_of_others(
    disks: list[Path], is_replaced: bool
) -> None:
    """What the catalog knows is named as before."""
    killed(disks, create_new)
    lose(disks[2], is_replaced=is_replaced)
    with (
        LogStore.open(disks, admin_socket=False) as store,
        pytest.raises(LogDirError, match=r"1 replica.*old-0.*was killed while") as caught,
    ):
        give_up(store, disks[2], is_replaced=is_replaced)
    assert caught.value.facts["lost"] == [["old", 0]]


@pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced", "lost"])
def test_after_a_close_in_order_there_is_no_doubt(disks: list[Path], is_replaced: bool) -> None:
    """Each catalog names every replica then, so an empty disk is given up without a question."""
    with LogStore.open(disks, admin_socket=False) as store:
        store.delete(*OLD)
    lose(disks[2], is_replaced=is_replaced)
    with LogStore.open(disks, admin_socket=False) as store:
        with pytest.raises(UnknownPartitionError):
            store.log(*NEW)
        give_up(store, disks[2], is_replaced=is_replaced)


def test_a_disk_that_comes_back_ends_the_doubt(disks: list[Path]) -> None:
    """What it holds is known then, and is named if it goes again."""
    killed(disks, create_new)
    lose(disks[2], is_replaced=False)
    with LogStore.open(disks, admin_socket=False) as store:
        disks[2].with_name("dead").rename(disks[2])
        store.reopen_dir(disks[2])
        assert [r.value for r in store.log(*NEW)] == [b"2"]
        with pytest.raises(UnknownPartitionError):
            store.log("never", 0)
    lose(disks[2], is_replaced=False)
    with (
        LogStore.open(disks, admin_socket=False) as store,
        pytest.raises(LogDirError, match=r"2 replicas.*new-0, old-0") as caught,
    ):
        give_up(store, disks[2], is_replaced=False)
    assert "was killed" not in str(caught.value)


def test_regression_a_moved_replica_is_known_before_its_source_goes(disks: list[Path]) -> None:
    """The source's log dir named itself for a minute; then a kill and the loss of the target."""
    ids = [directory_id_of(disk) for disk in disks]

    def move(store: LogStore) -> None:
        with ReplicaMover(store) as mover:
            mover.move(*OLD, disks[0]).wait(60)
            store.host.wait_purged(60)

    killed(disks, move)
    found = decode_catalog((disks[2] / CATALOG_NAME).read_bytes())
    assert found.places[OLD].directory_id == ids[0]
    lose(disks[0], is_replaced=False)
    with LogStore.open(disks, admin_socket=False) as store:
        with pytest.raises(LogDirOfflineError, match="old-0 is in the log dir"):
            store.log(*OLD)
        assert store.metrics().OfflineReplicaCount == 1
