"""Write histories in which a replica moves between two disks while it is written, and record them.

The move runs in the thread of the test, so the order of all calls is the history's: between any
two chunks the log is appended to, flushed, truncated and trimmed, as the seed has it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from crash.early_syncs import count_overtaken, syncing_early
from crash.power_cut import QUIET, History
from logstore import Log, LogStore, TopicPartition
from logstore.disk.log_dir import LogDir
from logstore.log import relocation
from logstore.store.start.listing import purge_tree
from mover import MoveState
from mover import job as jobs
from mover.copying.target import Target
from mover.move import Move, Wanted
from support.crash_model import Op
from support.gate import Gate
from support.inside import abandon, keepers_of
from support.moving import Alone
from support.recorder import Recorder

DIRS = ("a", "b")


class MovingHistory(History):
    """A history on two log dirs, whose log moves."""

    def __init__(self, recorder: Recorder, store: LogStore, seed: int) -> None:
        super().__init__(recorder, store, seed, log_dir=store.log_dirs[0])
        self.store = store
        self.purges: list[str] = []
        self.is_busy = True
        self.rolls_late = False
        self.chunk_bytes = 700
        self.more = 0

    def step(self) -> None:
        """Do something to the log, or nothing."""
        dice = self.rng.random()
        if dice < 0.35:
            self.extend(self.rng.randint(1, 6), durable=dice < 0.15)
        elif dice < 0.45:
            self.flush()
        elif dice < 0.50:
            self.truncate(self.rng.randint(0, 20))
        elif dice < 0.55:
            self.delete(self.rng.randint(5, 30))

    def move(self, target: str, *, stop: Wanted | None = None, after: int = 3) -> MoveState:
        """Move the log, or stop the move after so many chunks."""
        if self.log.log_dir == target:
            return MoveState.DONE
        replicas = self.store.host.replicas
        log_dir = replicas.find_dir(target)
        assert log_dir is not None
        gate = Gate(self.chunk_bytes)
        key = TopicPartition("orders", 0)
        move = Move(Alone(), key, "", target, gate, self.log.size_bytes)  # type: ignore[arg-type]

        late = [True, True]

        def before() -> None:
            if stop is not None and gate.passed >= after:
                move.wanted = stop
            elif self.rolls_late and move.state is not MoveState.COPYING:
                if late:
                    late.pop()
                    self.extend(6, durable=True)
            elif self.is_busy:
                self.step()
                if self.rolls_late:
                    self.extend(1)

        gate.before = before
        job = jobs.Job(move, replicas, log_dir, self.purge, is_verified=True)
        assert move.try_begin()
        with self.busy_swap(job.target):
            jobs.run(move, job, Move.go)
        self.error = move.error
        return move.state

    @contextmanager
    def busy_swap(self, target: Target) -> Iterator[None]:
        """Do something behind the caught-up mark, and append right before the lock is taken."""
        mark, held = target.mark_caught_up, relocation.held

        def mark_and_step(*arguments: Any) -> Any:
            clean = mark(*arguments)
            if self.is_busy:
                self.step()
            return clean

        def append_and_hold(log: Log) -> AbstractContextManager[None]:
            if self.is_busy and self.rng.random() < 0.5:
                self.extend(1, durable=self.rng.random() < 0.5)
            return held(log)

        with (
            patch.object(target, "mark_caught_up", mark_and_step),
            patch.object(relocation, "held", append_and_hold),
        ):
            yield

    def purge(self, log_dir: LogDir, path: str) -> None:
        """Take note of what is to be purged."""
        self.purges.append(path)

    def purge_all(self) -> None:
        """Purge what moves left, as the keeper of the log dir does in time."""
        while self.purges:
            purge_tree(self.purges.pop())

    def run(self, steps: int, *, begins_anew: bool = False) -> None:
        """Write, move, purge, write, and move back or give it up; no log begins anew here."""
        assert not begins_anew
        self.extend(4)
        self.flush()
        for _ in range(steps):
            self.step()
        a, b = self.store.log_dirs
        for keeper in keepers_of(
            self.store
        ).values():  # so that a move finds nothing to forget there
            keeper.write_offsets()
        kind = self.rng.randrange(4)
        if self.more:
            self.extend(self.more)
        if kind == 0:
            self.move(b, stop=Wanted.CANCEL)
        assert self.move(b) is MoveState.DONE, self.error
        self.extend(3, durable=True)
        if kind == 1:
            self.extend(2, durable=True)
        self.purge_all()
        self.step()
        if kind in (1, 2):
            self.move(a, stop=Wanted.PAUSE)
        if kind == 2:
            self.truncate(8)
            self.extend(5, durable=True)
        if kind == 3:
            assert self.move(a) is MoveState.DONE
            self.extend(2, durable=True)


def open_store(root: Path) -> LogStore:
    """Open the store of a history."""
    dirs = [root / name for name in DIRS]
    return LogStore.open(dirs, config=QUIET, admin_socket=False)


def record(
    root: Path, seed: int, steps: int, *, syncs_early: bool = False, **changes: Any
) -> list[Op]:
    """Write a history into an empty directory and give its record.

    Args:
        syncs_early: the moves sync what was copied beside the copying; some do, or it is an error.
    """
    root.mkdir()
    with (
        Recorder(root) as recorder,
        syncing_early(recorder, seed) if syncs_early else nullcontext(),
    ):
        store = open_store(root)
        history = MovingHistory(recorder, store, seed)
        if syncs_early:
            history.chunk_bytes, history.more = 350, 12  # so that a sync has chunks beside it
        for name, value in changes.items():
            setattr(history, name, value)
        history.run(steps)
        abandon(store)
        for keeper in keepers_of(store).values():
            keeper.stop()
    assert count_overtaken(recorder.ops) > 0 or not syncs_early, f"seed {seed} syncs nothing early"
    return recorder.ops


def rng_of(seed: int) -> random.Random:
    """Give the random numbers of an exploration."""
    return random.Random(seed * 7919 + 1)
