"""Cut the power, or lose a disk, after a deletion: what was deleted stays deleted.

Each test once failed: a copy of the partition was left, and nothing said that it was deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.durable_stores import SMALL, cut, leave, open_store, values_of
from crash.history_machine import in_one_thread, purge_all
from logstore import LogDirError, LogStore, UnknownPartitionError
from mover import MoveState, ReplicaMover
from support.gate import gated
from support.keepers import SECONDS_MAX, wait_for_keepers
from support.moves import StagedMove
from support.places import fast_directory
from support.recorder import Recorder


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


def gone(root: Path) -> None:
    """A deleted partition is gone, and its name is free."""
    with open_store(root) as store:
        assert store.recovery_report.is_sound, str(store.recovery_report)
        with pytest.raises(UnknownPartitionError):
            store.log("t", 0)
        log = store.create("t", 0)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)


def test_regression_a_deletion_after_a_move_outlives_a_power_cut(base: Path) -> None:
    """The deletion went from one disk before the removal of the old copy on another was synced."""
    root = base / "store"
    root.mkdir()
    with Recorder(root) as recorder:
        store = open_store(root)
        log = store.create("t", 0, config=SMALL, log_dir=root / "a")
        log.extend(values_of(20), durable=True)
        with ReplicaMover(store) as mover:
            assert mover.move("t", 0, root / "b").wait(SECONDS_MAX) is MoveState.DONE
        wait_for_keepers(store)
        store.delete("t", 0)
        wait_for_keepers(store)
        store.create("u", 0, log_dir=root / "b")  # syncs the names in that log dir alone
        leave(store)
    gone(cut(recorder, base / "cut"))


def moved(root: Path) -> LogStore:
    """Open a store whose only partition was moved from log dir a to b; its old copy is in a."""
    store = open_store(root)
    log = store.create("t", 0, config=SMALL, log_dir=root / "a")
    log.extend(values_of(20), durable=True)
    assert ReplicaMover(store).move("t", 0, root / "b").state is MoveState.DONE
    return store


def test_regression_a_deletion_stays_in_a_log_dir_that_is_removed(base: Path) -> None:
    """The log dir went with the deletion on it, and an old copy elsewhere came back at a start."""
    root = base / "store"
    root.mkdir()
    with in_one_thread():  # no keeper removes anything by itself
        store = moved(root)
        store.delete("t", 0)
        with pytest.raises(LogDirError, match="t-0 was deleted") as raised:
            store.remove_dir(root / "b")
        assert raised.value.retriable
        purge_all(store)
        store.remove_dir(root / "b")
        leave(store)
    with LogStore.open([root / "a", root / "c"], admin_socket=False) as store:
        assert store.recovery_report.is_sound, str(store.recovery_report)
        assert ("t", 0) not in store


def test_regression_an_old_copy_does_not_leave_with_its_log_dir(base: Path) -> None:
    """It came back with the log dir after its partition was deleted, as all that was left."""
    root = base / "store"
    root.mkdir()
    with in_one_thread():  # no keeper removes anything by itself
        leave(moved(root))
        store = open_store(root)
        store.remove_dir(root / "a")
        store.delete("t", 0)
        purge_all(store)
        store.add_dir(root / "a")
        leave(store)
    gone(root)


def test_regression_an_old_copy_that_is_longer_keeps_its_log_dir(base: Path) -> None:
    """The live copy lacks records that the old one has: nothing tells why."""
    root = base / "store"
    root.mkdir()
    with in_one_thread():
        leave(moved(root))
        store = open_store(root)
        store.log("t", 0).truncate_to(5)
        with pytest.raises(LogDirError, match=r"t-0.*delete may still be needed"):
            store.remove_dir(root / "a")
        leave(store)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_regression_a_deletion_outlives_the_disk_it_is_on(base: Path, is_replaced: bool) -> None:
    """The disk was given up with the deletion on it, and an old copy elsewhere stayed for good."""
    root = base / "store"
    root.mkdir()
    with in_one_thread():  # no keeper removes anything by itself
        store = moved(root)
        store.take_offline(root / "c")  # nothing is purged while a log dir is offline
        store.delete("t", 0)
        store.reopen_dir(root / "c")
        store.take_offline(root / "b")
        shutil.rmtree(root / "b")
        if is_replaced:
            (root / "b").mkdir()
            store.reopen_dir(root / "b", format_new=True)
        else:
            store.remove_dir(root / "b", lost=True)
        leave(store)
    names = "abc" if is_replaced else "ac"
    with LogStore.open([root / name for name in names], admin_socket=False) as store:
        assert store.recovery_report.is_sound, str(store.recovery_report)
        assert ("t", 0) not in store
    assert not list(root.glob("*/t-0*"))


def test_regression_one_of_two_deletions_is_on_a_disk_that_is_given_up(base: Path) -> None:
    """The copy of the second one was left alone, and came back as all that is left of it."""
    root = base / "store"
    root.mkdir()
    with in_one_thread():  # no keeper removes anything by itself
        store = open_store(root)
        store.create("t", 0, config=SMALL, log_dir=root / "c").extend(values_of(20), durable=True)
        store.delete("t", 0)
        log = store.create("t", 0, config=SMALL, log_dir=root / "a")
        log.extend(values_of(20), durable=True)
        assert ReplicaMover(store).move("t", 0, root / "b").state is MoveState.DONE
        store.delete("t", 0)
        leave(store)
        store = open_store(root)  # it knows both deletions
        store.take_offline(root / "b")
        shutil.rmtree(root / "b")
        store.remove_dir(root / "b", lost=True)
        leave(store)
    with LogStore.open([root / "a", root / "c"], admin_socket=False) as store:
        assert store.recovery_report.is_sound, str(store.recovery_report)
        assert ("t", 0) not in store
        wait_for_keepers(store)
        assert not list(root.glob("*/t-0*"))


def test_regression_the_space_of_a_deletion_is_free_once_no_dir_is_bad(base: Path) -> None:
    """What was deleted while a log dir was offline stayed until the next start."""
    root = base / "store"
    root.mkdir()
    store = open_store(root)
    log = store.create("t", 0, config=SMALL, log_dir=root / "a")
    log.extend(values_of(20), durable=True)
    store.take_offline(root / "c")
    store.delete("t", 0)
    wait_for_keepers(store)
    assert list(root.glob("a/t-0*"))
    store.remove_dir(root / "c", lost=True)
    wait_for_keepers(store)
    assert not list(root.glob("a/t-0*"))
    store.close()


def test_regression_a_cancelled_copy_does_not_outlive_the_deletion(base: Path) -> None:
    """The removal of a cancelled move's copy was not synced, and the deletion went before it."""
    root = base / "store"
    root.mkdir()
    with Recorder(root) as recorder:
        store = open_store(root)
        log = store.create("t", 0, config=SMALL, log_dir=root / "a")
        for value in values_of(20):
            log.append(value)
        log.flush()
        with gated(store) as (mover, gate):
            gate.hold(2)
            move = mover.move("t", 0, root / "b")
            gate.wait_until_held()
            move.cancel()
            assert move.wait(SECONDS_MAX) is MoveState.CANCELLED
        store.delete("t", 0)
        wait_for_keepers(store)
        leave(store)
    gone(cut(recorder, base / "cut"))


def test_regression_what_a_promotion_left_goes_with_the_deletion(base: Path) -> None:
    """A promoted replica was deleted, and the copies that it outranked came back as the replica."""
    root = base / "store"
    root.mkdir()
    with open_store(root) as store:
        log = store.create("t", 0, config=SMALL, log_dir=root / "a")
        log.extend(values_of(20), durable=True)
    staged = StagedMove(root / "a", root / "b", "t", 0, 20).name().copy()
    staged.live.rename(staged.delete)
    with open_store(root) as store:
        assert store.recovery_report.incomplete
        assert store.promote("t", 0)
        store.delete("t", 0)
        wait_for_keepers(store)
    gone(root)
