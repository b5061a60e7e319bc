"""Ask one question of the disks each: append, read, point-read, recover.

Each phase is prepared, run and finished, round after round; only `run` is timed. It notes its
operations in samplers, one a worker, and says how many bytes and records a round handled.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

from logstore import Log, LogDirSuspectError, LogStore, LogStoreError
from logstore.bench.bed import TOPIC, Bed, drop_cache_of
from logstore.bench.cases import Case
from logstore.bench.samples import Sampler

POINT_SEED = 20


class Phase:
    """One question; a subclass asks it.

    Attributes:
        samplers: what was noted, of all rounds.
        size_bytes: of values, handled by the last round.
        records: handled by the last round.
        seconds: how long that took, where it is not the whole of `run`.
    """

    name: ClassVar[str]

    def __init__(self, bed: Bed, case: Case) -> None:
        self.bed = bed
        self.case = case
        self.samplers: list[Sampler] = []
        self.size_bytes = 0
        self.records = 0
        self.seconds: float | None = None
        self._stores: list[LogStore] = []

    def prepare(self) -> None:
        """Get ready for a round."""

    def run(self) -> None:
        """Do a round."""
        raise AssertionError("a phase has a run of its own")

    def finish(self) -> None:
        """Clean up after a round, also after one that broke off while it was prepared."""
        self._close_stores()
        self.bed.clear()

    def close(self) -> None:
        """Clean up after the last round."""
        self.bed.clear()

    def _open_store(self) -> LogStore:
        """Open the store of the case; `finish` closes it."""
        store = self.bed.open_store(self.case)
        self._stores.append(store)
        return store

    def _close_stores(self) -> None:
        while self._stores:
            self._stores.pop().close()

    def _count(self, samplers: list[Sampler]) -> None:
        self.samplers += samplers
        rows = [row for sampler in samplers for row in sampler.rows]
        self.size_bytes = sum(row[2] for row in rows)
        self.records = sum(row[3] for row in rows)


def batch_of(case: Case) -> list[bytes]:
    """Make the values of one append; they do not compress."""
    pool = os.urandom(case.batch_bytes)
    size = case.record_bytes
    return [pool[start : start + size] for start in range(0, len(pool), size)]


def make_logs(store: LogStore, case: Case) -> list[Log]:
    """Create as many partitions as there are writers, at least one a log dir, dir after dir."""
    dirs = store.log_dirs
    count = max(case.writers, len(dirs))
    return [store.create(TOPIC, n, log_dir=dirs[n % len(dirs)]) for n in range(count)]


def at_once(work: Callable[[int], None], workers: int) -> None:
    """Run a function in so many threads, and raise the first error of theirs."""
    errors: list[BaseException] = []

    def guarded(worker: int) -> None:
        try:
            work(worker)
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def fill(logs: list[Log], case: Case, size_bytes: int, samplers: list[Sampler]) -> None:
    """Append so many bytes in all, a thread a sampler, each to its share of the logs."""
    values = batch_of(case)
    rounds = max(1, size_bytes // case.batch_bytes // len(samplers))
    is_durable = case.sync == "durable"

    def write(worker: int) -> None:
        sampler, mine = samplers[worker], logs[worker :: len(samplers)]
        deadline = time.perf_counter() + 4 * case.seconds  # a disk may be slower than calibrated
        began = time.perf_counter_ns()
        for turn in range(rounds):
            mine[turn % len(mine)].extend(values, durable=is_durable)
            began = sampler.add(began, case.batch_bytes, case.batch_records)
            if is_durable and time.perf_counter() > deadline:
                return

    at_once(write, len(samplers))


class Append(Phase):
    """How fast can be appended, until everything is on the disks?"""

    name = "append"

    def prepare(self) -> None:
        """Make a store with empty logs."""
        self.store = self._open_store()
        self.logs = make_logs(self.store, self.case)

    def run(self) -> None:
        """Append a round's bytes, and flush what is left to flush."""
        samplers = [Sampler(worker) for worker in range(self.case.writers)]
        fill(self.logs, self.case, self.bed.budget_bytes(self.case), samplers)
        self.store.flush()
        self._count(samplers)


class Filled(Phase):
    """A phase on a store that was filled and closed before the first round."""

    def prepare(self) -> None:
        """Fill the store once; forget it in the cache before every round."""
        if not getattr(self, "_is_filled", False):
            case = self.case._replace(sync="none")
            with self.bed.open_store(case) as store:
                logs = make_logs(store, case)
                samplers = [Sampler(n) for n in range(len(store.log_dirs))]
                fill(logs, case, self.bed.budget_bytes(case), samplers)
            self._is_filled = True
        self.bed.drop_cache()
        self.store = self._open_store()
        self.logs = [self.store.log(*name) for name in sorted(self.store)]

    def finish(self) -> None:
        """Close the store and keep it for the next round."""
        self._close_stores()


class Read(Filled):
    """How fast can all be read, from the disks, checked, in order?"""

    name = "read"

    def run(self) -> None:
        """Read every log, a thread a log dir."""
        samplers = [Sampler(n) for n in range(len(self.store.log_dirs))]

        def read(worker: int) -> None:
            began = time.perf_counter_ns()
            for log in self.logs[worker :: len(samplers)]:
                for batch in log.read_batches(log.log_start_offset):
                    size_bytes = len(batch) * self.case.record_bytes
                    began = samplers[worker].add(began, size_bytes, len(batch))

        at_once(read, len(samplers))
        self._count(samplers)


class PointRead(Filled):
    """How long does it take to get one record by its offset, from the disks?

    Nothing of the segments is cached: neither here nor, at the beginning of an operation, by the
    kernel.
    """

    name = "point-read"

    def run(self) -> None:
        """Read records at random, a thread a log dir, for the time of the case."""
        samplers = [Sampler(n) for n in range(len(self.store.log_dirs))]

        def read(worker: int) -> None:
            chance = random.Random(POINT_SEED + worker)
            deadline = time.perf_counter() + self.case.seconds
            while time.perf_counter() < deadline:
                number = chance.randrange(worker, len(self.logs), len(samplers))
                log = self.logs[number]
                offset = chance.randrange(log.log_start_offset, log.log_end_offset)
                drop_cache_of(os.path.join(self.bed.store_dirs[worker], f"{TOPIC}-{number}"))
                began = time.perf_counter_ns()
                log[offset]
                samplers[worker].add(began, self.case.record_bytes, 1)

        at_once(read, len(samplers))
        self._count(samplers)


class Recover(Phase):
    """How long does a store take to open after its process died with nothing flushed?"""

    name = "recover"

    def prepare(self) -> None:
        """Have a process fill a store and die."""
        size_bytes = self.bed.budget_bytes(self.case)
        words = ["-m", "logstore.bench.die", str(size_bytes), *self.bed.store_dirs]
        with subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            assert child.stderr is not None
            complaint = child.stderr.read().strip()
        if child.returncode:
            raise LogStoreError(f"the process that was to fill a store and die: {complaint}")
        self.bed.drop_cache()

    def run(self) -> None:
        """Open it."""
        sampler = Sampler(0)
        began = time.perf_counter_ns()
        self.store = self._open_store()
        logs = [self.store.log(*name) for name in self.store]
        size_bytes = sum(log.size_bytes for log in logs)
        sampler.add(began, size_bytes, sum(len(log) for log in logs))
        self._count([sampler])


class Beside(Phase):
    """What do the other disks notice while the first one is slow, full or dead?

    `trouble` puts the first disk into trouble and gives what undoes it; the workers are numbered
    by disk, so that the trace tells the sick disk from the others.
    """

    name = "beside"

    def __init__(self, bed: Bed, case: Case, trouble: Callable[[], Callable[[], None]]) -> None:
        super().__init__(bed, case)
        self._trouble = trouble
        self._undo: Callable[[], None] = lambda: None

    def prepare(self) -> None:
        """Make a store with a log on each disk."""
        self.store = self._open_store()
        self.logs = make_logs(self.store, self.case)
        self._undo = self._trouble()

    def run(self) -> None:
        """Append to every disk for the time of the case, a thread a disk."""
        samplers = [Sampler(worker) for worker in range(len(self.logs))]
        values = batch_of(self.case)
        deadline = time.perf_counter() + self.case.seconds

        def write(worker: int) -> None:
            while time.perf_counter() < deadline:
                began = time.perf_counter_ns()
                try:
                    self.logs[worker].extend(values, durable=True)
                except LogDirSuspectError:
                    time.sleep(0.01)  # retriable: as a service would, without a busy loop
                except LogStoreError:
                    return  # full or dead; what it took until then is in the trace
                else:
                    samplers[worker].add(began, self.case.batch_bytes, self.case.batch_records)

        at_once(write, len(samplers))
        self._count(samplers)

    def finish(self) -> None:
        """Take the disk out of its trouble, close what can be closed, remove it."""
        self._undo()
        super().finish()

    def _close_stores(self) -> None:
        while self._stores:
            with suppress(LogStoreError):  # of the dead disk: that is what was asked for
                self._stores.pop().close(timeout=10)


PHASES: dict[str, type[Phase]] = {kind.name: kind for kind in (Append, Read, PointRead, Recover)}
