"""What was undecided opens as soon as a log dir is given up, as the next start would open it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import (
    DuplicateLogError,
    LogDirError,
    LogStore,
    PartitionExistsError,
    ReplicaIncompleteError,
    TopicPartition,
)
from logstore.log.metadata import COPYING, MoveRecord, Moving
from logstore.store.admin.commands import remove_dir, reopen_dir
from startup import test_cases
from startup.cases import Case, expected
from startup.test_cases import CASES, Template, left_on, stage, state_of
from support.inside import abandon, keepers_of
from support.inside import state_of as inside
from support.keepers import wait_for_keepers
from support.moves import directory_id_of, metadata_of
from support.places import fast_directory

KEY = TopicPartition("a", 0)
CONFLICTS = ("one generation twice", "two topics")
template = test_cases.template


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    """Make a store of three log dirs."""
    paths = [tmp_path / name for name in "bcd"]
    LogStore.open(paths, admin_socket=False).close()
    return paths


@pytest.fixture
def moved(disks: list[Path]) -> list[Path]:
    """Leave 12 of 40 records in a `.move` on the second disk; the first has all, and is away."""
    with LogStore.open(disks, admin_socket=False) as store:
        store.create(*KEY, log_dir=disks[0]).extend([b"x"] * 12)
    live, move_id = disks[0] / "a-0", "1" * 32
    move = shutil.copytree(live, disks[1] / f"a-0.{move_id}.move")
    record = MoveRecord(move_id, directory_id_of(disks[0]), COPYING, 12)
    metadata = metadata_of(live)
    metadata._replace(generation=1).with_move_record(record).write(str(move))
    metadata._replace(moving=Moving(move_id, directory_id_of(disks[1]))).write(str(live))
    with LogStore.open(disks, admin_socket=False) as store:
        store[KEY].extend([b"y"] * 28)
    disks[0].rename(disks[0].with_name("away"))
    return disks


@pytest.fixture
def conflict(disks: list[Path]) -> Iterator[LogStore]:
    """Open a store that knows of another topic's copy beside the open one."""
    store = LogStore.open(disks, admin_socket=False)
    store.create(*KEY, log_dir=disks[0]).extend([b"old"] * 3, durable=True)
    store.take_offline(disks[0])
    away = disks[0].rename(disks[0].with_name("away"))
    store.remove_dir(disks[0], lost=True)
    store.create(*KEY, log_dir=disks[1]).extend([b"new"] * 5, durable=True)
    away.rename(disks[0])
    with pytest.raises(DuplicateLogError):
        store.add_dir(disks[0])
    assert len(store[KEY]) == 5
    yield store
    store.close()


@pytest.mark.parametrize("how", ["configured", "left out", "replaced"])
def test_regression_a_loss_is_asked_for_although_a_move_left_a_part(
    moved: list[Path], how: str
) -> None:
    """The part made the loss unnamed: the disk was given up without a question."""
    given = moved[1:] if how == "left out" else moved
    (moved[0].mkdir if how == "replaced" else os.getpid)()
    with LogStore.open(given, admin_socket=False) as store:
        command = reopen_dir if how == "replaced" else remove_dir
        options = {"format_new": True} if how == "replaced" else {"lost": True}
        with pytest.raises(LogDirError, match=r"a-0 \(remaining copies: .*\.move\)") as caught:
            command(inside(store), str(moved[0]), may_lose=False, **options)
        assert caught.value.facts["lost"] == [list(KEY)]
        row = command(inside(store), str(moved[0]), may_lose=True, **options)
        assert row["lost"] == [list(KEY)]
        assert store.log(*KEY).log_end_offset == 12
        with pytest.raises(ReplicaIncompleteError):
            store.log(*KEY).append(b"z")
        assert store.promote(*KEY) and store.log(*KEY).append(b"z") == 12


def test_regression_the_part_that_a_move_left_is_lost_by_name_too(moved: list[Path]) -> None:
    """No catalog knew of it: a second lost disk took it along without a word."""
    with LogStore.open(moved, admin_socket=False) as store:
        assert store.remove_dir(moved[0], lost=True) == (KEY,)
    moved[1].rename(moved[1].with_name("away too"))
    with LogStore.open(moved[1:], admin_socket=False) as store:
        assert KEY in store
        with pytest.raises(LogDirError, match="a-0"):
            remove_dir(inside(store), str(moved[1]), lost=True)


@pytest.mark.parametrize("side", [0, 1])
def test_regression_the_other_copy_opens_once_one_is_given_up(
    conflict: LogStore, disks: list[Path], side: int
) -> None:
    """It was reported lost, and `create` made a third one."""
    conflict.close()
    with LogStore.open(disks, admin_socket=False) as store:
        for call in (store.log, store.create, store.delete, store.promote):
            with pytest.raises(DuplicateLogError) as caught:
                call(*KEY)
            assert "close the store, and move" in str(caught.value)
        store.take_offline(disks[side])
        with pytest.raises(LogDirError, match=r"a-0 \(remaining copies: "):
            remove_dir(inside(store), str(disks[side]), lost=True)
        assert store.remove_dir(disks[side], lost=True) == ()
        assert [record.value for record in store[KEY]] == [[b"new"] * 5, [b"old"] * 3][side]
        with pytest.raises(PartitionExistsError):
            store.create(*KEY)
        store[KEY].append(b"more")


def test_regression_a_deletion_leaves_the_name_to_the_other_copy(
    conflict: LogStore, disks: list[Path]
) -> None:
    """It was free, and `create` made a third copy; the next start served none."""
    conflict.delete(*KEY)
    with pytest.raises(PartitionExistsError):
        conflict.create(*KEY)
    assert [record.value for record in conflict[KEY]] == [b"old"] * 3
    wait_for_keepers(conflict)
    abandon(conflict)
    with LogStore.open(disks, admin_socket=False) as store:
        assert store.recovery_report.is_sound and len(store[KEY]) == 3
        store.delete(*KEY)
        store.create(*KEY)


UNDECIDED = [case for case in CASES if case.is_a_dir_bad and case.live in ("none", *CONFLICTS)]
IN_CONFLICT = [case for case in CASES if not case.is_a_dir_bad and case.live in CONFLICTS]


def settled(store: LogStore, disks: list[Path], case: Case) -> None:
    """Check that a store serves what a start would serve, and that a start agrees."""
    outcome = expected(case)
    for turn in range(2):
        with store if turn == 0 else LogStore.open(disks, admin_socket=False) as now:
            assert state_of(now, disks, 10 + turn) == (outcome.state, outcome.where)
            for keeper in keepers_of(now).values():
                keeper.purge_covered()  # as each checkpoint does
            wait_for_keepers(now)
            assert left_on(disks) == outcome.left


@pytest.mark.parametrize("case", UNDECIDED, ids=str)
def test_giving_up_a_missing_log_dir_decides_as_a_start_would(
    template: Template, case: Case
) -> None:
    """Whatever was found of a replica while the log dir was missing."""
    with fast_directory() as base:
        disks = stage(template, case, base / "store")
        store = LogStore.open(disks, admin_socket=False)
        wait_for_keepers(store)
        (missing,) = store.host.replicas.missing_ids
        store.remove_dir(missing, lost=True)
        settled(store, disks, case._replace(is_a_dir_bad=False))


@pytest.mark.parametrize("case", IN_CONFLICT, ids=str)
def test_giving_up_one_side_of_a_conflict_decides_as_a_start_would(
    template: Template, case: Case
) -> None:
    """Whatever else is found of the replica."""
    with fast_directory() as base:
        disks = stage(template, case, base / "store")
        store = LogStore.open(disks, admin_socket=False)
        wait_for_keepers(store)
        store.take_offline(disks[2])
        store.remove_dir(disks[2], lost=True)
        settled(store, [*disks[:2], disks[3]], case._replace(live="one"))
