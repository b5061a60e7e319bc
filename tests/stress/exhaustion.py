"""Take from random programs what a process needs, for a while: `--count 2000 --seed 1`.

Each program runs in a process of its own. At a random operation it runs short of descriptors,
threads, memory or size of files, for one operation or several; then it has all of it again, and
everything must be as if nothing had been.

With `--mutants` each of some changes to the engine is made in turn, and must be noticed.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import glob
import importlib
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from logstore import Log, LogStoreError, StoreConfig
from logstore.disk.log_dir import LogDir
from stress.exhaustion_mutants import MUTANTS, Mutant
from stress.model import Finding, Step
from stress.operations import Program
from stress.shortages import KINDS, LARGE, SMALL, Size, become_another_user
from support.hanging import QUIET
from support.places import fast_directory

HANG_SECONDS = 40
STEPS = 14
# Threads of the log dirs that look after everything all the time, and so meet the shortage, too.
BUSY = StoreConfig(
    log_flush_scheduler_interval_ms=5,
    log_flush_offset_checkpoint_interval_ms=5,
    log_retention_check_interval_ms=5,
    log_dir_probe_interval_ms=100,
    log_dir_suspect_ms=QUIET.log_dir_suspect_ms,
)
WARM = (
    "logstore.format.kafka.record_batch",
    "logstore.format.kafka.sound",
    "logstore.store.start.preload",
    "logstore.store.view",
    "logstore.format.kafka.decode",
    "mover",
)
ALLOWED = (LogStoreError, MemoryError)


class Scarce(Program):
    """A program that runs short of something at some of its operations."""

    def __init__(self, root: Path, seed: int, kind: str, size: Size, config: StoreConfig) -> None:
        super().__init__(root, seed, size.configs, size.value_bytes_max, config)
        self.kind, self.size = kind, size._replace(root=root)
        self.history: list[str] = []
        self.raised = 0

    def attempt(self, step: Step, is_short: bool) -> bool:
        """Do a step; tells whether it returned. Raises Finding for an error of a wrong kind."""
        self.history.append(f"{step.name} {step.key}" + (" short" if is_short else ""))
        if not is_short:
            step.work()
            return True
        caught: BaseException | None = None
        has_spares = (
            self.kind == "descriptors"
            and self.store_config is QUIET
            and all(one.spare._fd >= 0 for one in self.store.host.replicas.log_dirs)
        )
        with KINDS[self.kind](self.random, self.size):
            try:
                step.work()
            except BaseException as error:  # noqa: BLE001 - its type is judged below
                caught = error
        if caught is None:
            return True
        self.raised += 1
        if step.name.startswith("flush") and has_spares:
            raise Finding(f"{step.name} failed with a spare descriptor: {caught}") from caught
        self.history[-1] += f": {type(caught).__name__}: {caught}"[:200]
        if not isinstance(caught, ALLOWED):
            raise Finding(f"{step.name} raised {type(caught).__name__}: {caught}") from caught
        traceback.clear_frames(caught.__traceback__)
        return False

    def run(self) -> None:
        """Do the whole program."""
        begin = self.random.randrange(1, STEPS - 2)
        end = begin + self.random.choice([1, 1, 2, 3, 5])
        for number in range(STEPS):
            step = self.step()
            is_short = begin <= number < end
            is_done = self.attempt(step, is_short)
            if is_done and is_short and self.random.random() < 0.5 and step.key is not None:
                self.take(step)  # by its word
                continue
            step.settle()
            self.check(step, is_done)
        self.check_all()
        self.reopen()
        self.reopen()
        left = self.close()
        if left:
            raise Finding(f"not closed cleanly: {left}")

    def close(self) -> tuple[str, ...]:
        """Close it; what is said to be closed in order is on the disk."""
        logs = [(log_dir.path, log) for log_dir, log in self.open_logs()]
        left = super().close()
        for path, log in logs:
            if path not in left and not log.is_closed_whole:
                raise Finding(f"{log} was not closed whole, but {path} was closed in order")
        return left

    def open_logs(self) -> list[tuple[LogDir, Log]]:
        """Give the logs that the store has open, and where."""
        replicas = self.store.host.replicas
        return [(one, log) for one in replicas.log_dirs for log in replicas.on(one)]

    def check(self, step: Step, is_done: bool) -> None:
        """See also that no byte is left of what was not appended."""
        super().check(step, is_done)
        if step.key is None or step.key not in self.store:
            return
        log = self.store[step.key]
        written = sum(os.stat(name).st_size for name in glob.glob(f"{log.directory}/*.log"))
        if written != log.size_bytes and not log._state.half_made:
            raise Finding(f"{step.name}: {log.directory} has {written} bytes, not {log.size_bytes}")

    def operations(self) -> list[Callable[[], Step]]:
        """Flush more often, which may take the spare descriptor, and close."""
        return super().operations() + [self._flush] * 4 + [self._close] * 2

    def close_again(self) -> tuple[str, ...]:
        """Close it; what a shortage left is told once by an error, then by name: not in order."""
        with contextlib.suppress(*ALLOWED):
            self.close()
        self.close()
        return ()

    def take(self, step: Step) -> None:
        """Believe a step that returned."""
        assert step.key is not None
        if step.after is None:
            self.model.pop(step.key, None)
        else:
            self.model[step.key] = step.after


def open_files() -> set[str]:
    """Name what this process has open."""
    names = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            names.add(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
    return {name for name in names if not name.endswith("/fd")}


def check_leaks(before: set[str]) -> None:
    """See that nothing is open, and no thread runs, that was not before."""
    deadline = time.monotonic() + 10
    while threading.active_count() > 1 and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    if threading.active_count() > 1:
        raise Finding(f"threads are left: {threading.enumerate()}")
    gc.collect()
    if open_files() - before:
        raise Finding(f"left open: {open_files() - before}")


def run_program(root: Path, kind: str, seed: int) -> int:
    """Run one program; gives how many of its operations raised."""
    chance = random.Random(seed * 4 + list(KINDS).index(kind))
    size = LARGE if kind in ("memory", "file size") and chance.random() < 0.5 else SMALL
    if kind == "threads" and os.geteuid() == 0 and chance.random() < 0.5:
        become_another_user([str(root)])
    before = open_files()
    world = Scarce(root, seed, kind, size, chance.choice([QUIET, BUSY]))
    try:
        world.begin()
        world.run()
        del world.store
        check_leaks(before)
    except BaseException:
        print(f"{kind}, seed {seed}: {world.history}", flush=True)
        raise
    return world.raised


def warm_up() -> None:
    """Import what programs need, once for all of them; `test_exhaustion` looks at when they do."""
    for name in WARM:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def in_a_child(kind: str, seed: int, change: Callable[[], object] | None = None) -> int:
    """Run one program in a process of its own; gives how many operations raised, or -1."""
    with fast_directory() as root:
        child = os.fork()
        if child == 0:
            status = 255
            try:
                faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
                if change is not None:
                    change()
                status = min(run_program(root, kind, seed), 200)
            except BaseException:  # noqa: BLE001 - the parent sees the status
                with contextlib.suppress(BaseException):
                    traceback.print_exc()
                    sys.stderr.flush()
            os._exit(status)
        _, waited = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(waited)
    return code if 0 <= code <= 200 else -1


def run(count: int, seed: int, kinds: list[str], goes_on: bool) -> int:
    """Run programs of all kinds in turn; gives how many failed."""
    raised: Counter[str] = Counter()
    failed: list[str] = []
    for number in range(count):
        kind = kinds[number % len(kinds)]
        outcome = in_a_child(kind, seed + number)
        if outcome < 0:
            failed.append(f"--kind {kind!r} --count 1 --seed {seed + number}")
            print(f"FAILED: {failed[-1]}", flush=True)
            if not goes_on:
                break
        else:
            raised[kind] += outcome
    print(f"{count} programs; operations that raised: {dict(raised)}; failed: {failed}")
    return len(failed)


def is_caught(mutant: Mutant, count: int, seed: int) -> bool:
    """Tell whether one of some programs breaks a promise on a changed engine."""
    for number in range(count):
        if in_a_child(mutant.kind, seed + number, mutant.change) < 0:
            print(f"caught by program {number + 1}: {mutant.name}", flush=True)
            return True
    return False


def main(arguments: list[str]) -> int:
    """Run it, and print the seed and what was met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--goes-on", action="store_true")
    parser.add_argument("--mutants", type=int, nargs="?", const=len(MUTANTS), default=0)
    options: Any = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    warm_up()
    if options.mutants:
        chosen = MUTANTS[: options.mutants]
        missed = [one.name for one in chosen if not is_caught(one, options.count, seed)]
        print(f"mutants: {len(chosen) - len(missed)} of {len(chosen)} caught; missed: {missed}")
        return int(bool(missed))
    failed = run(options.count, seed, options.kind or list(KINDS), options.goes_on)
    print(f"{time.monotonic() - began:.1f} s")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
