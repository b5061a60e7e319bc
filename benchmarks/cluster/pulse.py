"""Measure how many flights are acknowledged in each moment of a fault, and draw it as a line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from types import TracebackType
from typing import Self

BEAT_SECONDS = 0.1
CELLS_MAX = 60
BARS = " ▁▂▃▄▅▆▇█"
MARK = "╳"


class Pulse:
    """Count in a thread, from the beginning of a `with` block to its end."""

    def __init__(self, count: Callable[[], int]) -> None:
        """Take the function that gives the count so far."""
        self._count = count
        self._seen: list[tuple[float, int]] = []
        self._marked_at: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def mark(self) -> None:
        """Remember this moment: here, the fault begins."""
        self._marked_at = time.perf_counter()

    def _run(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            self._seen.append((time.perf_counter(), self._count()))

    def __enter__(self) -> Self:
        self._seen.append((time.perf_counter(), self._count()))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def drawn(self) -> tuple[str, float]:
        """Draw a bar for each moment, and a cross before the fault; give the seconds of a bar."""
        return draw(self._seen, self._marked_at)


def draw(seen: list[tuple[float, int]], marked_at: float | None) -> tuple[str, float]:
    """Draw counts over time; see `Pulse.drawn`."""
    began, ended = seen[0][0], seen[-1][0]
    cells = max(min(CELLS_MAX, len(seen) - 1), 1)
    width = max((ended - began) / cells, 1e-9)
    heights = [0] * cells
    for (earlier, before), (later, now) in pairwise(seen):
        heights[int(((earlier + later) / 2 - began) / width)] += now - before
    top = max(*heights, 1)
    bars = [BARS[-(-one * (len(BARS) - 1) // top)] for one in heights]
    if marked_at is not None:
        bars.insert(min(int((marked_at - began) / width), cells), MARK)
    return "".join(bars), width
