"""Cut the power at every call, some thousand times, and prove that a missing sync is found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crash.checks import Explorer, PowerCutViolation
from crash.power_cut import record
from support.crash_model import Op
from support.places import fast_directory

SEEDS = range(int(os.environ.get("LOGSTORE_HISTORIES", "2")))
STEPS = 25
IMAGES = 3
MUTANT_STATES_MAX = 4000


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


@pytest.mark.timeout(150)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_takes_nothing_that_was_flushed(base: Path, seed: int) -> None:
    """Whatever a power cut leaves of un-synced blocks and names, what was flushed is read."""
    ops = record(base / "history", seed, STEPS)
    explorer = Explorer(base, seed)
    explorer.explore(ops, IMAGES)
    print(f"crash: seed {seed}: {len(ops)} calls, {explorer.states} states")
    assert explorer.states > 500


@pytest.mark.timeout(150)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_while_a_log_begins_anew(base: Path, seed: int) -> None:
    """The log has a start that it had before or gets now, and no record that was removed."""
    ops = record(base / "history", seed, STEPS, begins_anew=True)
    begun = [op for op in ops if op[0] == "mark" and op[1][0] == "done" and op[1][2].start > 0]
    assert begun
    explorer = Explorer(base, seed)
    explorer.explore(ops, IMAGES)
    assert explorer.states > 500


def is_log(paths: dict[int, str], op: Op) -> bool:
    return paths[op[1]].endswith((".log", ".log.tmp"))


def without_data_sync(ops: list[Op], paths: dict[int, str]) -> list[Op]:
    return [op for op in ops if not (op[0] == "sync" and is_log(paths, op))]


def without_small_file_sync(ops: list[Op], paths: dict[int, str]) -> list[Op]:
    return [op for op in ops if not (op[0] == "sync" and not is_log(paths, op))]


def without_partition_dir_sync(ops: list[Op], paths: dict[int, str]) -> list[Op]:
    return [op for op in ops if op[:2] != ("sync dir", "logs/orders-0")]


def without_log_dir_sync(ops: list[Op], paths: dict[int, str]) -> list[Op]:
    return [op for op in ops if op[:2] != ("sync dir", "logs")]


def without_any_dir_sync(ops: list[Op], paths: dict[int, str]) -> list[Op]:
    return [op for op in ops if op[0] != "sync dir"]


def acknowledged_too_early(ops: list[Op], paths: dict[int, str]) -> list[Op]:
    """Move what follows an operation's work, its acknowledgement, before it."""
    early: list[Op] = []
    for op in ops:
        if op[0] == "mark" and op[1][0] == "done":
            begun = max(i for i, o in enumerate(early) if o[0] == "mark" and o[1][0] == "begin")
            early.insert(begun + 1, op)
        else:
            early.append(op)
    return early


def renamed_before_written(ops: list[Op], paths: dict[int, str]) -> list[Op]:
    """Sync a small file only after its rename."""
    late: list[Op] = []
    waiting: Op | None = None
    for op in ops:
        if op[0] == "sync" and paths[op[1]].endswith(".tmp") and waiting is None:
            waiting = op
            continue
        late.append(op)
        if op[0] == "sync dir" and waiting is not None:
            late.append(waiting)
            waiting = None
    return late


MUTANTS: list[Callable[[list[Op], dict[int, str]], list[Op]]] = [
    without_data_sync,
    without_small_file_sync,
    without_partition_dir_sync,
    without_log_dir_sync,
    without_any_dir_sync,
    acknowledged_too_early,
    renamed_before_written,
]


@pytest.mark.timeout(150)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_missing_sync_is_found(base: Path, mutant: Callable[..., list[Op]]) -> None:
    """The harness finds each way of being less careful: it is not blind."""
    ops = record(base / "history", 1, STEPS)
    paths = {op[2]: op[1] for op in ops if op[0] == "create"}
    worse = mutant(ops, paths)
    assert worse != ops
    explorer = Explorer(base, 1)
    with pytest.raises(PowerCutViolation):
        for _ in range(MUTANT_STATES_MAX // len(ops)):
            explorer.explore(worse, 1)
