"""Measure how fast replicas move, how exact throttles are, and how moves slow appends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks import children
from benchmarks.compare import GIGABYTES, Side
from benchmarks.conftest import Ledger
from benchmarks.disks import Disks, two_disks
from benchmarks.moving import (
    TOPIC,
    appending,
    bare_copy,
    bare_swap,
    bytes_in,
    fill,
    move,
    quantile,
    read_through,
    wait_purged,
)
from benchmarks.report import Row, at_least, at_most
from benchmarks.workload import Sizes
from logstore import Log, LogConfig, LogStore
from logstore.log import relocation
from mover import ReplicaMover

MB = 1_000_000


@pytest.fixture(scope="module")
def disks(bench_dir: str, sizes: Sizes) -> Iterator[Disks]:
    """Provide two file systems; the second has room for a replica and a bare copy of it."""
    with two_disks(bench_dir, 2 * sizes.move_bytes) as disks:
        yield disks


class Stand:
    """Hold a store over two disks, with its replicas on the first disk."""

    def __init__(self, disks: Disks) -> None:
        self.disks, self.words = disks, disks.words
        self.log_dirs = [os.path.join(path, "logs") for path in (disks.source, disks.target)]
        self.bare = os.path.join(disks.target, "bare")
        os.makedirs(self.bare, exist_ok=True)
        self.store = LogStore.open(self.log_dirs)

    def fill(self, sizes: list[int]) -> list[Log]:
        """Create new replicas of the given sizes."""
        first = len(self.store)
        return [
            fill(self.store, self.log_dirs[0], first + number, size)
            for number, size in enumerate(sizes)
        ]

    def clear(self) -> None:
        """Delete all replicas."""
        for key in list(self.store):
            self.store.delete(*key)
        wait_purged(self.log_dirs)


@pytest.fixture
def stand(disks: Disks) -> Iterator[Stand]:
    """Provide an empty store; delete its replicas after the benchmark."""
    stand = Stand(disks)
    try:
        yield stand
    finally:
        stand.clear()
        stand.store.close()


@pytest.mark.parametrize(("is_verified", "part"), [(True, 0.90), (False, 0.97)])
def bench_move(ledger: Ledger, sizes: Sizes, stand: Stand, is_verified: bool, part: float) -> None:
    """Move a replica to another file system; in turn, copy its files with bare system calls."""
    (log,) = stand.fill([sizes.move_bytes])
    home, target = stand.log_dirs

    with ReplicaMover(stand.store, verify=is_verified) as mover:

        def back(_: object) -> None:
            wait_purged(stand.log_dirs)
            move(mover, log, home)
            wait_purged(stand.log_dirs)
            os.sync()

        def wipe(_: object) -> None:
            for name in os.listdir(stand.bare):
                os.unlink(os.path.join(stand.bare, name))
            os.sync()

        warm = partial(read_through, home)
        engine = Side(
            "engine", lambda _: move(mover, log, target), log.size_bytes,
            prepare=warm, finish=back,
        )  # fmt: skip
        bare = Side(
            "sendfile + fdatasync", lambda _: bare_copy(home, stand.bare), log.size_bytes,
            prepare=warm, finish=wipe, goal=at_least(part),
        )  # fmt: skip
        verified = "every batch verified" if is_verified else "not verified"
        ledger.compare(
            f"move {log.size_bytes / 2**30:.1f} GiB, {verified}", GIGABYTES, engine, [bare],
            sizes.move_rounds, layout=stand.words, disks=2, sync="at the end",
            bytes=log.size_bytes, records=log.log_end_offset,
        )  # fmt: skip


def once(benchmark: BenchmarkFixture, work: Any) -> None:
    """Run work that measures its own time, once."""
    pedantic: Any = benchmark.pedantic  # this function has no type annotations
    pedantic(work, rounds=1)


@pytest.mark.parametrize("threads", [1, 4])
def bench_throttle(
    ledger: Ledger, sizes: Sizes, stand: Stand, benchmark: BenchmarkFixture, threads: int
) -> None:
    """Throttle moves to a rate, and count the bytes that are copied in ten seconds."""
    most = max(sizes.throttle_rates) * sizes.throttle_seconds * 1.2
    logs = stand.fill([int(most / threads)] * threads)

    def work() -> None:
        for rate in sizes.throttle_rates:
            with ReplicaMover(stand.store, threads, rate) as mover:
                copied = bytes_in(mover, logs, stand.log_dirs[1], sizes.throttle_seconds)
            off = copied / (rate * sizes.throttle_seconds) - 1
            question = f"throttle {rate // MB} MB/s, {threads} threads: off by"
            note = f"{off:+.2%}"
            ledger.note([Row(question, "%", abs(off) * 100, goal=at_most(2), note=note)])

    once(benchmark, work)


def bench_swap_pause(
    ledger: Ledger,
    sizes: Sizes,
    stand: Stand,
    benchmark: BenchmarkFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Move a small replica back and forth, and append to it at a steady rate meanwhile."""
    (log,) = stand.fill([1 << 20])
    pauses: list[float] = []
    longest: list[float] = []
    bare: list[float] = []
    held, places = relocation.held, (stand.disks.source, stand.disks.target)

    @contextmanager
    def timed(log: Log) -> Iterator[None]:
        with held(log):
            started = time.perf_counter()
            try:
                yield
            finally:
                pauses.append(time.perf_counter() - started)

    monkeypatch.setattr(relocation, "held", timed)

    def work() -> None:
        with (
            ReplicaMover(stand.store) as mover,
            appending(log, sizes.foreground_rate // 4) as foreground,
        ):
            for number in range(sizes.swaps):
                foreground.take()
                move(mover, log, stand.log_dirs[1 - number % 2])
                longest.append(max(foreground.take(), default=0.0))
                wait_purged(stand.log_dirs)
                bare.append(bare_swap(places[number % 2], places[1 - number % 2], number))

    once(benchmark, work)
    note = f"medians {median(pauses) * 1e3:.2f} and {median(bare) * 1e3:.2f}"
    ledger.note([
        Row(
            f"swap pause, p99 of {sizes.swaps} moves", "ms", quantile(pauses, 0.99) * 1e3,
            "its syncs alone", quantile(bare, 0.99) * 1e3, goal=at_most(5), note=note,
        ),
        Row("longest append of each move, p99", "ms", quantile(longest, 0.99) * 1e3),
    ])  # fmt: skip


def bench_foreground(
    ledger: Ledger, sizes: Sizes, stand: Stand, benchmark: BenchmarkFixture
) -> None:
    """Append at a steady rate: in turn with and without a move, and then during an "auto" move."""
    (moved,) = stand.fill([sizes.move_bytes])
    config = LogConfig(segment_bytes="1GiB")
    log = stand.store.create(TOPIC, 1000, log_dir=stand.log_dirs[0], config=config)
    rate = min(sizes.throttle_rates)
    idle: list[list[float]] = []
    beside: list[list[float]] = []

    def work() -> None:
        with appending(log, sizes.foreground_rate) as foreground:
            foreground.for_seconds(sizes.foreground_seconds)
            for _ in range(sizes.foreground_rounds):
                idle.append(foreground.for_seconds(sizes.foreground_seconds))
                with ReplicaMover(stand.store, 1, rate) as mover:
                    foreground.take()
                    bytes_in(mover, [moved], stand.log_dirs[1], sizes.foreground_seconds)
                    beside.append(foreground.take())
                time.sleep(sizes.foreground_seconds / 5)
            note_automatic(ledger, sizes, stand, moved, foreground)

    once(benchmark, work)
    ratio = median(
        quantile(loud, 0.99) / quantile(quiet, 0.99)
        for quiet, loud in zip(idle, beside, strict=True)
    )
    ledger.note([
        Row(
            f"append p99 beside a move at {rate // MB} MB/s", "us",
            median(quantile(each, 0.99) for each in beside) * 1e6, "idle",
            median(quantile(each, 0.99) for each in idle) * 1e6, ratio, at_most(1.5),
        )
    ])  # fmt: skip


def note_automatic(ledger: Ledger, sizes: Sizes, stand: Stand, moved: Log, foreground: Any) -> None:
    """Measure the rates of a bare copy and of "auto" moves, during appends in the foreground.

    Also compare the latency of the appends during these moves with their latency without a move.
    """
    home, target = stand.log_dirs
    started = time.perf_counter()
    bare_copy(home, stand.bare)
    spare = moved.size_bytes / (time.perf_counter() - started)
    for name in os.listdir(stand.bare):
        os.unlink(os.path.join(stand.bare, name))
    os.sync()
    idle = foreground.for_seconds(sizes.foreground_seconds)
    copied, spent, seconds = 0, 0.0, []
    with ReplicaMover(stand.store, 1, "auto") as mover:
        while spent < sizes.automatic_seconds:
            foreground.take()
            started = time.perf_counter()
            move(mover, moved, target)
            spent += time.perf_counter() - started
            seconds += foreground.take()
            copied += moved.size_bytes
            home, target = target, home
            wait_purged(stand.log_dirs)
    idle += foreground.for_seconds(sizes.foreground_seconds)
    ledger.note([
        Row(
            'append p99 beside an "auto" move', "us", quantile(seconds, 0.99) * 1e6, "idle",
            quantile(idle, 0.99) * 1e6, quantile(seconds, 0.99) / quantile(idle, 0.99), at_most(2),
        ),
        Row(
            '"auto" beside appends', "GB/s", copied / spent / 1e9, "bare copy beside them",
            spare / 1e9, copied / spent / spare, at_least(0.5),
        ),
    ])  # fmt: skip


def bench_memory(ledger: Ledger, sizes: Sizes, stand: Stand, benchmark: BenchmarkFixture) -> None:
    """Move a replica in a separate process, and measure how the memory of the process grows."""
    stand.fill([sizes.move_bytes])
    stand.store.close()
    facts: dict[str, float] = {}
    once(benchmark, lambda: facts.update(children.run("weigh_move", *stand.log_dirs)))
    stand.store = LogStore.open(stand.log_dirs)
    question = f"memory of a move of {sizes.move_bytes / 2**30:.1f} GiB"
    note = f"idle {facts['idle_mib']:.0f}"
    ledger.note([Row(question, "MiB over idle", facts["added_mib"], goal=at_most(30), note=note)])
