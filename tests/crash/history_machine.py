"""Write histories over three log dirs whose steps are all public operations of store, log, mover.

The steps come in any order, with segments of a few records that are mostly not flushed; a move has
steps between its chunks. All of it runs in the thread of the test, keepers too, so that a seed says
all. The process may be killed and begin anew: what it had not synced is not durable for the next.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from crash.history_oracle import Key, State
from crash.history_steps import CONFIGS, KEYS, LogSteps
from crash.power_cut import QUIET
from logstore import LogDirError, LogStore
from logstore.disk import bulk
from logstore.log.host import replicated_to
from logstore.store.upkeep.keeper import DirKeeper
from mover import Move, MoveState, ReplicaMover
from mover.move import Wanted
from mover.pool import ReplicaMoveThreadPool
from support.clock import Clock
from support.crash_model import Op
from support.gate import Gate
from support.inside import abandon, keepers_of
from support.one_thread import nothing_behind, steps_in_one_thread
from support.recorder import Recorder

# Each on a disk of its own where there are real ones, below its mount point.
DIRS = ("a/log", "b/log", "c/log")


@contextmanager
def in_one_thread() -> Iterator[None]:
    """Let a store and a mover do in the caller's thread all that they do."""
    running: list[bool] = []

    def wake(pool: Any) -> None:
        if running or pool._is_closed:
            return
        running.append(True)
        try:
            while (task := pool._take()) is not None:
                pool._run(task)
        finally:
            running.pop()

    with (
        nothing_behind(),
        steps_in_one_thread(),
        patch.object(ReplicaMoveThreadPool, "wake", wake),
        patch.object(DirKeeper, "wait_idle", lambda keeper, _: keeper.run_due(0.0)),
    ):
        yield


def open_store(root: Path, clock: Clock | None = None, names: Sequence[str] = DIRS) -> LogStore:
    """Open the store of a history, with the log dirs that belong to it."""
    paths = [root / name for name in names]
    return LogStore.open(paths, config=QUIET, admin_socket=False, clock=clock)


def purge_all(store: LogStore) -> None:
    """Do what the keepers were asked for, until nobody is asked for more."""
    while any(keeper._purges for keeper in keepers_of(store).values()):
        for keeper in list(keepers_of(store).values()):
            keeper.run_due(0.0)


class Machine(LogSteps):
    """Does steps on a store and marks them in the record.

    Attributes:
        counts: how often each step was done.
    """

    def __init__(
        self, recorder: Recorder, root: Path, seed: int, keys: Sequence[Key] = KEYS
    ) -> None:
        super().__init__(recorder, seed, keys)
        self.root = root
        self.counts: dict[str, int] = {}
        self.is_moving: set[Key] = set()
        self.dirs: tuple[str, ...] = DIRS
        self.open()

    def open(self) -> None:
        """Open the store, and a mover that goes on with what was left."""
        self.store = open_store(self.root, self.clock, self.dirs)
        self.gate = Gate(400)
        self.mover = ReplicaMover(self.store)
        self.mover._moves.throttle = self.gate  # type: ignore[assignment]
        self.look_at_high_watermarks()
        # A move that was left is gone on with at once, and makes all durable.
        for move in self.mover.moves():
            if move.state is MoveState.DONE:
                self.moved(move.key)

    def moved(self, key: Key) -> None:
        """Note that a replica was moved: all of it is durable, and its high watermark is kept."""
        state = self.states[key]
        assert state is not None
        self.done(key, state.keeping(), "durable")

    # --- steps: partitions ------------------------------------------------------------------------

    def step_create(self) -> None:
        """Create a partition that is known not to be there, also while a log dir is offline."""
        absent = [key for key in self.states if self.states[key] is None]
        if not absent:
            return
        key = self.rng.choice(absent)
        good = [d for d in self.store.log_dirs if d not in self.offline()]
        log_dir = self.rng.choice([None, *good])
        self.does(
            key,
            State(0, {}),
            "durable",
            lambda: self.store.create(*key, config=CONFIGS[key], is_new=True, log_dir=log_dir),
        )

    def step_prefer(self) -> None:
        absent = [key for key in self.states if self.states[key] is None]
        if absent:
            good = [d for d in self.store.log_dirs if d not in self.offline()]
            self.store.prefer_dir(*self.rng.choice(absent), self.rng.choice(good))

    def step_delete(self) -> None:
        key, _, _ = self.any_log()
        if key not in self.is_moving:
            self.does(key, None, "durable", lambda: self.store.delete(*key))

    # --- steps: moves -----------------------------------------------------------------------------

    def step_move(self) -> None:
        """Move a replica; pause or cancel that now and then."""
        self.move(self.rng.choice((None, None, Wanted.PAUSE, Wanted.CANCEL)))

    def move(self, stop: Wanted | None) -> None:
        """Move a replica, with steps between the chunks."""
        key, _, _ = self.any_log()
        if self.is_moving or self.offline():
            return
        after = self.gate.passed + self.rng.randint(1, 5)
        self.is_moving.add(key)

        def before() -> None:
            move = self.store.host.replicas.running_moves.get(key)  # type: ignore[call-overload]
            if stop is not None and self.gate.passed >= after and isinstance(move, Move):
                move.wanted = stop
            elif self.rng.random() < 0.6:
                self.step(self.rng.choice(BESIDE_A_MOVE))

        self.gate.before = before
        try:
            move = self.mover.move(*key, self.rng.choice(self.store.log_dirs))
            if move.state is MoveState.PAUSED and stop is None:
                move.resume()
        finally:
            self.gate.before = None
            self.is_moving.clear()
        assert move.state is not MoveState.FAILED, move.error
        if move.state is MoveState.DONE and move.source_dir != move.target_dir:
            self.moved(key)

    def step_end_move(self) -> None:
        """Go on with a move that is paused, or cancel it."""
        paused = [m for m in self.mover.moves() if m.state is MoveState.PAUSED]
        if not paused or self.is_moving or self.offline():
            return
        move = self.rng.choice(paused)
        if self.rng.random() < 0.5:
            move.cancel()
        else:
            move.resume()
            assert move.state is MoveState.DONE, (move, move.error)
            self.moved(move.key)

    # --- steps: log dirs and processes ------------------------------------------------------------

    def step_offline(self) -> None:
        """Take a log dir offline, or bring back one that is."""
        offline = self.offline()
        if offline:
            self.store.reopen_dir(offline[0])
            self.look_at_high_watermarks()
            self.mover._look_again()
        elif not self.is_moving:
            log_dir = self.rng.choice(self.store.log_dirs)
            keeper = keepers_of(self.store)[log_dir]
            held = [key for key in self.states if self.where(key) == log_dir]
            self.store.take_offline(log_dir)
            keeper.stop()
            for key in held:
                self.done(key, self.states[key], "durable")

    def step_remove_dir(self) -> None:
        """Take a log dir out that holds nothing any more."""
        held = {log_dir for key in self.states if (log_dir := self.where(key)) is not None}
        empty = [name for name in self.dirs if str(self.root / name) not in held]
        if not empty or len(self.dirs) < 3 or self.is_moving or self.offline():
            return
        name = self.rng.choice(empty)
        self.dirs_change(name, tuple(other for other in self.dirs if other != name))
        try:
            self.store.remove_dir(self.root / name)
        except LogDirError:  # a copy, or a deletion that others are to learn of, is on it yet
            self.dirs_change(None, self.dirs)
            return
        self.dirs = tuple(other for other in self.dirs if other != name)
        self.dirs_change(None, self.dirs)

    def step_lose_dir(self) -> None:
        """Give up a log dir whose disk is gone for good, and all that it held."""
        if len(self.dirs) < 3 or self.is_moving or self.offline():
            return
        name = self.rng.choice(self.dirs)
        path = str(self.root / name)
        if not any(self.has_copies(key) for key in self.states if self.where(key) == path):
            self.lose(name, ())

    def step_promote(self) -> None:
        """Give up the source of a move that is paused; promote what it copied, or delete it."""
        if len(self.dirs) < 3 or self.is_moving or self.offline():
            return
        self.move(Wanted.PAUSE)
        for move in self.mover.moves():
            path = move.source_dir
            held = [key for key in self.states if self.where(key) == path and self.has_copies(key)]
            if move.state is MoveState.PAUSED and held == [move.key]:
                self.lose_all_but_the_copy(move.key, path)
                return

    def lose_all_but_the_copy(self, key: Key, path: str) -> None:
        """Give up a log dir of which one replica has a copy elsewhere; promote or delete it."""
        before = self.states[key]
        assert before is not None
        self.lose(os.path.relpath(path, self.root), (key,))
        self.step_close()
        if key not in self.store.host.replicas.incomplete:  # nothing was copied yet
            self.done(key, None, "durable")
            return
        log = self.store.log(*key)
        found = {record.offset: record.value for record in log}
        after = before.until(log.log_end_offset)
        is_prefix = log.log_start_offset == before.start <= log.log_end_offset == after.end
        if is_prefix and after.may_read(found):
            self.store.promote(*key)
            at = replicated_to(self.store.log(*key))
            self.done(key, after._replace(replicated_to=at, kept=0), "durable")
        else:  # it was copied before a truncation or a deletion
            self.store.delete(*key)
            self.done(key, None, "durable")

    def lose(self, name: str, left: tuple[Key, ...]) -> None:
        """Give up a log dir; of some replicas a part may be elsewhere."""
        path = str(self.root / name)
        held = [key for key in self.states if self.where(key) == path]
        keeper = keepers_of(self.store)[path]
        self.store.take_offline(path)
        keeper.stop()
        for key in held:
            self.done(key, self.states[key], "durable")
        rest = tuple(other for other in self.dirs if other != name)
        for key in held:
            self.recorder.mark(("begin", key, None, "left" if key in left else "durable"))
        self.dirs_change(name, rest)
        self.store.remove_dir(path, lost=True)
        self.dirs = rest
        self.dirs_change(None, rest)
        for key in held:
            if key in left:
                self.states[key] = None
            else:
                self.done(key, None, "durable")
        with patch.dict("logstore.disk.gates._of_dir", clear=True):  # the disk, not its owner
            bulk.remove_tree(path)

    def has_copies(self, key: Key) -> bool:
        """Tell whether there is more of a replica than its live copy."""
        named = f"{key[0]}-{key[1]}"
        return any(
            name != named and name.startswith(f"{named}.")
            for log_dir in self.dirs
            for name in os.listdir(self.root / log_dir)
        )

    def step_add_dir(self) -> None:
        """Take a log dir in that was taken out, or an empty one in the place of a lost one."""
        absent = [name for name in DIRS if name not in self.dirs]
        if absent and not self.is_moving and not self.offline():
            name = self.rng.choice(absent)
            self.dirs_change(name, self.dirs)
            self.store.add_dir(self.root / name)
            self.dirs = (*self.dirs, name)
            self.dirs_change(None, self.dirs)

    def dirs_change(self, name: str | None, dirs: tuple[str, ...]) -> None:
        """Mark which log dirs belong to the store, and which is about to come or go."""
        self.recorder.mark(("dirs", dirs, name))

    def step_cordon(self) -> None:
        log_dir = self.rng.choice([d for d in self.store.log_dirs if d not in self.offline()])
        self.store.cordon(log_dir)
        self.store.uncordon(log_dir)

    def step_close(self) -> None:
        """Close the store and open it again."""
        self.mover.close()
        offline = self.offline()
        self.store.close()
        for key, state in self.states.items():
            replica = self.store.host.replicas.opened.get(key)  # type: ignore[call-overload]
            if replica is not None and replica.log_dir.path not in offline:
                assert state is not None
                self.done(key, state.keeping(), "durable")
        self.open()

    def step_kill(self) -> None:
        """End the process, and begin another: nothing more is durable than was."""
        self.end()
        self.open()

    def end(self) -> None:
        """Let go of everything as a killed process does."""
        abandon(self.store)

    # --- all of them ------------------------------------------------------------------------------

    def step(self, name: str) -> None:
        """Do one step, if there is something to do it on."""
        needs_log = name not in (
            "create",
            "prefer",
            "offline",
            "close",
            "kill",
            "time",
            "purge",
            "remove_dir",
            "lose_dir",
            "add_dir",
        )
        if needs_log and not any(s is not None and self.serves(k) for k, s in self.states.items()):
            name = "create"
        self.counts[name] = self.counts.get(name, 0) + 1
        getattr(self, f"step_{name}")()

    def run(self, steps: int, likely: Mapping[str, int]) -> None:
        names, weights = zip(*likely.items(), strict=True)
        for name in self.rng.choices(names, weights, k=steps):
            self.step(name)


WEIGHTS = {
    "append": 14, "extend": 12, "appender": 3, "encoded": 4, "follow": 4, "epoch": 3,
    "replicated": 6,
    "flush": 5, "flush_store": 1, "truncate": 8, "delete_before": 5, "retain": 3, "time": 2,
    "keep_house": 4, "purge": 6, "verify": 3, "repair": 2, "create": 6, "prefer": 2, "delete": 5,
    "move": 8, "end_move": 3, "offline": 3, "cordon": 1, "close": 2, "kill": 3,
    "remove_dir": 2, "lose_dir": 1, "add_dir": 4, "promote": 3,
}  # fmt: skip
WITH_COMPACTION = {**WEIGHTS, "compact": 25, "flush": 12}
BESIDE_A_MOVE = (
    "append", "extend", "extend", "flush", "truncate", "delete_before", "retain", "time",
    "keep_house", "purge", "create", "delete", "epoch", "encoded", "replicated",
)  # fmt: skip


def record(
    root: Path,
    seed: int,
    steps: int,
    likely: Mapping[str, int] = WEIGHTS,
    keys: Sequence[Key] = KEYS,
) -> tuple[list[Op], dict[str, int]]:
    """Write a history into an empty directory; give its record, and how often each step came.

    Args:
        likely: how likely each step is; those that are not named do not come.
        keys: the partitions that there may be.
    """
    for name in DIRS:
        (root / name).parent.mkdir(parents=True)
    with in_one_thread(), Recorder(root) as recorder:
        for name in DIRS:
            recorder.ops.append(("mkdir", name.partition("/")[0]))
        recorder.ops.append(("sync dir", ""))
        machine = Machine(recorder, root, seed, keys)
        try:
            machine.run(steps, likely)
        finally:  # a mutant may end it early
            machine.end()
    return recorder.ops, machine.counts
