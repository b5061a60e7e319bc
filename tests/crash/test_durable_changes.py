"""Cut the power after a change that is durable: what its result depends on is durable as well.

Each test once failed: the change was synced, and what it stands on was not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from crash.durable_stores import SMALL, cut, leave, open_store, values_of
from logstore.log.epochs import LeaderEpochs
from logstore.log.write import flush
from support.crash_model import Change, CrashModel
from support.inside import keepers_of
from support.places import fast_directory
from support.recorder import Recorder


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


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
