"""Interrupt random operations on a store as Ctrl-C does: `--count 10000 --seed 1`.

The signal comes at a random moment of the operation, and sometimes a second one shortly after it.
With `--mutants` each of some changes to the engine is made in turn, and must be noticed.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import itertools
import os
import random
import signal
import struct
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from logstore import LogStore, LogStoreError
from stress.model import Finding, Step
from stress.mutants import MUTANTS, Mutant
from stress.operations import Program
from support.inside import abandon
from support.places import fast_directory

HANG_SECONDS = 40
STEPS_A_WORLD = 150
REOPEN_EVERY = 50
SECONDS_MIN = 20e-6
UNFINISHED = ("logstore-whole", "logstore-stand-in", "logstore-admin-request")
TRUE_EVERY = 4  # of so many programs one is interrupted from another process
REQUEST = struct.Struct("2d")


class Timer:
    """Sends SIGALRM to this process after a while, and perhaps once more.

    To the interpreter it is what Ctrl-C is: the kernel directs either signal at the process, either
    ends a system call that waits, and for either the C handler only notes that it came. The main
    thread then calls the Python handler between two instructions.
    """

    number = signal.SIGALRM

    def send(self, delay: float, again: float) -> None:
        """Send the signal after `delay` seconds, and if `again` is not 0 after as many more."""
        signal.setitimer(signal.ITIMER_REAL, delay, again)

    def stop(self) -> None:
        """Send none any more."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def close(self) -> None:
        """Nothing is to be let go of."""


class Sender:
    """Sends SIGINT from another process, as a terminal does."""

    number = signal.SIGINT

    def __init__(self) -> None:
        reads, self._writes = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._writes)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            while request := os.read(reads, REQUEST.size):
                for seconds in REQUEST.unpack(request):
                    if seconds:
                        threading.Event().wait(seconds)
                        os.kill(os.getppid(), signal.SIGINT)
            os._exit(0)
        os.close(reads)

    def send(self, delay: float, again: float) -> None:
        """Have it send the signal after `delay` seconds, and perhaps once more."""
        os.write(self._writes, REQUEST.pack(delay, again))

    def stop(self) -> None:
        """Nothing: a signal that comes late is for the next step."""

    def close(self) -> None:
        """End the other process."""
        os.close(self._writes)
        os.waitpid(self._pid, 0)


class Interrupter:
    """Interrupts the main thread at random, at most twice a step.

    Attributes:
        hits: how many interrupts were raised.
    """

    def __init__(self, seed: int, sender: Timer | Sender) -> None:
        self.random = random.Random(seed)
        self.hits = 0
        self.sender = sender
        self._left = 0
        self._seconds: dict[str, float] = {}
        signal.signal(sender.number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._left:
            self._left -= 1
            self.hits += 1
            signal.default_int_handler(number, frame)

    def run(self, step: Step) -> bool:
        """Do a step; tells whether its work returned."""
        usual = self._seconds.get(step.name, 0.001)
        delay = max(SECONDS_MIN, self.random.random() * 1.3 * usual)
        again = self.random.choice([0.0, 0.0, 0.0, delay / 4 + SECONDS_MIN])
        is_done: list[bool] = []
        began = time.perf_counter()
        try:
            try:
                try:
                    self._left = 2 if again else 1
                    self.sender.send(delay, again)
                    step.work()
                    is_done.append(True)
                finally:
                    self._left = 0
            except KeyboardInterrupt:
                self._left = 0
        except KeyboardInterrupt:
            self._left = 0
        self.sender.stop()
        seconds = time.perf_counter() - began
        if is_done:
            self._seconds[step.name] = 0.9 * usual + 0.1 * min(seconds, 0.1)
        return bool(is_done)


def wait_for_the_rest() -> None:
    """Wait for what completes by itself: after a second interrupt, or for a group of appends."""
    for thread in threading.enumerate():
        if thread.name in UNFINISHED and thread.is_alive():
            thread.join()


def run_world(root: Path, seed: int, count: int, counts: Counter[str]) -> int:
    """Run one program until it has met so many interrupts, or is long enough; give how many."""
    interrupter = Interrupter(seed, Timer() if seed % TRUE_EVERY else Sender())
    world = Program(root, seed)
    world.begin()
    history: list[str] = []
    try:
        for number in itertools.count(1):
            step = world.step()
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            history.append(f"{step.name} {step.key}")
            hits = interrupter.hits
            is_done = interrupter.run(step)
            counts[step.name] += interrupter.hits - hits
            history[-1] += f" x{interrupter.hits - hits}"
            wait_for_the_rest()
            step.settle()
            world.check(step, is_done)
            is_over = number >= STEPS_A_WORLD or interrupter.hits >= count
            if number % REOPEN_EVERY == 0 or is_over:
                world.reopen()
            if is_over:
                break
        world.store.close()
    except BaseException:
        print(f"seed {seed}, step {len(history)}, the last ones: {history[-8:]}", flush=True)
        with contextlib.suppress(LogStoreError):
            abandon(world.store)
        raise
    finally:
        interrupter.sender.close()
        faulthandler.cancel_dump_traceback_later()
    return interrupter.hits


def run(count: int, seed: int) -> Counter[str]:
    """Run programs until so many interrupts have been raised."""
    counts: Counter[str] = Counter()
    hits = 0
    while hits < count:
        with fast_directory() as root:
            hits += run_world(root, seed, count - hits, counts)
        seed += 1
    return counts


def is_caught(mutant: Mutant, count: int, seed: int) -> bool:
    """Tell whether programs with a changed engine break a promise, in a process of their own."""
    child = os.fork()
    if child == 0:
        try:
            mutant.change()
            run(count, seed)
        except (Finding, AssertionError, LogStoreError, OSError, RuntimeError):
            print(traceback.format_exc(limit=-2), flush=True)
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) != 0


def main(arguments: list[str]) -> int:
    """Run it, and print the seed and what was interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--mutants", type=int, nargs="?", const=len(MUTANTS), default=0)
    options: Any = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    if options.mutants:
        chosen = MUTANTS[: options.mutants]
        missed = [one.name for one in chosen if not is_caught(one, options.count, seed)]
        print(f"mutants: {len(chosen) - len(missed)} of {len(chosen)} caught; missed: {missed}")
        return int(bool(missed))
    began = time.monotonic()
    counts = run(options.count, seed)
    seconds = time.monotonic() - began
    print(f"{sum(counts.values())} interrupts in {seconds:.1f} s: {dict(counts.most_common())}")
    return 0


if __name__ == "__main__":
    assert LogStore is not None
    sys.exit(main(sys.argv[1:]))
