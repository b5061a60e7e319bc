"""Measure the latencies of appends and flushes of a log while a mover watches the log.

If no mover watches a log, the only cost for an append is to read one field. The latency of an
append is the time of its system call, including the wait for the interpreter's lock after the call.
The latency of a flush is the time of the whole flush. The latency of a flush is measured only if a
caller waits for the flush. A flush in the background is not measured. `host.watch` begins the
measurement.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

STEP = 1.1  # the ratio of two adjacent bounds, so a quantile is right within 10 %
BOUNDS = [1e-6 * STEP**number for number in range(180)]  # 1 us to 26 s


class Latencies:
    """Count latencies in a histogram; any thread adds latencies, and one thread takes the counts.

    If two threads add at the same moment, one latency may be lost. For a quantile, a lost latency
    does not matter.
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


class Timing(NamedTuple):
    """The counts of one log: latencies of writes, and of syncs that a caller waits for."""

    writes: Latencies
    syncs: Latencies


def quantile(counts: list[int], part: float) -> float | None:
    """Return the quantile `part` of the counted latencies (s); None if nothing was counted."""
    left = part * sum(counts)
    for number, count in enumerate(counts):
        left -= count
        if count and left <= 1e-9:
            return BOUNDS[min(number, len(BOUNDS) - 1)]
    return None


def count_above(counts: list[int], seconds: float) -> int:
    """Return the number of latencies that were longer than a time."""
    return sum(counts[bisect_left(BOUNDS, seconds) + 1 :])
