"""Find the highest rate that does not slow foreground calls down (`throttled_rate="auto"`).

This module measures the latency of the store's appends, and of the flushes that a caller waits for.
There is no separate probe of the disk. A probe would wait for the write-back of the move itself. So
a probe would slow down the move even on an idle disk.

Before a move copies, and briefly every `LEARN_EVERY_TICKS` during the copying, the rate drops to
`RATE_MIN`. While the rate is `RATE_MIN`, the pilot learns two baselines: the p99 of writes and the
p99 of syncs. After the learning, each tick counts the slow calls. A call is slow if it takes longer
than `factor` times a sum. The sum is the learned p99 of such calls, plus `APPEND_SECONDS`. A
fraction of all calls is allowed to be slow: the fraction on the idle disk, plus `SLOW_PART`. The
number of slow calls above the allowed number is summed over the ticks. This sum is the *excess*.
The excess is never negative. When the excess reaches `EXCESS_MAX`, the rate falls. If many calls
are slow, the excess reaches `EXCESS_MAX` in one tick. If only slightly too many calls are slow, the
excess needs several ticks to reach `EXCESS_MAX`. If one or two calls are slow by chance, later
ticks soon reduce the excess again.

While the excess is below `EXCESS_MAX`, the rate rises, but only if the copy uses the present rate.
For example, a copy that waited for a sync needs no higher rate. The rate rises by half in each tick
until it is close to the last rate that was too high. Close to that rate, the pilot keeps the
present rate, but tries a slightly higher rate now and then. After each failed try, the pilot waits
longer before the next try. If a try succeeds, the pilot forgets the last rate that was too high. If
there are no foreground calls, nothing has to be protected, so the ceiling is removed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from logstore.disk.threads import Thread
from logstore.log.host import unwatch, watch
from logstore.log.latency import Latencies, count_above, quantile
from mover.rates.throttle import RATE_BEFORE_PILOT

if TYPE_CHECKING:
    from logstore import LogStore
    from mover.rates.throttle import Throttle

FACTOR = 1.7  # less than 2, because a move should at most double the p99
QUANTILE = 0.99
# The allowed fraction of slow calls is the fraction on the idle disk plus SLOW_PART.
# But this fraction is at most SLOW_PART_MAX.
# A p99 allows one slow call in a hundred.
# SLOW_PART_MAX is less than a hundredth, because some calls are slow before the rate falls.
SLOW_PART, SLOW_PART_MAX = 0.003, 0.006
EXCESS_MAX = 4.0
APPEND_SECONDS = 25e-6  # an append takes at least this time in addition to its timed write

TICK_SECONDS = 0.1
# During the first of these ticks, the disk may still write older chunks of the move.
LEARN_TICKS = 3
LEARN_TICKS_MAX = 10
LEARN_SAMPLES, LEARN_SAMPLES_FIRST = 50, 1000
LEARN_EVERY_TICKS = 100
BASELINES = 5
# After this many ticks without a foreground call, the rate doubles in each tick.
# After as many ticks in which no move copied or waited, the thread ends.
IDLE_TICKS = 10
SETTLE_TICKS = 2
RECENT_TICKS = 10
REMEMBER_SECONDS = 30.0

RATE_MIN = RATE_BEFORE_PILOT
RATE_FIRST = 64 << 20
RATE_NONE = 16 << 30  # above this rate, the ceiling is removed
FALL, RISE = 0.7, 1.5
# If the rate is below this part of the last rate that was too high, the rate rises fast.
CLOSE = 0.9
TRY = 1.1
TRY_TICKS, TRY_TICKS_MAX = 2, 64  # ticks between two tries of a higher rate
# After this many ticks without a fall, the next fall counts as chance.
# A fall by chance does not change what the pilot remembers as too high a rate.
CALM_TICKS = 10
# If the rate falls more often in a short time, the pilot learns again.
# If the rate falls often, slow calls have another cause than the copy.
FALLS_MAX = 6


class _Kind:
    """Hold the measured latencies of one kind of call: writes or syncs."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        # Latencies from the last periods in which nothing was copied.
        # The p99 is computed from all quiet periods together. A single period may have been calm by
        # chance.
        self._quiet: deque[list[int]] = deque(maxlen=BASELINES)
        self._slow_seconds: float | None = None
        self._slow_part = SLOW_PART
        self._heard: list[int] = []
        self._excess = 0.0

    def hear(self, counts: list[int]) -> None:
        """Add the latencies of a tick in which nothing was copied."""
        self._heard = [a + b for a, b in zip(self._heard or [0] * len(counts), counts, strict=True)]

    def heard(self) -> int:
        """Count the latencies that were added since the learning began."""
        return sum(self._heard)

    def learn(self) -> None:
        """Compute the baseline from the latencies that were added."""
        if sum(self._heard):
            self._quiet.append(self._heard)
            quiet = [sum(each) for each in zip(*self._quiet, strict=True)]
            usual = quantile(quiet, QUANTILE) or 0.0
            self._slow_seconds = (usual + APPEND_SECONDS) * self._factor
            slow_part = count_above(quiet, self._slow_seconds) / sum(quiet)
            self._slow_part = min(slow_part + SLOW_PART, SLOW_PART_MAX)
        self._heard, self._excess = [], 0.0

    @property
    def is_known(self) -> bool:
        """Report whether there is a baseline."""
        return self._slow_seconds is not None

    def judge(self, counts: list[int]) -> bool:
        """Add a tick in which something was copied; return True if too many calls were slow."""
        if self._slow_seconds is None:
            return False
        slow = count_above(counts, self._slow_seconds)
        self._excess = max(self._excess + slow - sum(counts) * self._slow_part, 0.0)
        return slow > 0 and self._excess >= EXCESS_MAX

    def forget(self, *, is_all: bool) -> None:
        """Reset the excess after the rate fell; if `is_all` is True, also drop both baselines."""
        self._excess = 0.0
        if is_all:
            self._quiet.clear()
            self._slow_seconds = None


class AutoRate:
    """Compute the rate for each tick, without access to stores, threads or clocks.

    Attributes:
        rate: bytes per second; None for no ceiling.
    """

    def __init__(self, factor: float = FACTOR) -> None:
        self._kinds = (_Kind(factor), _Kind(factor))
        self._best = float(RATE_FIRST)
        self._learning = 1  # ticks spent on learning; 0 while the rate is not being learned
        self._since_learned = 0
        self._quiet = 0
        self._settling = 0
        self._falls = 0.0
        self._too_much: float | None = None
        self._since_tried = self._since_fell = 0
        self._try_ticks = TRY_TICKS
        self._copied: deque[float] = deque(maxlen=RECENT_TICKS)
        self.rate: float | None = RATE_MIN

    def tick(self, counts: Sequence[list[int]], copied_bytes: float) -> float | None:
        """Add the latencies and copied bytes of one tick; return the rate for the next tick."""
        heard = sum(map(sum, counts))
        self._copied.append(copied_bytes / TICK_SECONDS)
        self._quiet = 0 if heard else self._quiet + 1
        if self._learning:
            self._learn(counts)
        elif self._quiet >= IDLE_TICKS:
            self._rise(2.0, is_free=True)
        elif self._since_learned >= LEARN_EVERY_TICKS or (heard and not self._is_known()):
            self._learning, self.rate = 1, RATE_MIN
        else:
            self._judge(counts)
        self._since_learned += 1
        return self.rate

    @property
    def whole_rate(self) -> int | None:
        """The rate in whole bytes per second."""
        return None if self.rate is None else round(self.rate)

    def _is_known(self) -> bool:
        """Report whether there is a baseline for writes or for syncs."""
        return any(kind.is_known for kind in self._kinds)

    def _learn(self, counts: Sequence[list[int]]) -> None:
        if self._learning > 1:  # in the first tick, chunks that began before the learning still end
            for kind, counted in zip(self._kinds, counts, strict=True):
                kind.hear(counted)
        self._learning += 1
        heard = sum(kind.heard() for kind in self._kinds)
        wanted = LEARN_SAMPLES if self._is_known() else LEARN_SAMPLES_FIRST
        is_enough = heard >= wanted and self._learning > LEARN_TICKS
        is_silent = not heard and self._learning > LEARN_TICKS
        if is_enough or is_silent or self._learning > LEARN_TICKS_MAX:
            for kind in self._kinds:
                kind.learn()
            self._learning, self._since_learned, self._settling = 0, 0, SETTLE_TICKS
            self._falls = 0.0
            self.rate = self._best if heard else None

    def _judge(self, counts: Sequence[list[int]]) -> None:
        self._since_fell += 1
        if self._settling:  # chunks that began at the earlier rate still end in this tick
            self._settling -= 1
            return
        verdicts = [kind.judge(each) for kind, each in zip(self._kinds, counts, strict=True)]
        if any(verdicts):
            self._fall()
        else:
            self._falls = max(self._falls - 0.25, 0.0)
            self._climb()

    def _fall(self) -> None:
        # The new rate is a part of the rate that the copy reached; the ceiling may be higher.
        # The reached rate cannot be measured in a single tick.
        # The reason is that a copy that pauses for a sync copies more in the next tick.
        reached = sorted(self._copied)[-2:][0]
        rate = max(reached, self._copied[-1])
        rate = rate if self.rate is None else min(self.rate, rate)
        known, is_calm = self._too_much, self._since_fell >= CALM_TICKS
        is_above = known is not None and rate > known * CLOSE * 1.01
        if known is None or is_above or not is_calm:
            self._try_ticks = min(self._try_ticks * 2, TRY_TICKS_MAX) if is_above else TRY_TICKS
            self._too_much = rate
        self._since_tried = self._since_fell = 0
        self.rate = self._best = max(rate * FALL, RATE_MIN)
        self._settling = SETTLE_TICKS
        self._falls += 1
        for kind in self._kinds:
            kind.forget(is_all=self._falls > FALLS_MAX)

    def _climb(self) -> None:
        if self._too_much is None or self.rate is None:
            self._rise(RISE)
            return
        self._since_tried += 1
        close = self._too_much * CLOSE
        if self.rate < close:
            self._rise(min(RISE, close / self.rate))
            self._since_tried = 0
        elif self.rate > self._too_much and self._since_tried > SETTLE_TICKS:
            self._too_much, self._try_ticks = None, TRY_TICKS
        elif self._since_tried >= self._try_ticks:
            self._rise(TRY)
            self._since_tried = 0

    def _rise(self, by: float, *, is_free: bool = False) -> None:
        """Raise the ceiling if the copy uses at least half of the present ceiling."""
        if self.rate is None:
            return
        if is_free or self._copied[-1] > self.rate / 2:
            self.rate *= by
        if not is_free:
            self._best = self.rate
        if self.rate > RATE_NONE:
            self.rate = None


class Pilot:
    """Adjust the automatic ceilings of a throttle, in a thread that runs while moves copy."""

    def __init__(self, store: LogStore, factor: float = FACTOR) -> None:
        self._store = store
        self._factor = factor
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        # If new moves begin soon after earlier moves have ended, they use the learned rate.
        self._auto = AutoRate(factor)
        self._ended_at = -REMEMBER_SECONDS

    def start(self, throttle: Throttle) -> None:
        """Start the thread, unless it is already running."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._stop.clear()
                thread = Thread(
                    target=self._run, args=(throttle,), name="mover-auto-rate", daemon=True
                )
                with suppress(RuntimeError):  # no thread can be started: the next chunk tries again
                    thread.start()
                    self._thread = thread

    def stop(self) -> None:
        """Stop the thread; after this call the latencies of the logs are no longer measured."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._stop.set()
        if thread is not None:
            thread.join()

    def _run(self, throttle: Throttle) -> None:
        writes, syncs = Latencies(), Latencies()
        if time.monotonic() - self._ended_at > REMEMBER_SECONDS:
            self._auto = AutoRate(self._factor)
        auto = self._auto
        throttle.set_automatic_rate(auto.whole_rate)
        taken = throttle.taken_bytes
        idle_ticks = 0
        try:
            while not self._stop.wait(TICK_SECONDS) and throttle.is_automatic:
                self._watch_all(writes, syncs)
                before, taken = taken, throttle.taken_bytes
                idle_ticks = 0 if taken > before or throttle.waiting else idle_ticks + 1
                if idle_ticks > IDLE_TICKS:
                    break
                auto.tick([writes.take(), syncs.take()], taken - before)
                throttle.set_automatic_rate(auto.whole_rate)
        finally:
            self._ended_at = time.monotonic()
            self._unwatch_all()
            throttle.set_automatic_rate(RATE_MIN)

    def _watch_all(self, writes: Latencies, syncs: Latencies) -> None:
        for replica in list(self._store.host.replicas.opened.values()):
            watch(replica.log, writes, syncs)

    def _unwatch_all(self) -> None:
        for replica in list(self._store.host.replicas.opened.values()):
            unwatch(replica.log)
