"""Measure one property of the disks in each phase: append, read, point-read, recover.

In every round, a phase is prepared, run and finished. Only `run` is timed. A phase stores its
operations in samplers, one for each worker, and counts the bytes and records of a round.
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
    """Serve as the base of all phases; a subclass measures one property.

    Attributes:
        samplers: the operations of all rounds.
        size_bytes: how many bytes of values the latest round handled.
        records: how many records the latest round handled.
        seconds: the time of the latest round; set only if a part of the work in `run` is not
            measured.
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
        """Prepare a round."""

    def run(self) -> None:
        """Run a round; only this method is timed."""
        raise AssertionError("a subclass must define run")

    def finish(self) -> None:
        """Clean up after a round, even if its preparation failed."""
        self._close_stores()
        self.bed.clear()

    def close(self) -> None:
        """Clean up after all rounds."""
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
    """Create the values of one append.

    The values are random, so that no codec can compress them.
    """
    pool = os.urandom(case.batch_bytes)
    size = case.record_bytes
    return [pool[start : start + size] for start in range(0, len(pool), size)]


def make_logs(store: LogStore, case: Case) -> list[Log]:
    """Create a partition for each writer, and at least one on each log dir."""
    dirs = store.log_dirs
    count = max(case.writers, len(dirs))
    return [store.create(TOPIC, n, log_dir=dirs[n % len(dirs)]) for n in range(count)]


def at_once(work: Callable[[int], None], workers: int) -> None:
    """Run a function in several threads; if threads raise errors, raise the first error."""
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
    """Append `size_bytes` in total; for each sampler, a thread appends to some of the logs."""
    values = batch_of(case)
    rounds = max(1, size_bytes // case.batch_bytes // len(samplers))
    is_durable = case.sync == "durable"

    def write(worker: int) -> None:
        sampler, mine = samplers[worker], logs[worker :: len(samplers)]
        # A disk may be slower than its measured speed.
        deadline = time.perf_counter() + 4 * case.seconds
        began = time.perf_counter_ns()
        for turn in range(rounds):
            mine[turn % len(mine)].extend(values, durable=is_durable)
            began = sampler.add(began, case.batch_bytes, case.batch_records)
            if is_durable and time.perf_counter() > deadline:
                return

    at_once(write, len(samplers))


class Append(Phase):
    """Measure how fast records are appended and flushed to the disks."""

    name = "append"

    def prepare(self) -> None:
        """Create a store with empty logs."""
        self.store = self._open_store()
        self.logs = make_logs(self.store, self.case)

    def run(self) -> None:
        """Append the bytes of a round, then flush the records that are not flushed yet."""
        samplers = [Sampler(worker) for worker in range(self.case.writers)]
        fill(self.logs, self.case, self.bed.budget_bytes(self.case), samplers)
        self.store.flush()
        self._count(samplers)


class Filled(Phase):
    """Serve as the base of phases whose store is filled before the first round."""

    def prepare(self) -> None:
        """Fill the store in the first round; drop the store from the page cache in every round."""
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
        """Close the store, but do not remove it, because the next round uses it."""
        self._close_stores()


class Read(Filled):
    """Measure how fast all logs are read from the disks, in order and with checks."""

    name = "read"

    def run(self) -> None:
        """Read every log, with one thread per log dir."""
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
    """Measure how long it takes to read one record from the disks by its offset.

    The store caches no batches. When a read begins, the kernel's page cache has no page of
    the segments.
    """

    name = "point-read"

    def run(self) -> None:
        """Read records at random for the time of the case, with one thread per log dir."""
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
    """Measure how long a store takes to open after its process died without any flush."""

    name = "recover"

    def prepare(self) -> None:
        """Fill a store in a child process that dies without a flush."""
        size_bytes = self.bed.budget_bytes(self.case)
        words = ["-m", "logstore.bench.die", str(size_bytes), *self.bed.store_dirs]
        with subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            assert child.stderr is not None
            complaint = child.stderr.read().strip()
        if child.returncode:
            raise LogStoreError(f"the process that fills a store and dies failed: {complaint}")
        self.bed.drop_cache()

    def run(self) -> None:
        """Open the store."""
        sampler = Sampler(0)
        began = time.perf_counter_ns()
        self.store = self._open_store()
        logs = [self.store.log(*name) for name in self.store]
        size_bytes = sum(log.size_bytes for log in logs)
        sampler.add(began, size_bytes, sum(len(log) for log in logs))
        self._count([sampler])


class Beside(Phase):
    """Measure how the other disks perform while the first disk is slow, full or dead.

    `trouble` makes the first disk slow, full or dead, and returns a function that makes the disk
    healthy again. The number of each worker is the number of the worker's disk, so that the trace
    shows the disk.
    """

    name = "beside"

    def __init__(self, bed: Bed, case: Case, trouble: Callable[[], Callable[[], None]]) -> None:
        super().__init__(bed, case)
        self._trouble = trouble
        self._undo: Callable[[], None] = lambda: None

    def prepare(self) -> None:
        """Create a store with a log on each disk."""
        self.store = self._open_store()
        self.logs = make_logs(self.store, self.case)
        self._undo = self._trouble()

    def run(self) -> None:
        """Append to every disk for the time of the case, with one thread per disk."""
        samplers = [Sampler(worker) for worker in range(len(self.logs))]
        values = batch_of(self.case)
        deadline = time.perf_counter() + self.case.seconds

        def write(worker: int) -> None:
            while time.perf_counter() < deadline:
                began = time.perf_counter_ns()
                try:
                    self.logs[worker].extend(values, durable=True)
                except LogDirSuspectError:
                    # The error is retriable: append again after a pause, as a service would.
                    time.sleep(0.01)
                except LogStoreError:
                    return  # the disk is full or dead; earlier appends are in the trace
                else:
                    samplers[worker].add(began, self.case.batch_bytes, self.case.batch_records)

        at_once(write, len(samplers))
        self._count(samplers)

    def finish(self) -> None:
        """Make the disk healthy again, close the stores if possible, and remove the store."""
        self._undo()
        super().finish()

    def _close_stores(self) -> None:
        while self._stores:
            with suppress(LogStoreError):  # closing fails on the disk that this case made dead
                self._stores.pop().close(timeout=10)


PHASES: dict[str, type[Phase]] = {kind.name: kind for kind in (Append, Read, PointRead, Recover)}
