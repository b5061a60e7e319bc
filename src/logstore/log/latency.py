"""Time the writes and flushes of a log that is watched; otherwise it costs nothing.

A watched log gets timed functions in front of its own, on that object only. Timed are the disk's
part of an append (including the wait for the interpreter after it), and whole flushes that a caller
waits for. A flush in the background is not counted.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logstore.log.writer import LogWriter

STEP = 1.1  # from one bound to the next, so a quantile is right within 10 %
BOUNDS = [1e-6 * STEP**number for number in range(180)]  # 1 us to 26 s
WRITES, SYNCS = ("_write", "_write_batches"), ("flush", "_flush_appended")


class Latencies:
    """Counts latencies in classes; any thread adds, one thread takes.

    If two threads add at once, one of the two may be lost: for a quantile that does not matter.
    """

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)

    def note(self, seconds: float) -> None:
        """Add one latency."""
        self._counts[bisect_left(BOUNDS, seconds)] += 1

    def take(self) -> list[int]:
        """Return the counts so far and start again from zero."""
        counts, self._counts = self._counts, [0] * (len(BOUNDS) + 1)
        return counts


def quantile(counts: list[int], part: float) -> float | None:
    """Give the seconds that a part of all latencies did not exceed; None if there were none."""
    left = part * sum(counts)
    for number, count in enumerate(counts):
        left -= count
        if count and left <= 1e-9:
            return BOUNDS[min(number, len(BOUNDS) - 1)]
    return None


def count_above(counts: list[int], seconds: float) -> int:
    """Count the latencies above a bound."""
    return sum(counts[bisect_left(BOUNDS, seconds) + 1 :])


def watch(log: LogWriter, writes: Latencies, syncs: Latencies) -> None:
    """Time every write and awaited sync of a log from now on; a second call changes nothing."""
    for names, latencies in ((WRITES, writes), (SYNCS, syncs)):
        for name in names:
            if name not in log.__dict__:
                setattr(log, name, _timed(getattr(log, name), latencies))


def unwatch(log: LogWriter) -> None:
    """Stop timing a log."""
    for name in WRITES + SYNCS:
        log.__dict__.pop(name, None)


def _timed(work: Callable[..., Any], latencies: Latencies) -> Callable[..., Any]:
    clock, note = time.perf_counter, latencies.note

    def timed(*arguments: Any) -> Any:
        started = clock()
        done = work(*arguments)
        note(clock() - started)
        return done

    return timed
