"""Cut the power at every call of a move, and prove that no missing sync or order goes unseen."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crash.checks import PowerCutViolation
from crash.move_checks import STEPS, MoveExplorer, exploring
from crash.move_cut import record
from crash.move_mutants import MUTANTS
from crash.power_cut import UNSEEN
from logstore.log.metadata import PartitionMetadata
from mover.copying.copy_segments import Ends, SegmentCopy
from mover.copying.target import Target
from mover.swap import Swap
from support.crash_model import Op
from support.places import fast_directory

STATES_MIN = int(os.environ.get("LOGSTORE_MOVE_STATES", "15000"))
# Histories whose cuts repeat themselves seldom enough to be looked at in a minute come first.
FIRST = (151, 0, 115, 14, 37, 21, 30, 1, 4, 29, 9)
SEEDS = (*FIRST, *(seed for seed in range(1000) if seed not in FIRST))
MUTANT_SEEDS = (0, 3, 1, 14, 7)
MUTANT_STATES_EACH = (2, 8, 32)  # a quick look at all histories comes before a long one at each
# Where some are seen that most histories do not show: so many states of each cut, and the seed.
LIKELY = {
    "no sync of the names in the copy": (2, 7),
    "mark synced behind the source's rename": (2, 14),
    "target renamed and synced first": (8, 7),
}
# What it takes to see some: a segment that is begun during the swap; syncs beside the copying.
LATE, EARLY = {"rolls_late": True}, {"syncs_early": True}
CHANGES: dict[str, dict[str, bool]] = {
    "no sync of the names in the copy": LATE,
    "no sync of copied data but early": EARLY,
    "an early sync is taken for the last": EARLY,
    "what an early sync has begun is not synced again": EARLY,
}


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


Histories = Callable[[int, dict[str, bool]], list[Op]]


@pytest.fixture(scope="module")
def histories() -> Histories:
    """Give the record of a seed, which is made once for each kind of history."""
    known: dict[tuple[object, ...], list[Op]] = {}

    def give(seed: int, changes: dict[str, bool]) -> list[Op]:
        key = (seed, *changes)
        if key not in known:
            with fast_directory() as path:
                known[key] = record(path / "history", seed, STEPS, **changes)
        return known[key]

    return give


@pytest.mark.timeout(7200 if STATES_MIN > 100_000 else 600)
def test_a_power_cut_in_a_move_takes_nothing(base: Path) -> None:
    """At every call and for every subset of what was not synced there is one whole log."""
    states = images = early = 0
    with exploring(base, SEEDS) as found:
        for one in found:
            assert not one.violation
            states, images = states + one.states, images + one.images
            early += one.early_syncs
            if states >= STATES_MIN:
                break
    what = f"{states} states, {images} different images, {early} early syncs"
    print(f"crash: moves: {what}, up to seed {one.seed}")
    assert states >= STATES_MIN
    assert early > 0


@pytest.mark.timeout(290)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_worse_move_is_found(base: Path, histories: Histories, name: str) -> None:
    """The harness finds each sync that is missing and each order that is wrong."""
    likely = [LIKELY[name]] if name in LIKELY else []
    looks = itertools.chain(likely, itertools.product(MUTANT_STATES_EACH, MUTANT_SEEDS))
    for states_each, seed in looks:
        ops = histories(seed, CHANGES.get(name, {}))
        worse = MUTANTS[name](ops)
        pairs = enumerate(zip(ops, worse, strict=False))
        start = next((number for number, (one, other) in pairs if one != other), len(worse))
        if start == len(worse) == len(ops):
            continue
        marks = sum(op[0] in UNSEEN for op in ops[:start])
        try:
            MoveExplorer(base, seed).explore(worse, states_each, start - marks)
        except PowerCutViolation:
            return
    pytest.fail(f"{name}: nothing was noticed")


# --- worse code, where a record cannot show it -------------------------------------------------


def same_generation(original: Any, self: Target, source: PartitionMetadata, *rest: Any) -> Any:
    """Give the copy the generation of its source."""
    return original(self, source._replace(generation=source.generation - 1), *rest)


def without_the_rest(original: Any, self: Swap) -> bool:
    """Swap without the records that came since the last look."""
    self.target.sync()
    return True


def early_for_last(original: Any, self: SegmentCopy, ends: Ends) -> None:
    """Wait for the early sync that is under way, and take it for the last one."""
    if self._early_sync is None:
        original(self, ends)
    self._finish_early_sync()
    self.is_synced = True


def without_a_second(original: Any, self: SegmentCopy, ends: Ends) -> None:
    """Sync only where no early sync was begun."""
    if not self._synced_early:
        original(self, ends)
    self.is_synced = True


WORSE: dict[str, tuple[Any, str, Any]] = {
    "an early sync is taken for the last": (SegmentCopy, "sync", early_for_last),
    "what an early sync has begun is not synced again": (SegmentCopy, "sync", without_a_second),
    "the generation is not raised": (Target, "_metadata", same_generation),
    "the last records are left out": (Swap, "_take_the_rest", without_the_rest),
}


@pytest.mark.timeout(290)
@pytest.mark.parametrize("name", WORSE)
def test_a_worse_mover_is_found(base: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The harness finds marks that are missing, and records that are left behind."""
    place, attribute, worse = WORSE[name]
    original = getattr(place, attribute)
    for states_each, seed in itertools.product(MUTANT_STATES_EACH, MUTANT_SEEDS):
        try:
            with monkeypatch.context() as patch:
                patch.setattr(place, attribute, lambda *args: worse(original, *args))
                changes = CHANGES.get(name, {})
                ops = record(base / f"history-{states_each}-{seed}", seed, STEPS, **changes)
            MoveExplorer(base, seed).explore(ops, states_each)
        except (PowerCutViolation, AssertionError):
            return
    pytest.fail(f"{name}: nothing was noticed")
