"""Open what a power cut left of a store whose replica was moving, and hold it to its promises.

    the log        every flushed record is read, nothing that was not appended, nothing deleted
    the dirs       one live directory, no other copy that a later start might take for the log
    the move       a mover ends it, or nothing is left of it; afterwards the same holds

Many cuts leave the same bytes. Such an image is opened once for each thing that may be expected of
it; all of them count as states. A start makes its steps in one thread here, and only where the
move is to be ended are there keepers: which thread does a step is not what a power cut asks.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import NamedTuple

from crash.checks import PowerCutViolation, check_log
from crash.early_syncs import count_overtaken
from crash.move_cut import DIRS, open_store, record, rng_of
from crash.power_cut import Known, replay
from logstore import LogStore, LogStoreError
from mover import MoveState, ReplicaMover
from support.crash_model import Image, Op
from support.gate import SECONDS_MAX
from support.inside import abandon, keepers_of
from support.keepers import wait_for_keepers
from support.one_thread import nothing_behind, steps_in_one_thread
from support.recorder import lay_out
from support.small_ballast import use_small_ballast

STEPS = 6
STATES_EACH = 192
EARLY_EVERY = 4  # of so many histories one has its moves sync beside the copying


def names_of(root: Path, kind: str) -> list[str]:
    """List the directories of the replica of one kind: "", ".move", ".delete", ".stray"."""
    return sorted(
        f"{root}/{log_dir}/{name}"
        for log_dir in DIRS
        for name in os.listdir(root / log_dir)
        if name.startswith("orders-0") and os.path.splitext(name)[1] == kind
    )


def leave(store: LogStore) -> None:
    """Let go of a store as a crash does."""
    for keeper in keepers_of(store).values():
        keeper.stop()
    abandon(store)
    for keeper in keepers_of(store).values():
        keeper.join(SECONDS_MAX)


def check_opened(store: LogStore, root: Path, known: Known) -> None:
    """Check the log as it was opened."""
    if not known.created:
        return
    check_log(store.log("orders", 0), known)
    live = names_of(root, "")
    if len(live) != 1:
        raise PowerCutViolation(f"{len(live)} live directories: {live}")


def check_image(root: Path, image: Image, known: Known, *, is_thorough: bool) -> None:
    """Open an image; thoroughly: end the moves, append, and open it again."""
    shutil.rmtree(root, ignore_errors=True)
    lay_out(image, root)
    try:
        with steps_in_one_thread():
            open_and_check(root, known, is_thorough=is_thorough)
    except LogStoreError as error:
        raise PowerCutViolation(f"{type(error).__name__}: {error}") from error


def open_and_check(root: Path, known: Known, *, is_thorough: bool) -> None:
    """Open what was laid out, once or, thoroughly, twice."""
    with nullcontext() if is_thorough else nothing_behind():
        store = open_store(root)
    try:
        check_opened(store, root, known)
        if is_thorough and known.created:
            end_moves(store, root, known)
    finally:
        leave(store)
    if is_thorough and known.created:
        with open_store(root) as store:
            if store.recovery_report.problems:
                raise PowerCutViolation(f"opened again: {store.recovery_report}")
            log = store.log("orders", 0)
            if log[log.log_end_offset - 1].value != b"goes on":
                raise PowerCutViolation("what was appended after the move is not the last")


def end_moves(store: LogStore, root: Path, known: Known) -> None:
    """Let a mover end what there is to end; append; nothing but the log is left."""
    if store.recovery_report.problems:
        store.repair("orders", 0)
    with ReplicaMover(store) as mover:
        for move in mover.moves():
            if move.wait(SECONDS_MAX) is not MoveState.DONE:
                raise PowerCutViolation(f"{move}: {move.error}")
    wait_for_keepers(store)
    log = store.log("orders", 0)
    check_opened(store, root, known)
    left = [path for kind in (".move", ".delete", ".stray") for path in names_of(root, kind)]
    # A truncation after the move made the log shorter than what it supersedes: that waits.
    left = [path for path in left if path not in store.host.replicas.copies.superseded]
    if left:
        raise PowerCutViolation(f"left behind: {left}")
    end = log.log_end_offset
    if log.append(b"goes on", durable=True) != end:
        raise PowerCutViolation("an append left a gap")


class MoveExplorer:
    """Draws images of a record and checks them.

    Attributes:
        states: how many persisted subsets were looked at.
        images: how many different ones were opened.
    """

    def __init__(self, base: Path, seed: int) -> None:
        self.root, self.rng = base / f"state-{seed}", rng_of(seed)
        self.states = self.images = 0

    def explore(self, ops: list[Op], states_each: int, start: int = 0) -> None:
        """Cut the power after every change of the disk, in every way or in so many drawn ones.

        Args:
            start: of so many changes at the beginning nothing is looked at.
        """
        seen: set[tuple[int, int]] = set()
        marks, count = 0, 0
        known_key: object = None
        for number, (model, known) in enumerate(replay(ops)):
            key = (known.created, len(known.states), known.start, id(known.pending))
            if key != known_key:
                known_key, marks = key, marks + 1
            if number < start or not known.created:  # making a store has explorations of its own
                continue
            for image in model.crashes(self.rng, states_each):
                self.states += 1
                what = (marks, hash(tuple(image.items())))
                if what in seen:
                    continue
                seen.add(what)
                count += 1
                self.images += 1
                check_image(self.root, image, known, is_thorough=count % 8 == 0)
        shutil.rmtree(self.root, ignore_errors=True)


# --- over all processors --------------------------------------------------------------------------


class Explored(NamedTuple):
    """How much of the history of a seed was looked at, and what broke a promise, if anything."""

    seed: int
    states: int
    images: int
    early_syncs: int
    violation: str


def explore_seed(base: Path, seed: int) -> Explored:
    """Record the history of a seed, and look at every cut of it."""
    explorer, violation = MoveExplorer(base, seed), ""
    is_early = seed % EARLY_EVERY == EARLY_EVERY - 1
    ops = record(base / f"history-{seed}", seed, STEPS, syncs_early=is_early)
    try:
        explorer.explore(ops, STATES_EACH)
    except PowerCutViolation as error:
        violation = f"seed {seed} (tests/crash/move_cut.py): {error}"
    return Explored(seed, explorer.states, explorer.images, count_overtaken(ops), violation)


def _begin_worker() -> None:
    """Set a worker up; it ends when the process that began it is killed, not some minutes later."""
    use_small_ballast()
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def exploring(base: Path, seeds: Iterable[int]) -> Iterator[Iterator[Explored]]:
    """Explore histories in a process for each processor; gives them in the order of the seeds.

    At the end the processes are killed: what they leave in `base` is the caller's to remove.
    """
    with get_context("spawn").Pool(len(os.sched_getaffinity(0)), _begin_worker) as pool:
        yield pool.imap(partial(explore_seed, base), seeds)
