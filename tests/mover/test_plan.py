"""Make plans from plain numbers, and from stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from logstore import LogStore
from mover import plan_moves
from mover.planning.balance import DirFacts, ReplicaFacts
from mover.planning.plan import MovePlan, plan_of

from .test_balance import a_dir, small_stores

RECORD = bytes(10_000)


def replicas_on(path: str, *sizes: int, topic: str = "t") -> list[ReplicaFacts]:
    return [ReplicaFacts(topic, number, path, size) for number, size in enumerate(sizes)]


@given(small_stores())
def test_no_step_overfills_a_disk(case: tuple[list[DirFacts], list[ReplicaFacts], float]) -> None:
    """When a move begins, the earlier moves have left enough free bytes on its target."""
    dirs, replicas, tolerance = case
    plan = plan_of(dirs, replicas, tolerance)
    free = {one.path: one.usable_bytes for one in dirs}
    places = {(one.topic, one.partition): one for one in replicas}
    for move in plan.moves:
        replica = places.pop((move.topic, move.partition))
        assert (move.source, move.size_bytes) == (replica.log_dir, replica.size_bytes)
        assert free[move.target] >= replica.size_bytes
        free[move.target] -= replica.size_bytes
        free[replica.log_dir] += replica.size_bytes
    for change in plan.log_dirs:
        assert change.usable_after == free[change.log_dir]


@given(small_stores())
def test_what_is_not_done_is_said(case: tuple[list[DirFacts], list[ReplicaFacts], float]) -> None:
    """A replica on a leaving dir is either moved or reported; a dir off its share is reported."""
    dirs, replicas, tolerance = case
    plan = plan_of(dirs, replicas, tolerance)
    moved = {(move.topic, move.partition) for move in plan.moves}
    named = {(one.topic, one.partition) for one in plan.skipped}
    leaving = {one.path for one in dirs if one.is_leaving}
    for one in replicas:
        if one.log_dir in leaving:
            assert (one.topic, one.partition) in moved | named


def test_a_plan_tells_before_and_after() -> None:
    """A plan reports the bytes, replicas, share and room of each log dir."""
    dirs = [a_dir(0, 100), a_dir(1, 140)]
    plan = plan_of(dirs, replicas_on("/d0", 20, 20), 0.05)
    first, second = plan.log_dirs
    assert plan.bytes_to_move == 20
    assert (first.bytes_before, first.bytes_after, first.share_bytes) == (40, 20, 20)
    assert (first.replicas_before, first.replicas_after, first.usable_after) == (2, 1, 120)
    assert (second.bytes_before, second.bytes_after, second.usable_after) == (0, 20, 120)
    assert plan.skipped == ()


def test_regression_room_is_looked_for_disk_by_disk() -> None:
    """1.5 G do not go onto two disks with 1 G each: the plan says so and moves nothing."""
    dirs = [a_dir(0, 0, is_leaving=True), a_dir(1, 1000), a_dir(2, 1000)]
    plan = plan_of(dirs, replicas_on("/d0", 1500), 0.05)
    assert plan.moves == ()
    assert "has room for the 1500 bytes of this replica" in plan.skipped[0].reason
    assert (plan.skipped[0].topic, plan.skipped[0].partition) == ("t", 0)


def test_what_cannot_be_divided_is_named() -> None:
    """One large replica keeps the dirs unequal; both are reported, with their distance."""
    plan = plan_of([a_dir(0), a_dir(1, 1900)], replicas_on("/d0", 900), 0.05)
    assert plan.moves == ()
    assert [one.log_dir for one in plan.skipped] == ["/d0", "/d1"]
    assert "100.0% above its share" in plan.skipped[0].reason
    assert "100.0% below its share" in plan.skipped[1].reason


@pytest.mark.parametrize("may_give", [True, False])
def test_a_dir_that_does_not_take_part_is_named(may_give: bool) -> None:
    """A cordoned dir below its share, and an offline dir, stay as they are, with reasons."""
    bad = DirFacts("/d2", "disk2", 1000, may_give, False, False, "it is so")
    plan = plan_of([a_dir(0), a_dir(1), bad], replicas_on("/d0", 10, 10), 0.05)
    assert [move.target for move in plan.moves] == ["/d1"]
    assert ("/d2", "its replicas stay where they are: it is so") in [
        one[:2] for one in plan.skipped
    ]


def test_an_offline_dir_cannot_be_emptied() -> None:
    """The replicas of the dir are reported with the reason, and other moves are planned."""
    bad = DirFacts("/d0", "disk0", 0, False, False, True, "it is offline: EIO")
    plan = plan_of([bad, a_dir(1)], replicas_on("/d0", 10), 0.05)
    assert plan.moves == ()
    assert [(one.topic, one.reason) for one in plan.skipped] == [("t", "it is offline: EIO")]


def test_the_last_dir_cannot_be_emptied() -> None:
    """The replicas have no other log dir to go to."""
    plan = plan_of([a_dir(0, is_leaving=True)], replicas_on("/d0", 10), 0.05)
    assert plan.moves == ()
    assert plan.skipped[0].reason == "no other log dir accepts replicas"


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in ("a", "b", "c")]


def filled(dirs: list[str], count: int) -> LogStore:
    """Make a store with all replicas on its first log dir."""
    store = LogStore.open(dirs)
    for partition in range(count):
        store.create("t", partition, log_dir=dirs[0]).append(RECORD)
    return store


def test_a_store_is_evened_out(dirs: list[str]) -> None:
    """Of nine equal replicas on the first of three dirs, three go to each other dir."""
    with filled(dirs, 9) as store:
        plan = plan_moves(store)
    assert sorted(move.target for move in plan.moves) == [dirs[1]] * 3 + [dirs[2]] * 3
    assert all(move.source == dirs[0] for move in plan.moves)
    assert [change.replicas_after for change in plan.log_dirs] == [3, 3, 3]
    assert plan.skipped == ()
    assert len(MovePlan.from_json(plan.to_json()).moves) == 6


def test_a_balanced_store_needs_nothing(dirs: list[str]) -> None:
    """If every dir has its share, or the store is empty, no replica moves."""
    with LogStore.open(dirs) as store:
        assert plan_moves(store).moves == ()
        for partition, path in enumerate(dirs):
            store.create("t", partition, log_dir=path).append(RECORD)
        plan = plan_moves(store)
    assert (plan.moves, plan.skipped) == ((), ())


def test_a_dir_is_emptied(dirs: list[str], tmp_path: Path) -> None:
    """All replicas of a dir move away; the dir may be given by another path."""
    link = tmp_path / "link"
    with filled(dirs, 4) as store:
        link.symlink_to(dirs[0])
        plan = plan_moves(store, evacuate=[str(link)])
    assert {(move.source, move.partition) for move in plan.moves} == {
        (dirs[0], partition) for partition in range(4)
    }
    assert [change.replicas_after for change in plan.log_dirs] == [0, 2, 2]


def test_an_offline_dir_takes_no_part(dirs: list[str]) -> None:
    """No replica goes to the offline dir; the other dirs share the bytes."""
    with filled(dirs, 4) as store:
        store.host.replicas.dir_of(dirs[1]).take_offline("pulled")
        plan = plan_moves(store)
    assert {move.target for move in plan.moves} == {dirs[2]}
    assert len(plan.moves) == 2
    assert "offline" in next(one for one in plan.skipped if one.log_dir == dirs[1]).reason


def test_wrong_arguments_are_refused(dirs: list[str], tmp_path: Path) -> None:
    """A tolerance below 0 and a path that is no log dir raise an error."""
    with LogStore.open(dirs) as store:
        for tolerance in (-0.1, float("nan")):
            with pytest.raises(ValueError, match="tolerance"):
                plan_moves(store, tolerance)
        with pytest.raises(ValueError, match="is not a log dir of this store"):
            plan_moves(store, evacuate=[str(tmp_path)])
