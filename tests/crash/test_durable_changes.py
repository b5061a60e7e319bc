"""Cut the power after a change that is durable: what its result depends on is durable as well.

Each test once failed: the change was synced, and what it stands on was not.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from crash.history_machine import in_one_thread, purge_all
from crash.power_cut import QUIET
from logstore import LogConfig, LogDirError, LogStore, UnknownPartitionError
from logstore.log.epochs import LeaderEpochs
from logstore.log.write import flush
from mover import MoveState, ReplicaMover
from support.crash_model import Change, CrashModel
from support.gate import gated
from support.inside import abandon, keepers_of
from support.keepers import SECONDS_MAX, wait_for_keepers
from support.moves import StagedMove
from support.places import fast_directory
from support.recorder import Recorder, lay_out

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=256)
DIRS = ("a", "b", "c")


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


def open_store(root: Path) -> LogStore:
    return LogStore.open([root / name for name in DIRS], config=QUIET, admin_socket=False)


def leave(store: LogStore) -> None:
    """Let go of a store as a killed process does."""
    abandon(store)


def cut(recorder: Recorder, root: Path) -> Path:
    """Lay out what a power cut leaves that takes all that is not synced."""
    model = CrashModel(recorder.image)
    for op in recorder.ops:
        model.apply(op)
    lay_out(model.lost(), root)
    return root


def values_of(count: int) -> list[bytes]:
    return [b"%d" % number * 60 for number in range(count)]


@pytest.mark.parametrize("offset", [11, 12, 14])
def test_regression_a_truncation_leaves_no_hole(base: Path, offset: int) -> None:
    """A truncation made the rewritten segment durable, and not the segments before it."""
    root = base / "store"
    root.mkdir()
    with Recorder(root) as recorder:
        store = open_store(root)
        log = store.create("t", 0, config=SMALL)
        for value in values_of(20):
            log.append(value)
        assert len(list((Path(log.directory)).glob("*.log"))) > 4
        log.truncate_to(offset)
        leave(store)
    with open_store(cut(recorder, base / "cut")) as store:
        assert store.recovery_report.is_sound, str(store.recovery_report)
        log = store.log("t", 0)
        assert [record.value for record in log] == values_of(20)[:offset]
        assert log.verify() == []


def test_regression_a_repair_leaves_no_hole(base: Path) -> None:
    """A repair wrote a segment anew, durably, behind segments that were not flushed."""
    root = base / "store"
    root.mkdir()
    with Recorder(root) as recorder:
        store = open_store(root)
        log = store.create("t", 0, config=SMALL)
        for value in values_of(20):
            log.append(value)
        leave(store)
        paths = sorted(Path(log.directory).glob("*.log"))
        with paths[3].open("r+b") as file:
            file.seek(100)
            file.write(b"damage")
        store = open_store(root)
        assert store.recovery_report.problems
        store.repair("t", 0)
        kept = [(record.offset, record.value) for record in store.log("t", 0)]
        leave(store)
    with open_store(cut(recorder, base / "cut")) as store:
        assert store.recovery_report.is_sound, str(store.recovery_report)
        found = [(record.offset, record.value) for record in store.log("t", 0)]
        assert found == kept[: len(found)]
        assert len(found) >= int(paths[3].stem)


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
        abandon(store)
        store = open_store(root)  # it knows both deletions
        store.take_offline(root / "b")
        shutil.rmtree(root / "b")
        store.remove_dir(root / "b", lost=True)
        abandon(store)
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


def test_regression_a_start_written_by_a_killed_process_is_durable_first(base: Path) -> None:
    """A start removed what lies before a log start that a killed process had yet to sync."""
    root = base / "store"
    root.mkdir()

    class Killed(BaseException):
        """The process is gone."""

    def die(*_: object) -> None:
        raise Killed

    with Recorder(root) as recorder:
        store = open_store(root)
        log = store.create("t", 0, config=SMALL, log_dir=root / "a")
        for value in values_of(20):
            log.append(value)
        log.flush()
        ops = recorder.ops
        count = len(ops)
        with patch("logstore.log.removal.retention._remove_files", die), pytest.raises(Killed):
            log.delete_records_before(15)
        last = max(i for i, op in enumerate(ops) if op[0] == "rename")
        assert last > count
        del ops[last + 1 :]  # killed before the sync of the directory
        leave(store)
        store = open_store(root)
        assert store.log("t", 0).log_start_offset == 15
        leave(store)
    model = CrashModel(recorder.image)
    renames: list[list[Change]] = []
    for op in recorder.ops:
        model.apply(op)
        renames = [c for c in model.changes if any("partition.metadata" in n for _, n, _ in c)]
        removals = [c for c in model.changes if c[0][1].endswith(".log") and c[0][2] is None]
        assert not (renames and removals), "the files may go, and the log start come back"
    assert not renames


def test_regression_epochs_do_not_outlive_the_records_of_a_truncation(base: Path) -> None:
    """The epochs of truncated records stood on the disk until a flush, and came back from there."""
    root = base / "store"
    store = open_store(root)
    log = store.create("t", 0, config=SMALL)
    for epoch in (1, 7):
        log.leader_epoch = epoch
        log.extend(values_of(5), durable=True)
    log.truncate_to(5)
    leave(store)
    store = open_store(root)
    log = store.log("t", 0)
    with patch.object(flush, "write_epochs"):  # killed between the data and the epochs
        log.extend(values_of(10), durable=True)
    leave(store)
    with open_store(root) as store:
        assert store.log("t", 0)._state.replication.epochs.entries == [(1, 0)]


def test_regression_epochs_begin_one_after_the_other() -> None:
    """An epoch was noted where an earlier one was said to begin, whose records were lost."""
    epochs = LeaderEpochs("", [(0, 0), (1, 5)])
    assert epochs.note(2, 5)
    assert epochs.entries == [(0, 0), (2, 5)]


def test_regression_an_epoch_begins_anew_after_a_truncation_to_the_start(base: Path) -> None:
    """The epoch of what was appended after a truncation to the log start was not noted."""
    with open_store(base / "store") as store:
        log = store.create("t", 0, config=SMALL)
        log.leader_epoch = 1
        log.extend(values_of(5))
        log.delete_records_before(3)
        log.truncate_to(3)
        log.append(b"next")
        assert log._state.replication.epochs.entries == [(1, 3)]


def test_regression_the_limit_of_a_truncation_outlives_a_kill(base: Path) -> None:
    """A checkpoint of before a truncation counted again after a kill, and sound logs had holes."""
    root = base / "root"
    root.mkdir()
    with Recorder(root) as recorder:
        store = open_store(root)
        log = store.create("t", 0, config=SMALL)
        for value in values_of(17):
            log.append(value)
        store.close()  # the checkpoint says 17
        store = open_store(root)
        log = store.log("t", 0)
        log.truncate_to(11)
        for value in values_of(12):  # past 17 again, with other records: none is flushed
            log.append(value)
        leave(store)
        store = open_store(root)
        log = store.log("t", 0)
        log.delete_records_before(2)  # writes the metadata anew
        leave(store)
    with open_store(cut(recorder, base / "cut")) as store:
        assert store.recovery_report.is_sound, str(store.recovery_report)
        log = store.log("t", 0)
        assert log.log_end_offset >= 11 and log.verify() == []


def test_the_limit_of_a_truncation_goes_with_the_next_checkpoint(base: Path) -> None:
    """Once a checkpoint of after the truncation is on the disk, it counts without a limit."""
    with open_store(base) as store:
        log = store.create("t", 0, config=SMALL)
        log.extend(values_of(17))
        store.flush()
        log.truncate_to(11)
        log.extend(values_of(9))
        log.flush()
        path = Path(log.directory) / "partition.metadata"
        assert '"recovery_point_limit": 11' in path.read_text()
        for keeper in list(keepers_of(store).values()):
            keeper.checkpoint()
        log.delete_records_before(2)
        assert "recovery_point_limit" not in path.read_text()
