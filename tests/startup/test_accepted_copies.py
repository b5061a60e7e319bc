"""Accept an old copy beside crashes and bad disks: it is accepted and seen, or it is as before."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

from logstore import LogStore, TopicPartition, UnknownPartitionError
from logstore.disk import files
from logstore.disk.documents.generations import WITNESS_NAME
from logstore.errors import LogDirError, ReplicaIncompleteError
from mover import MoveState, ReplicaMover
from support.crashing import CrashError, crash_at
from support.inside import abandon, keepers_of
from support.keepers import wait_for_keepers
from support.places import fast_directory
from support.two_disks import ORDERS, OTHER, PAYMENTS, Disks, opened

CALLS_MAX = 200
IN_COPY = [b"0"] * 5


def state_of(store: LogStore, path: str) -> str:
    return store.describe_dirs(log_dirs=[path]).log_dirs[0].state


def values(store: LogStore, key: TopicPartition) -> list[bytes | None]:
    return [record.value for record in store.log(*key)]


def with_old_copy(root: Path) -> Disks:
    """Two log dirs, with an old copy of the first in its place."""
    disks = Disks(root)
    with opened(disks.dirs) as store:
        store.log(*ORDERS).append(b"1", durable=True)
    disks.put_in()
    return disks


def delete_and_die(disks: Disks, number: int) -> int:
    """Delete a replica in doubt; the process dies at the n-th rename. Give the renames made."""
    store = opened(disks.dirs)
    with pytest.MonkeyPatch.context() as patch:
        calls = crash_at(patch, number, ["rename"])
        with contextlib.suppress(CrashError):
            store.delete(*ORDERS)
        for keeper in keepers_of(store).values():
            keeper.stop()
            keeper.join(10)
        abandon(store)
    return len(calls)


def test_regression_what_is_promoted_after_a_deletion_that_failed_stays(tmp_path: Path) -> None:
    """The mark of the deletion stayed: the next start deleted it, with what was acknowledged."""
    disks = with_old_copy(tmp_path)
    assert delete_and_die(disks, 1) == 1  # `partition.metadata` has the mark
    with opened(disks.dirs) as store:
        assert store.promote(*ORDERS)
        store.log(*ORDERS).append(b"acknowledged", durable=True)
    with opened(disks.dirs) as store:
        assert values(store, ORDERS) == [*IN_COPY, b"acknowledged"]


def test_regression_an_old_copy_stays_readable_until_its_deletion_is_durable() -> None:
    """Its directory was renamed before the copy was accepted: after a crash it was not served."""
    with fast_directory() as base:
        for number in range(CALLS_MAX):
            root = base / str(number)
            root.mkdir()
            disks = with_old_copy(root)
            is_over = delete_and_die(disks, number) < number
            with opened(disks.dirs) as store:
                if state_of(store, disks.dirs[0]) == "outdated":
                    assert not is_over and values(store, ORDERS) == IN_COPY
                    continue
                with pytest.raises(UnknownPartitionError):
                    store.log(*ORDERS)
                assert values(store, PAYMENTS) == IN_COPY
            if is_over:
                return
    raise AssertionError("a deletion takes too many calls")


@pytest.mark.parametrize("is_missing", [False, True])
def test_regression_an_acceptance_that_no_other_log_dir_can_record_is_refused(
    tmp_path: Path, is_missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other disk was full: the right disk was then served, without what was acknowledged."""
    disks, real = Disks(tmp_path), files.rename
    new = TopicPartition("new", 0)
    with opened(disks.dirs) as store:
        store.log(*ORDERS).append(b"1", durable=True)
        store.create(*new, log_dir=disks.dirs[0])
    disks.put_in()

    def rename(source: str, target: str) -> None:
        if target == os.path.join(disks.dirs[1], WITNESS_NAME):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)
        real(source, target)

    with opened(disks.dirs) as store:

        def decide() -> None:
            if is_missing:
                store.delete(*new)
            else:
                store.promote(*ORDERS)

        with monkeypatch.context() as patch:
            patch.setattr(files, "rename", rename)
            with pytest.raises(LogDirError, match="no other log dir could record") as refusal:
                decide()
            assert refusal.value.retriable
        with pytest.raises(ReplicaIncompleteError):
            store.log(*ORDERS).append(b"x")
        decide()
        assert state_of(store, disks.dirs[0]) == "online"
        assert (new in store) is not is_missing
        if not is_missing:
            store.log(*ORDERS).append(b"acknowledged", durable=True)
        store.log(*OTHER).append(b"x", durable=True)
        abandon(store)
    disks.take_out()
    with opened(disks.dirs) as store:
        assert state_of(store, disks.dirs[0]) == "outdated"


@pytest.mark.parametrize("is_given_up", [False, True])
def test_regression_what_was_deleted_does_not_come_back_with_an_old_copy_that_is_accepted(
    tmp_path: Path, is_given_up: bool
) -> None:
    """The record of the deletion was purged, and the copy that it covers was not.

    That must not happen either if another bad log dir is given up after that.
    """
    disks = Disks(tmp_path)
    old, other = disks.dirs
    store = opened([old, other, str(tmp_path / "third")] if is_given_up else disks.dirs)
    store.log(*ORDERS).append(b"1", durable=True)
    with ReplicaMover(store) as mover:
        assert mover.move(*PAYMENTS, other).wait(60) is MoveState.DONE
    wait_for_keepers(store)
    store.take_offline(old)
    if is_given_up:
        store.take_offline(str(tmp_path / "third"))
    store.delete(*PAYMENTS)
    disks.put_in()
    store.reopen_dir(old)
    assert state_of(store, old) == "outdated" and PAYMENTS not in store
    assert store.promote(*ORDERS)
    if is_given_up:
        store.remove_dir(str(tmp_path / "third"), lost=True)
    wait_for_keepers(store)
    store.close()
    for path in disks.dirs:
        assert not any("payments" in name for name in os.listdir(path))
    with opened(disks.dirs) as store:
        assert PAYMENTS not in store
