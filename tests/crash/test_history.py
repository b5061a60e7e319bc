"""Cut the power in histories of all public operations over three log dirs, modelled and real.

The model loses what a strict reading of POSIX allows. The real cuts are of three ext4, or XFS, on
loop devices, each log dir on its own: they show what file systems make of the same calls.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from crash.checks import PowerCutViolation
from crash.history_checks import HistoryExplorer, check_store
from crash.history_machine import WEIGHTS, WITH_COMPACTION, record
from crash.history_mutants import LIKELY, MUTANTS, RECORDS, changed
from crash.history_oracle import Oracle
from crash.history_steps import ALL_KEYS
from logstore import LogDirOfflineError, PartitionExistsError
from support import real_cuts
from support.layers import demand
from support.loop_disk import kinds, why_not
from support.places import fast_directory
from support.real_cuts import Disks, cuts_of

CUTS = int(os.environ.get("LOGSTORE_HISTORY_CUTS", "240"))
REAL_CUTS = int(os.environ.get("LOGSTORE_REAL_CUTS", "100"))
SEED = int(os.environ.get("LOGSTORE_HISTORY_SEED", "0"))
STEPS, CUTS_EACH = 80, 30
REAL_STEPS, REAL_CUTS_EACH = 60, 25
MUTANT_SEEDS = range(60)
MUTANT_CUTS = (12, 40)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Log nothing of the log dirs that go offline by the hundred."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def base() -> Iterator[Path]:
    with fast_directory() as path:
        yield path


def test_regression_a_reopened_log_goes_on_with_its_leader_epoch(base: Path) -> None:
    """All records of epoch 2 were deleted; after a start the next record got epoch 0."""
    ops, _ = record(base / "history", 155, STEPS)
    HistoryExplorer(base, 155).explore(ops, CUTS_EACH // 3)


@pytest.mark.timeout(120 + CUTS)
def test_a_power_cut_in_any_history_leaves_a_prefix(base: Path) -> None:
    """Nothing durable is lost, nothing deleted is back, every log is a prefix."""
    states, counts = 0, dict.fromkeys(WEIGHTS, 0)
    for seed in itertools.count(SEED):
        ops, done = record(base / f"history-{seed}", seed, STEPS)
        counts = {name: count + done.get(name, 0) for name, count in counts.items()}
        explorer = HistoryExplorer(base, seed)
        try:
            explorer.explore(ops, CUTS_EACH // 3)
        except PowerCutViolation as error:
            pytest.fail(f"LOGSTORE_HISTORY_SEED={seed}: {error}")
        states += explorer.states
        if states >= CUTS:
            break
    print(f"crash: histories: {states} cuts, seeds {SEED} to {seed}, steps {counts}")
    assert min(counts.values()) > 0, counts


@pytest.mark.timeout(120 + CUTS)
def test_a_power_cut_in_a_history_with_compaction_takes_only_outdated_records(base: Path) -> None:
    """A record may be gone if its key had a later durable one when its log was compacted."""
    states = compactions = 0
    for seed in itertools.count(SEED):
        place = base / f"history-{seed}"
        ops, done = record(place, seed, STEPS, WITH_COMPACTION, ALL_KEYS)
        compactions += done.get("compact", 0)
        explorer = HistoryExplorer(base, seed)
        try:
            explorer.explore(ops, CUTS_EACH // 3)
        except PowerCutViolation as error:
            pytest.fail(f"LOGSTORE_HISTORY_SEED={seed}: {error}")
        states += explorer.states
        if states >= CUTS:
            break
    print(f"crash: histories: {states} cuts, seeds {SEED} to {seed}, {compactions} compactions")
    assert compactions > 10


@pytest.mark.timeout(200 + 2 * REAL_CUTS)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_real_power_cut_leaves_a_prefix(base: Path, kind: str) -> None:
    """What a real file system has on its disk at any moment opens as it ought to."""
    demand("power cuts on real file systems", why_not())
    assert kind in kinds()
    cuts = 0
    for seed in itertools.count(SEED):
        ops, _ = record(base / f"history-{seed}", seed, REAL_STEPS)
        rng, oracle = random.Random(seed), Oracle()
        moments = {rng.randrange(len(ops)) + 1 for _ in range(REAL_CUTS_EACH)}
        marks = lambda op, oracle=oracle: oracle.hear(op[1])  # noqa: E731
        left = cuts_of(kind, ("a", "b", "c"), ops, base / f"disks-{seed}", moments, rng, marks)
        for root in left:
            cuts += 1
            try:
                check_store(root, oracle, is_ordered=True, is_thorough=cuts % 4 == 0)
            except PowerCutViolation as error:
                pytest.fail(f"{kind}, LOGSTORE_HISTORY_SEED={seed}: {error}")
        if cuts >= REAL_CUTS:
            break
    print(f"crash: {kind}: {cuts} cuts, seeds {SEED} to {seed}")
    assert cuts >= REAL_CUTS


def test_regression_a_cut_is_not_laid_under_a_file_system_that_is_still_mounted(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another mount namespace held an old cut: two sound states of the log dirs looked damaged."""
    demand("power cuts on real file systems", why_not())
    monkeypatch.setattr(real_cuts, "UNMOUNT_SECONDS_MAX", 0.1)
    with ExitStack() as stack:
        disks = Disks("ext4", ("a",), base, stack)
        with disks.cut():
            holder = subprocess.Popen(
                ["unshare", "-m", "sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE
            )
            assert holder.stdout is not None
            holder.stdout.readline()
        try:
            with pytest.raises(TimeoutError, match="mount namespace"), disks.cut():
                pass
        finally:
            holder.kill()
            holder.communicate()
        with disks.cut() as root:
            assert (root / "a").is_dir()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_worse_engine_is_found(base: Path, name: str) -> None:
    """The machine finds each sync that is missing and each order that is wrong."""
    with changed(name):
        for cuts, seed in itertools.product(MUTANT_CUTS, MUTANT_SEEDS):
            try:
                place = base / f"history-{cuts}-{seed}"
                ops, _ = record(place, seed, STEPS, LIKELY.get(name, WEIGHTS))
                worse = RECORDS[name](ops) if name in RECORDS else ops
                HistoryExplorer(base, seed).explore(worse, cuts)
            except (PowerCutViolation, PartitionExistsError, LogDirOfflineError):
                return  # the last two: what was deleted is there again, and serves or is offline
    pytest.fail(f"{name}: nothing was noticed")
