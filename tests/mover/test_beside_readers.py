"""Move replicas while a read-only view of the store has their logs open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logstore import Log, LogStore, UnknownPartitionError
from mover import MoveState, ReplicaMover
from support.gate import SECONDS_MAX
from support.moving import fill, settle


def move_to(store: LogStore, target: Path) -> None:
    with ReplicaMover(store) as mover:
        assert mover.move("orders", 0, target).wait(SECONDS_MAX) is MoveState.DONE
    settle(store)  # nothing is left where it was


def test_regression_a_log_that_a_reader_holds_goes_along_with_a_move(
    store: LogStore, log: Log, base: Path
) -> None:
    """Scans, slices and tails that began before the move continue, and the partition is found."""
    expected = [(r.offset, r.value) for r in log]
    with LogStore.open([base / "a", base / "b", base / "c"], read_only=True) as view:
        held = view.log("orders", 0)
        scan, part, tail = iter(held), held[100:500], held.tail("end", timeout=SECONDS_MAX)
        begun = [next(scan)]
        for name in "bcab":
            move_to(store, base / name)
            begun.append(next(scan))
        assert [(r.offset, r.value) for r in (*begun, *scan)] == expected
        assert [(r.offset, r.value) for r in part] == expected[100:500]
        assert [(r.offset, r.value) for r in held] == expected
        assert held.log_dir == str(base / "b")
        fill(log, 1)
        assert next(tail).offset == len(expected)
        assert held.verify() == []
        assert view.log("orders", 0)[len(expected)].offset == len(expected)


def test_a_log_that_is_deleted_or_made_anew_elsewhere_is_gone(
    store: LogStore, log: Log, base: Path
) -> None:
    """A reader does not take another topic of the same name for the log that it has open."""
    with LogStore.open([base / "a", base / "b", base / "c"], read_only=True) as view:
        held = view.log("orders", 0)
        store.delete("orders", 0)
        settle(store)
        with pytest.raises(UnknownPartitionError):
            held.read(0)
        fill(store.create("orders", 0, log_dir=base / "b"), 1)
        with pytest.raises(UnknownPartitionError):
            held.read(0)
        assert len(view.log("orders", 0).read(0)) == 10


def test_regression_a_log_is_verified_to_the_end_though_it_moves_meanwhile(
    store: LogStore, base: Path
) -> None:
    """The swap closes the files of the log, and their descriptor numbers may be reused."""
    log = store.create("orders", 0, log_dir=base / "a")
    for _ in range(24):
        log.extend([b"v" * 1000] * 1000)
    log.flush()
    seen: list[int] = []
    others: list[int] = []

    def progress(size_bytes: int) -> None:
        if not seen:
            move_to(store, base / "b")
            others.extend(os.open("/dev/zero", os.O_RDONLY) for _ in range(20))
        seen.append(size_bytes)

    try:
        assert log.verify(progress) == []
    finally:
        for fd in others:
            os.close(fd)
    assert len(seen) > 1
    assert log.log_dir == str(base / "b")
