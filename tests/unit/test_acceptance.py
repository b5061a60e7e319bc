"""An old copy is not changed until its user accepts it; then the other disk is the old copy."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from logstore import LogStore, TopicPartition, UnknownPartitionError
from logstore.errors import LogDirError, ReplicaIncompleteError, ReplicaOfflineError
from mover import MoveState, ReplicaMover, plan_moves
from mover.job import Job
from support.inside import abandon, keepers_of
from support.keepers import wait_for_keepers
from support.moves import StagedMove
from support.two_disks import ORDERS, OTHER, PAYMENTS, Disks, opened


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


def state_of(store: LogStore, path: str) -> str:
    return store.describe_dirs(log_dirs=[path]).log_dirs[0].state


@pytest.mark.parametrize("is_beside", [False, True])
def test_regression_an_old_copy_takes_no_replica(
    disks: Disks, is_beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that the old copy accepted were lost when the current disk was mounted."""
    old, other = disks.dirs
    store = opened(disks.dirs)
    store.log(*ORDERS).append(b"1", durable=True)
    if is_beside:
        store.take_offline(old)
        disks.put_in()
        store.reopen_dir(old)
    else:
        store.close()
        disks.put_in()
        store = opened(disks.dirs)
    assert state_of(store, old) == "outdated"
    with pytest.raises(LogDirError, match="in doubt: orders-0, payments-0; mount") as refusal:
        store.create("new", 0, log_dir=old, is_new=True)
    assert not refusal.value.retriable
    assert store.create("new", 0, is_new=True).log_dir == other
    assert all(move.target != old for move in plan_moves(store).moves)
    with ReplicaMover(store) as mover, monkeypatch.context() as patch:
        copied: list[Job] = []
        patch.setattr(Job, "copy", copied.append)
        move = mover.move(*OTHER, old)
        assert move.wait(60) is MoveState.FAILED and isinstance(move.error, LogDirError)
        assert not copied
    store.log(*OTHER).append(b"1", durable=True)
    store.close()
    disks.take_out()
    with opened(disks.dirs) as store:
        assert store.recovery_report.is_sound and len(list(store.log(*OTHER))) == 51
        assert len(list(store.log(*ORDERS))) == 6 and "new" in {key.topic for key in store}


def test_a_move_that_is_under_way_does_not_end_in_an_old_copy(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When all is copied, a log dir may return and show that the move's target is an old copy."""
    from mover.swap import Swap

    with opened(disks.dirs) as store:
        target = store.host.replicas.dir_of(disks.dirs[0])
        prepare = Swap.prepare

        def then_old(swap: Swap) -> None:
            prepare(swap)
            from logstore.store.dirs.old_copies import count_as_old

            count_as_old(target, "it is old")

        monkeypatch.setattr(Swap, "prepare", then_old)
        with ReplicaMover(store) as mover:
            assert mover.move(*OTHER, disks.dirs[0]).wait(60) is MoveState.FAILED
        assert store.log(*OTHER).log_dir == disks.dirs[1]


def test_regression_what_a_promotion_let_in_is_not_lost_in_silence(disks: Disks) -> None:
    """The current disk replaced the old copy, and the same offsets were given to other records."""
    with opened(disks.dirs) as store:
        store.log(*ORDERS).append(b"1")
    disks.put_in()
    with opened(disks.dirs) as store:
        assert store.promote(*ORDERS)
        store.log(*ORDERS).append(b"acknowledged", durable=True)
        assert state_of(store, disks.dirs[0]) == "online"
        with pytest.raises(ReplicaIncompleteError):
            store.log(*PAYMENTS).append(b"x")
        abandon(store)
    with opened(disks.dirs) as store:
        assert store.log(*ORDERS).append(b"more", durable=True) == 6
        with pytest.raises(ReplicaIncompleteError, match="was an old copy when it was accepted"):
            store.log(*PAYMENTS).append(b"x")
        abandon(store)
    disks.take_out()
    with opened(disks.dirs) as store:
        assert state_of(store, disks.dirs[0]) == "outdated"
        for key in (ORDERS, PAYMENTS):
            with pytest.raises(ReplicaIncompleteError):
                store.log(*key).append(b"x")
    disks.right, disks.copy = disks.copy, disks.right
    disks.take_out()
    with opened(disks.dirs) as store:
        assert store.log(*ORDERS).append(b"next") == 7
        with pytest.raises(ReplicaIncompleteError):  # until its user decides about it too
            store.log(*PAYMENTS).append(b"x")
        assert store.promote(*PAYMENTS)
    with opened(disks.dirs) as store:
        assert store.recovery_report.is_sound and not store.recovery_report.warnings


@pytest.mark.parametrize("is_created", [False, True])
def test_regression_what_was_deleted_in_an_old_copy_is_not_served_from_the_right_disk(
    disks: Disks, is_created: bool
) -> None:
    """The deleted replica came back writable, and what was created again was gone or offline."""
    with opened(disks.dirs) as store:
        store.log(*ORDERS).append(b"1")
    disks.put_in()
    with opened(disks.dirs) as store:
        store.delete(*ORDERS)
        if is_created:
            store.create(*ORDERS, log_dir=disks.dirs[1]).append(b"new", durable=True)
    disks.take_out()
    with opened(disks.dirs) as store:
        log = store.log(*ORDERS)
        if is_created:
            assert log.append(b"next") == 1
        else:
            with pytest.raises(ReplicaIncompleteError):
                log.append(b"x")


def test_regression_a_deletion_stays_on_record_while_an_old_copy_stands_in(disks: Disks) -> None:
    """The rest of the partition on the current disk came back as an incomplete replica."""
    with opened(disks.dirs) as store, ReplicaMover(store) as mover:
        store.log(*ORDERS).append(b"1")
        store.log(*OTHER).extend([b"x"] * 10)
        disks_busy = mover.move(*OTHER, disks.dirs[0])
        assert disks_busy.wait(60) is MoveState.DONE
        assert mover.move(*OTHER, disks.dirs[1]).wait(60) is MoveState.DONE
    # As if the power had failed before the copy that was moved away was purged.
    left = os.path.join(disks.dirs[0], f"other-0.{'0' * 32}.move")
    shutil.copytree(os.path.join(disks.dirs[1], "other-0"), left)
    disks.put_in()
    with opened(disks.dirs) as store:
        store.delete(*OTHER)
        wait_for_keepers(store)
    for _ in range(2):
        opened(disks.dirs).close()
        assert any(".delete" in name for name in os.listdir(disks.dirs[1]))
    disks.take_out()
    for _ in range(2):
        with opened(disks.dirs) as store:
            with pytest.raises(UnknownPartitionError):
                store.log(*OTHER)
            wait_for_keepers(store)
    assert not any("other-0" in name for path in disks.dirs for name in os.listdir(path))


def test_a_deletion_is_purged_once_the_old_copy_is_accepted(disks: Disks) -> None:
    """Until then, the purge waits for the current disk, which may have another copy."""
    with opened(disks.dirs) as store:
        store.log(*ORDERS).append(b"1")
    disks.put_in()
    with opened(disks.dirs) as store:
        store.delete(*OTHER)
        wait_for_keepers(store)
        assert any("other-0" in name for name in os.listdir(disks.dirs[1]))
        store.promote(*ORDERS)
        wait_for_keepers(store)
        assert not any("other-0" in name for name in os.listdir(disks.dirs[1]))


def test_what_a_move_to_the_right_disk_left_is_not_promoted_meanwhile(disks: Disks) -> None:
    """The live copy is on the current disk: a promotion of the rest would outrank it."""
    with opened(disks.dirs) as store:
        store.log(*ORDERS).append(b"1")
    source, target = Path(disks.dirs[1]), Path(disks.dirs[0])
    move = StagedMove(source, target, *OTHER, 50).name().copy().catch_up()
    move.rename_source().rename_target()
    disks.put_in()
    with opened(disks.dirs) as store:
        assert OTHER not in store.host.replicas.incomplete
        with pytest.raises(LogDirError, match="is an old copy"):
            store.promote(*OTHER)
    disks.take_out()
    with opened(disks.dirs) as store:
        log = store.log(*OTHER)
        assert log.log_dir == disks.dirs[0] and log.append(b"next") == 50


def test_an_old_copy_is_not_removed_as_empty(tmp_path: Path) -> None:
    """The current disk may have a replica that was created just before a kill."""
    old, other = dirs = [str(tmp_path / "a"), str(tmp_path / "b")]
    opened(dirs).close()
    shutil.copytree(old, f"{old}.copy")
    store = opened(dirs)
    store.create(*ORDERS, log_dir=old).append(b"0", durable=True)
    abandon(store)
    shutil.rmtree(old)
    os.rename(f"{old}.copy", old)
    with opened(dirs) as store:
        with pytest.raises(LogDirError, match="is an old copy"):
            store.remove_dir(old)
        assert store.log_dirs == (old, other)


def test_what_the_process_remembers_outlives_an_old_copy(disks: Disks) -> None:
    """A second old copy is recognised, although no other log dir recorded the last checkpoint."""
    with opened(disks.dirs) as store:
        log = store.log(*ORDERS)
        shutil.rmtree(disks.copy)
        shutil.copytree(disks.dirs[0], disks.copy)
        shutil.copytree(disks.copy, f"{disks.copy}2")
        log.append(b"1", durable=True)
        keepers_of(store)[disks.dirs[0]].write_offsets()
        disks.put_in()
        for copied in (disks.dirs[0], f"{disks.copy}2"):
            store.host.replicas.dir_of(disks.dirs[0]).take_offline("its disk failed")
            if copied != disks.dirs[0]:
                shutil.rmtree(disks.dirs[0])
                os.rename(copied, disks.dirs[0])
            store.reopen_dir(disks.dirs[0])
            assert state_of(store, disks.dirs[0]) == "outdated"
            with pytest.raises(ReplicaIncompleteError):
                store.log(*ORDERS).append(b"x")


def test_regression_a_name_that_only_the_right_disk_may_hold_is_not_created(disks: Disks) -> None:
    """The store was killed: no catalog names the partition, and it was created twice."""
    new = TopicPartition("new", 0)
    store = opened(disks.dirs)
    for keeper in keepers_of(store).values():
        keeper.run_one("checkpoint")
    store.create(*new, log_dir=disks.dirs[0]).append(b"precious", durable=True)
    abandon(store)
    disks.put_in()
    for _ in range(2):
        with opened(disks.dirs) as store:
            with pytest.raises(LogDirError, match=r"new-0 is on no log dir that serves.* old copy"):
                store.create(*new, exist_ok=True)
            with pytest.raises(LogDirError, match="old copy"):
                store.log(*new)
    disks.take_out()
    with opened(disks.dirs) as store:
        assert [record.value for record in store.log(*new)] == [b"precious"]
        with pytest.raises(UnknownPartitionError):
            store.log("unknown", 0)


def test_an_old_copy_that_may_lack_only_unknown_names_is_given_up(tmp_path: Path) -> None:
    """The old copy has nothing to promote; the error says what to do, and this works."""
    old, other = dirs = [str(tmp_path / "a"), str(tmp_path / "b")]
    opened(dirs).close()
    shutil.copytree(old, f"{old}.copy")
    store = opened(dirs)
    store.create(*ORDERS, log_dir=old).append(b"0", durable=True)
    abandon(store)
    os.rename(old, f"{old}.right")
    os.rename(f"{old}.copy", old)
    for _ in range(2):
        store, remedy = opened(dirs), f"remove-dir --lost {old}, and logstore add-dir"
        with store, pytest.raises(LogDirError, match=remedy):
            store.create(*PAYMENTS, log_dir=old, is_new=True)
    with opened(dirs) as store:
        store.take_offline(old)
        store.remove_dir(old, lost=True)
        store.add_dir(old, format_new=True)
        store.create(*PAYMENTS, log_dir=old).append(b"0")
    with opened(dirs) as store:
        assert store.recovery_report.is_sound and list(store) == [PAYMENTS]
        assert other in store.log_dirs


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("starts", [1, 20, 120])
def test_regression_an_old_copy_is_noticed_when_its_witness_returns(
    disks: Disks, is_running: bool, starts: int
) -> None:
    """The old copy was used alone for some starts; a running store did not recognise it then."""
    with opened(disks.dirs) as store:
        store.log(*ORDERS).append(b"lost")
        store.create("new", 0, log_dir=disks.dirs[0])
    disks.put_in()
    os.rename(disks.dirs[1], f"{disks.dirs[1]}.away")
    for _ in range(starts):
        store = opened(disks.dirs)
        assert state_of(store, disks.dirs[0]) == "online"
        log = store.log(*ORDERS)
        log.append(b"fork")
        if not is_running:
            store.close()
        elif _ < starts - 1:
            abandon(store)
    os.rename(f"{disks.dirs[1]}.away", disks.dirs[1])
    if is_running:
        assert "new-0 is offline" in str(store.reopen_dir(disks.dirs[1]))
        with pytest.raises(ReplicaIncompleteError):
            log.append(b"x")
    else:
        store = opened(disks.dirs)
    assert state_of(store, disks.dirs[0]) == "outdated"
    with pytest.raises(ReplicaIncompleteError):
        store.log(*ORDERS).append(b"x")
    with pytest.raises(ReplicaOfflineError, match="it does not have new-0"):
        store.log("new", 0)
    assert len(list(store.log(*ORDERS))) == 5 + starts
    store.close()
    disks.take_out()
    with opened(disks.dirs) as store:
        assert store.recovery_report.is_sound
        assert [record.value for record in store.log(*ORDERS)][5:] == [b"lost"]


def test_no_old_copy_is_accepted_that_no_other_log_dir_would_see(disks: Disks) -> None:
    """Otherwise the next start would serve the current disk, as if nothing had been decided."""
    with opened(disks.dirs) as store:
        store.log(*ORDERS).append(b"1")
    disks.put_in()
    opened(disks.dirs).close()
    os.rename(disks.dirs[1], f"{disks.dirs[1]}.away")
    with opened(disks.dirs) as store:
        assert state_of(store, disks.dirs[0]) == "outdated"
        for decide in (store.promote, store.delete):
            with pytest.raises(LogDirError, match="no other log dir serves"):
                decide(*ORDERS)
        store.remove_dir(disks.dirs[1], lost=True)
        assert store.promote(*ORDERS)


@pytest.mark.parametrize("work", ["truncate", "more", "delete", "recreate"])
def test_regression_what_another_process_did_is_no_old_copy(disks: Disks, work: str) -> None:
    """Another process used the log dir in between, so its generation is later than expected."""
    with opened(disks.dirs) as store:
        store.take_offline(disks.dirs[0])
        with opened(disks.dirs[:1]) as other:
            if work in ("truncate", "more"):
                other.log(*ORDERS).truncate_to(2)
                other.log(*ORDERS).extend([b"1"] * (10 if work == "more" else 0))
            else:
                other.delete(*ORDERS)
            if work == "recreate":
                other.create(*ORDERS, is_new=True).append(b"1")
        assert store.reopen_dir(disks.dirs[0]).is_sound
        assert state_of(store, disks.dirs[0]) == "online"
        store.log(*PAYMENTS).append(b"1")
        if work == "delete":
            store.create(*ORDERS)
        end = {"truncate": 2, "more": 12, "delete": 0, "recreate": 1}[work]
        assert store.log(*ORDERS).append(b"x") == end
    with opened(disks.dirs) as store:
        assert store.recovery_report.is_sound


def test_regression_all_of_a_log_dir_is_in_doubt_if_one_replica_is_short(disks: Disks) -> None:
    """A replica that was truncated and written again, or deleted, looks complete in the copy."""
    with opened(disks.dirs) as store:
        shutil.rmtree(disks.copy)
        shutil.copytree(disks.dirs[0], disks.copy)
        store.log(*ORDERS).append(b"1", durable=True)
        log = store.log(*PAYMENTS)
        log.truncate_to(0)
        log.extend([b"new"] * 5, durable=True)
        store.host.replicas.dir_of(disks.dirs[0]).take_offline("its disk failed")
        disks.put_in()
        report = store.reopen_dir(disks.dirs[0])
        assert [one.topic_partition for one in report.incomplete] == [ORDERS, PAYMENTS]
        assert not report.entries
        with pytest.raises(ReplicaIncompleteError):
            store.log(*PAYMENTS).append(b"x")
        store.promote(*ORDERS)
        with pytest.raises(ReplicaIncompleteError):
            store.log(*PAYMENTS).append(b"x")
