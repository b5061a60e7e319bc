"""Test the pilot on a model of a disk; only the last test uses a clock and a thread."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore import LogConfig, LogStore
from logstore.log.host import unwatch, watch
from logstore.log.latency import BOUNDS, STEP, Latencies, count_above, quantile
from mover.rates.auto_rate import RATE_MIN, TICK_SECONDS, AutoRate, Pilot
from mover.rates.throttle import AUTOMATIC, Throttle

MB = 1_000_000
FAST, SLOW = 20e-6, 900e-6
APPENDS = 200  # of each tick


class Disk:
    """A disk on which appends are slow while more than `knee` bytes per second are copied."""

    def __init__(self, knee: float, width: float = 1000 * MB) -> None:
        self.knee, self.width = knee, width
        self.appends = APPENDS
        self.idle_seconds, self.slow_seconds = FAST, SLOW
        self.slow = self.all = 0
        self.rates: list[float] = []

    def tick(self, auto: AutoRate) -> None:
        rate = min(self.width, auto.rate or self.width)
        is_slow = rate > self.knee
        writes = Latencies()
        for number in range(self.appends):
            writes.note(self.slow_seconds if is_slow and not number % 20 else self.idle_seconds)
        if self.appends and is_slow:
            self.slow += self.appends // 20
        self.all += self.appends
        self.rates.append(rate)
        auto.tick([writes.take(), Latencies().take()], rate * TICK_SECONDS)

    def run(self, auto: AutoRate, ticks: int) -> float:
        """Run more ticks; return the bytes per second in these ticks."""
        for _ in range(ticks):
            self.tick(auto)
        return sum(self.rates[-ticks:]) / ticks


@pytest.mark.parametrize("knee", [5 * MB, 25 * MB, 150 * MB, 600 * MB])
def test_it_uses_what_is_left_and_no_more(knee: int) -> None:
    """In a minute, the move uses nearly all spare bytes of the disk, and few appends are slow."""
    disk, auto = Disk(knee), AutoRate()
    disk.run(auto, 100)
    disk.slow = disk.all = 0
    assert disk.run(auto, 600) > knee * 0.85
    assert disk.slow <= disk.all * 0.002


def test_one_slow_moment_costs_half_a_second() -> None:
    """The rate falls, and after five quiet ticks it is close to its earlier value."""
    disk, auto = Disk(100 * MB), AutoRate()
    disk.run(auto, 150)
    usual = auto.rate
    assert usual is not None
    disk.knee = 0
    disk.run(auto, 2)
    disk.knee = 100 * MB
    assert auto.rate is not None and auto.rate < 0.75 * usual
    disk.run(auto, 5)
    assert auto.rate > 0.85 * usual


class NoisyDisk(Disk):
    """A disk that is slow in one tick of twenty, whatever is copied."""

    def __init__(self, knee: float, width: float) -> None:
        super().__init__(knee, width)
        self.random = random.Random(1)

    def tick(self, auto: AutoRate) -> None:
        knee = self.knee
        if self.random.random() < 0.05:
            self.knee = 0
        super().tick(auto)
        self.knee = knee


class SyncingDisk(Disk):
    """A disk on which a copy stands still in two ticks of five, and syncs."""

    def tick(self, auto: AutoRate) -> None:
        if len(self.rates) % 5 < 3:
            super().tick(auto)
            return
        self.rates.append(0)
        writes = Latencies()
        for _ in range(self.appends):
            writes.note(self.idle_seconds)
        self.all += self.appends
        auto.tick([writes.take(), Latencies().take()], 0)


@pytest.mark.parametrize("knee", [25 * MB, 150 * MB, 600 * MB])
def test_a_copy_that_stands_still_says_nothing_for_more(knee: int) -> None:
    """Only ticks in which the rate was reached raise the rate: pauses to sync do not."""
    disk, auto = SyncingDisk(knee), AutoRate()
    disk.run(auto, 100)
    disk.slow = disk.all = 0
    assert disk.run(auto, 600) > knee * 0.6 * 0.8
    assert disk.slow <= disk.all * 0.001


def test_what_costs_less_than_an_append_is_no_slow_disk() -> None:
    """If writes are slightly slower because a copy shares the processor, the rate stays."""
    disk, auto = Disk(2 * MB), AutoRate()
    disk.slow_seconds = 3 * FAST
    disk.run(auto, 100)
    assert disk.run(auto, 300) > 0.9 * disk.width


@pytest.mark.parametrize("knee", [25 * MB, 150 * MB, 1500 * MB])
def test_strays_do_not_wear_the_rate_down(knee: int) -> None:
    """If some appends are slow without a copy, the move still uses three quarters of the disk."""
    disk, auto = NoisyDisk(knee, 3000 * MB), AutoRate()
    disk.run(auto, 100)
    disk.slow = disk.all = 0
    assert disk.run(auto, 600) > knee * 0.75
    assert disk.slow <= disk.all * 0.01


class UnevenDisk(Disk):
    """A disk on which four of a thousand appends are slow by chance, whatever is copied."""

    def __init__(self, knee: float) -> None:
        super().__init__(knee)
        self.random = random.Random(1)

    def tick(self, auto: AutoRate) -> None:
        rate = min(self.width, auto.rate or self.width)
        part = 0.05 if rate > self.knee else 0.004
        writes = Latencies()
        for _ in range(self.appends):
            is_slow = self.random.random() < part
            self.slow += is_slow
            writes.note(self.slow_seconds if is_slow else self.idle_seconds)
        self.all += self.appends
        self.rates.append(rate)
        auto.tick([writes.take(), Latencies().take()], rate * TICK_SECONDS)


@pytest.mark.parametrize("knee", [25 * MB, 300 * MB])
def test_what_is_slow_by_chance_is_no_reason_to_fall(knee: int) -> None:
    """The rate stays at the disk's spare bytes, and the p99 keeps half of its hundredth free."""
    disk, auto = UnevenDisk(knee), AutoRate()
    disk.run(auto, 100)
    disk.slow = disk.all = 0
    assert disk.run(auto, 600) > knee * 0.85
    assert disk.slow <= disk.all * 0.0055


def test_a_disk_with_more_to_spare_is_made_use_of() -> None:
    """A rate that was too high is tried again: ten seconds later, five times as much is used."""
    disk, auto = Disk(50 * MB), AutoRate()
    disk.run(auto, 200)
    disk.knee = 500 * MB
    disk.run(auto, 100)
    disk.slow = disk.all = 0
    assert disk.run(auto, 200) > 250 * MB
    assert disk.slow <= disk.all * 0.005


def test_without_foreground_there_is_no_ceiling() -> None:
    """Without appends, the move runs at full speed after the first measurement."""
    disk, auto = Disk(10 * MB), AutoRate()
    disk.appends = 0
    disk.run(auto, 5)
    assert auto.rate is None
    assert disk.run(auto, 300) > 0.9 * disk.width


def test_foreground_that_begins_is_noticed() -> None:
    """The first appends stop the copy for a moment to learn; from then on they are protected."""
    disk, auto = Disk(100 * MB), AutoRate()
    disk.appends = 0
    disk.run(auto, 20)
    disk.appends = APPENDS
    disk.run(auto, 40)
    disk.slow = disk.all = 0
    assert disk.run(auto, 400) > 50 * MB
    assert disk.slow <= disk.all * 0.01


def test_foreground_that_ends_is_noticed() -> None:
    """When the appends end, the ceiling is removed."""
    disk, auto = Disk(100 * MB), AutoRate()
    disk.run(auto, 100)
    disk.appends = 0
    disk.run(auto, 30)
    assert auto.rate is None


def test_an_undisturbed_foreground_does_not_hold_a_move_back() -> None:
    """If copying slows no append, the ceiling rises above the rate of the disk."""
    disk, auto = Disk(2000 * MB), AutoRate()
    disk.run(auto, 100)
    assert disk.run(auto, 300) > 0.9 * disk.width


def test_a_foreground_that_is_slower_by_itself_is_learned_anew() -> None:
    """If appends become four times slower without a copy, the move is not slowed down for them."""
    disk, auto = Disk(100 * MB), AutoRate()
    disk.run(auto, 100)
    disk.idle_seconds = 4 * FAST
    disk.run(auto, 400)
    assert disk.run(auto, 300) > 50 * MB


def test_what_a_lower_rate_does_not_mend_is_learned_anew() -> None:
    """If appends are slow at any rate, the move does not stop."""
    disk, auto = Disk(100 * MB), AutoRate()
    disk.run(auto, 60)
    disk.idle_seconds = 4 * FAST
    disk.run(auto, 35)
    assert min(disk.rates[60:]) >= RATE_MIN
    assert disk.run(auto, 30) > 20 * MB


def test_a_few_appends_a_second_are_not_enough_to_judge() -> None:
    """With less than one append in a tick, the move continues."""
    disk, auto = Disk(100 * MB), AutoRate()
    disk.appends = 1
    disk.run(auto, 100)
    assert disk.run(auto, 300) > 10 * MB


def test_quantiles_are_right_within_a_class() -> None:
    """The p99 of a thousand known latencies is right, and so is the count above a bound."""
    latencies = Latencies()
    for number in range(1000):
        latencies.note(1e-5 if number < 985 else 1e-3)
    counts = latencies.take()
    assert quantile(counts, 0.98) == pytest.approx(1e-5, rel=STEP - 1)
    assert quantile(counts, 0.99) == pytest.approx(1e-3, rel=STEP - 1)
    assert count_above(counts, 1e-4) == 15
    assert quantile(latencies.take(), 0.99) is None
    latencies.note(10 * BOUNDS[-1])
    assert quantile(latencies.take(), 0.5) == BOUNDS[-1]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    with LogStore.open(tmp_path / "logs") as store:
        yield store


def test_a_watched_log_tells_its_writes_and_syncs(store: LogStore) -> None:
    """Each way to append is timed; after `unwatch`, the object is in its earlier state."""
    log = store.create("t", 0)
    log.append(b"before")
    writes, syncs = Latencies(), Latencies()
    watch(log, writes, syncs)
    watch(log, writes, syncs)
    log.append(b"one")
    log.extend([b"two", b"three"])
    log.append(b"four", durable=True)
    assert (sum(writes.take()), sum(syncs.take())) == (3, 1)
    log.flush()
    assert (sum(writes.take()), sum(syncs.take())) == (0, 1)
    unwatch(log)
    unwatch(log)
    log.append(b"five", durable=True)
    assert (sum(writes.take()), sum(syncs.take())) == (0, 0)
    assert log._state.timing is None
    assert log.log_end_offset == 6


def test_a_flush_in_the_background_is_nobodys_latency(store: LogStore) -> None:
    """Syncs by the keeper are not counted, because no caller waits for them."""
    log = store.create("t", 0, config=LogConfig(flush_ms=1))
    writes, syncs = Latencies(), Latencies()
    watch(log, writes, syncs)
    log.append(b"one")
    assert log.flush_if_due(log._state.flushed_ms + 1)
    assert log.recovery_point == 1
    assert (sum(writes.take()), sum(syncs.take())) == (1, 0)
    unwatch(log)


class Ticks:
    """Stand in for the pilot's clock: each tick comes when the test says so."""

    def __init__(self) -> None:
        self.due = threading.Semaphore(0)
        self.done = threading.Semaphore(0)
        self.is_over = False

    def is_set(self) -> bool:
        return self.is_over

    def wait(self, _: float) -> bool:
        self.done.release()
        assert self.due.acquire(timeout=60)
        return self.is_over

    def set(self) -> None:
        self.is_over = True
        self.due.release()

    def clear(self) -> None:
        self.is_over = False


@pytest.fixture
def steered(store: LogStore) -> Iterator[tuple[Throttle, Callable[[int], None]]]:
    """Return an automatic throttle, and a function that lets its pilot run some ticks."""
    pilot, ticks = Pilot(store), Ticks()
    pilot._stop = ticks  # type: ignore[assignment]
    throttle = Throttle(AUTOMATIC, pilot=pilot)

    def tick(count: int) -> None:
        for _ in range(count):
            assert ticks.done.acquire(timeout=60)
            ticks.due.release()

    yield throttle, tick
    throttle.stop()


def test_the_pilot_steers_while_chunks_are_taken(
    store: LogStore, steered: tuple[Throttle, Callable[[int], None]]
) -> None:
    """The pilot starts with a chunk, times the logs, raises the ceiling, and ends with the move."""
    throttle, tick = steered
    log = store.create("t", 0)
    move = throttle.for_move()
    assert move.rate == RATE_MIN
    assert move.take(1, lambda: False)
    tick(3)
    assert log._state.timing is not None
    assert move.take(1, lambda: False)
    tick(3)
    assert throttle.rate_of() is None  # nothing is appended
    pilot = throttle._pilot
    assert isinstance(pilot, Pilot) and pilot._thread is not None
    pilot._stop.due.release(100)  # type: ignore[attr-defined]
    pilot._thread.join(60)
    assert not pilot._thread.is_alive()
    assert throttle.rate_of() == RATE_MIN
    assert log._state.timing is None


def test_what_was_learned_is_kept_for_the_next_move(
    store: LogStore, steered: tuple[Throttle, Callable[[int], None]]
) -> None:
    """A move that starts soon after another begins at the rate at which that move ended."""
    throttle, tick = steered
    move = throttle.for_move()
    pilot = throttle._pilot
    assert isinstance(pilot, Pilot)
    ticks: Any = pilot._stop
    assert move.take(1, lambda: False)
    tick(3)
    ticks.due.release(100)
    assert pilot._thread is not None
    pilot._thread.join(60)
    assert throttle.rate_of() == RATE_MIN
    for semaphore in (ticks.due, ticks.done):
        while semaphore.acquire(blocking=False):
            pass
    assert move.take(1, lambda: False)
    assert ticks.done.acquire(timeout=60)
    assert throttle.rate_of() is None


def test_automatic_is_one_rate_among_others(store: LogStore) -> None:
    """A ceiling becomes automatic and then fixed; others are unchanged; a move ends its own."""
    throttle = Throttle(50 * MB)
    move = throttle.for_move(["/disk1"], AUTOMATIC)
    throttle.set_rate(AUTOMATIC, log_dir="/disk1")
    throttle.set_automatic_rate(7)
    assert (throttle.rate_of(), throttle.rate_of("/disk1"), move.rate) == (50 * MB, 7, 7)
    throttle.set_rate(9, log_dir="/disk1")
    throttle.set_automatic_rate(20)
    assert (throttle.rate_of("/disk1"), move.rate) == (9, 9)
    assert throttle.is_automatic
    move.end()
    assert not throttle.is_automatic
