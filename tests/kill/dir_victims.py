"""What a process does with its log dirs until it ends itself at one of its calls to a disk.

    I <operation>     about to be done          A <operation>     acknowledged

A victim says so on a pipe, one line each. It runs everything in one thread, so that the n-th call
is the same in every run: no keeper is started, and what would be done at once is done in turn.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from logstore import LogConfig, LogStore, StoreConfig, TopicPartition
from logstore.disk import files
from logstore.store.dirs import parallel
from logstore.store.upkeep.keeper import DirKeeper
from support.inside import keepers_of
from support.moves import StagedMove

CONFIG = LogConfig(segment_bytes=1024, index_interval_bytes=256)
HOUR_MS = 3_600_000
QUIET = StoreConfig(
    log_flush_scheduler_interval_ms=HOUR_MS,
    log_flush_offset_checkpoint_interval_ms=HOUR_MS,
    log_retention_check_interval_ms=HOUR_MS,
)
ORDERS, OTHER, FRESH = (
    TopicPartition("orders", 0),
    TopicPartition("orders", 1),
    TopicPartition("fresh", 0),
)
RECORDS = 40
# Between two of these nothing changes that the next process could see.
CHANGES = (
    "open_file", "pwrite", "pwritev", "ftruncate", "fsync", "fdatasync", "rename", "unlink",
    "rmdir", "mkdir", "link", "flock",
)  # fmt: skip


def value(key: TopicPartition, number: int) -> bytes:
    """Make the value of a record."""
    return b"%s %d " % (str(key).encode(), number) + b"v" * (number * 37 % 200)


class Inline:
    """A thread that has done its work when `start` returns."""

    def __init__(self, *, target: Callable[..., None], args: Any = (), **_: Any) -> None:
        self.start = lambda: target(*args)

    def is_alive(self) -> bool:
        return False

    def join(self, timeout: float | None = None) -> None:
        pass


class Victim:
    """A process with a store, which says what it does and ends before its n-th change."""

    def __init__(self, root: Path, say_fd: int, nth: int) -> None:
        self.root, self.say_fd, self.nth = root, say_fd, nth
        self.changes = 0
        self.numbers: dict[TopicPartition, int] = {ORDERS: RECORDS, OTHER: RECORDS}
        replaced: Any = (parallel, DirKeeper)
        replaced[0].threading = SimpleNamespace(Thread=Inline)
        replaced[1].start = lambda keeper: None

    def say(self, text: str) -> None:
        os.write(self.say_fd, f"{text}\n".encode())

    def run(self, scenario: Scenario) -> None:
        """Open and prepare without counting, then do the work; never returns."""
        if scenario.before is not None:
            self.open()
            scenario.before(self)
        self.count()
        scenario.work(self)
        self.say(f"C {self.changes}")
        os._exit(0)

    def count(self) -> None:
        """End the process before its n-th change of a disk, as a kill would."""
        for name in CHANGES:
            original = getattr(files, name)

            def call(*args: Any, original: Any = original, **kwargs: Any) -> Any:
                self.changes += 1
                if self.changes == self.nth:
                    os._exit(1)
                return original(*args, **kwargs)

            setattr(files, name, call)

    # --- what it does -----------------------------------------------------------------------------

    def open(self) -> None:
        dirs = [self.root / name for name in "abz"]
        self.store = LogStore.open(dirs, config=QUIET, admin_socket=False)

    def do(self, operation: str, call: Callable[[], object]) -> None:
        self.say(f"I {operation}")
        call()
        self.say(f"A {operation}")

    def append(self, key: TopicPartition, count: int) -> None:
        """Append one by one; every other record is durable."""
        first = self.numbers[key]
        self.numbers[key] = first + count
        log = self.store.log(*key)
        for number in range(first, first + count):
            is_durable = number % 2 == 1
            data = value(key, number)
            self.do(f"append {key} {number}", partial(log.append, data, durable=is_durable))

    def create(self, key: TopicPartition, name: str) -> None:
        path = self.root / name
        self.do(
            f"create {key}",
            lambda: self.store.create(*key, log_dir=path, config=CONFIG, is_new=True),
        )
        self.numbers[key] = 0

    def delete(self, key: TopicPartition) -> None:
        self.do(f"delete {key}", lambda: self.store.delete(*key))

    def change(self, what: str, name: str, **options: bool) -> None:
        """Do a change of a log dir: `add`, `remove`, `reopen`, `cordon`, `uncordon`."""
        method = {"add": "add_dir", "remove": "remove_dir", "reopen": "reopen_dir"}.get(what, what)
        call = getattr(self.store, method)
        self.do(f"{what} {name}", lambda: call(self.root / name, **options))

    def purge(self) -> None:
        """Do what the keepers were asked to remove; no duty of theirs is due at time 0."""
        for keeper in list(keepers_of(self.store).values()):
            keeper.run_due(0.0)


# --- scenarios ------------------------------------------------------------------------------------


class Scenario(NamedTuple):
    """What a victim does.

    Attributes:
        before: what it does first, when it is not yet to die; None: the store is not open then.
        stage: what was done to the directories before.
        is_clean: the store was closed in order.
    """

    name: str
    work: Callable[[Victim], None]
    before: Callable[[Victim], None] | None = None
    stage: Callable[[Path], None] | None = None
    is_clean: bool = True


def start(victim: Victim) -> None:
    victim.open()
    victim.append(ORDERS, 3)
    victim.purge()
    victim.store.close()


def nothing(_: Victim) -> None:
    """Only open the store."""


def create(victim: Victim) -> None:
    victim.create(FRESH, "a")
    victim.append(FRESH, 12)
    victim.delete(FRESH)
    victim.create(FRESH, "b")
    victim.append(FRESH, 2)
    victim.purge()


def delete(victim: Victim) -> None:
    victim.delete(ORDERS)
    victim.purge()
    victim.create(ORDERS, "z")
    victim.append(ORDERS, 2)
    victim.delete(OTHER)
    victim.store.close()


def add(victim: Victim) -> None:
    victim.change("add", "c")
    victim.create(FRESH, "c")
    victim.append(FRESH, 3)


def remove(victim: Victim) -> None:
    victim.change("remove", "b")
    victim.append(ORDERS, 2)


def lose_disk(victim: Victim) -> None:
    """Have a disk fail and be wiped: nothing was on it."""
    victim.store.take_offline(victim.root / "b")
    shutil.rmtree(victim.root / "b")
    (victim.root / "b").mkdir()


def remove_lost(victim: Victim) -> None:
    victim.change("remove", "b", lost=True)
    victim.append(ORDERS, 2)


def replace(victim: Victim) -> None:
    victim.change("reopen", "b", format_new=True)
    victim.create(FRESH, "b")
    victim.append(FRESH, 2)


def take_offline(victim: Victim) -> None:
    victim.append(ORDERS, 2)
    victim.store.take_offline(victim.root / "a")


def reopen(victim: Victim) -> None:
    victim.change("reopen", "a")
    victim.append(ORDERS, 3)


def promote(victim: Victim) -> None:
    victim.do(f"promote {ORDERS}", lambda: victim.store.promote(*ORDERS))
    victim.append(ORDERS, 3)


def cordon(victim: Victim) -> None:
    victim.change("cordon", "a")
    victim.append(ORDERS, 1)
    victim.change("uncordon", "a")
    victim.change("cordon", "a")
    victim.store.prefer_dir("later", 0, victim.root / "b")


def a_move(root: Path) -> StagedMove:
    return StagedMove(root / "a", root / "b", *ORDERS, RECORDS)


def cut_short(root: Path) -> None:
    """Leave a copy under way, its source gone with its disk: all records are in the copy."""
    shutil.rmtree(a_move(root).name().copy().live)


def half_swapped(root: Path) -> None:
    a_move(root).name().copy().catch_up().rename_source()


def two_live(root: Path) -> None:
    a_move(root).name().copy().catch_up().rename_target()


def swapped(root: Path) -> None:
    a_move(root).name().copy().catch_up().rename_source().rename_target()


def cancelled(root: Path) -> None:
    a_move(root).copy().catch_up()


SCENARIOS = (
    Scenario("start after a stop", start),
    Scenario("start after a crash", start, is_clean=False),
    Scenario("start between the renames of a swap", start, stage=half_swapped),
    Scenario("start with two live copies", start, stage=two_live),
    Scenario("start after a swap", start, stage=swapped),
    Scenario("start after a cancelled move", start, stage=cancelled),
    Scenario("create", create, nothing),
    Scenario("delete", delete, nothing),
    Scenario("add_dir", add, nothing),
    Scenario("remove_dir", remove, nothing),
    Scenario("remove_dir, lost", remove_lost, lose_disk),
    Scenario("reopen_dir", reopen, take_offline),
    Scenario("reopen_dir, replaced", replace, lose_disk),
    Scenario("promote", promote, nothing, stage=cut_short),
    Scenario("cordon", cordon, nothing),
)
