"""Keep deadlines sorted by time, and forget cancelled deadlines."""

from __future__ import annotations

import heapq
from itertools import count
from typing import Generic, TypeVar

Item = TypeVar("Item")
STALE_MIN = 64  # up to this number, cancelled entries stay in memory


class Timer(Generic[Item]):
    """A deadline and its item. The item is None if the deadline was cancelled or is over."""

    __slots__ = ("deadline", "item")

    def __init__(self, deadline: float, item: Item) -> None:
        self.deadline = deadline
        self.item: Item | None = item


class Timers(Generic[Item]):
    """Keep a set of deadlines. The caller must hold a lock during each call.

    Most deadlines are cancelled long before they are due. If there are more than `STALE_MIN`
    cancelled entries, and they are more than half of all entries, they are removed.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer[Item]]] = []
        self._numbers = count()
        self._stale = 0

    def __len__(self) -> int:
        return len(self._heap) - self._stale

    @property
    def kept(self) -> int:
        """The number of entries in memory."""
        return len(self._heap)

    @property
    def next_deadline(self) -> float | None:
        """The earliest deadline, or None if no deadline is set."""
        while self._heap and self._heap[0][2].item is None:
            heapq.heappop(self._heap)
            self._stale -= 1
        return self._heap[0][0] if self._heap else None

    def add(self, deadline: float, item: Item) -> Timer[Item]:
        """Set a deadline."""
        timer = Timer(deadline, item)
        heapq.heappush(self._heap, (deadline, next(self._numbers), timer))
        return timer

    def cancel(self, timer: Timer[Item]) -> None:
        """Cancel a deadline. If it was already cancelled or due, do nothing."""
        if timer.item is None:
            return
        timer.item = None
        self._stale += 1
        if self._stale > STALE_MIN and 2 * self._stale > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].item is not None]
            heapq.heapify(self._heap)
            self._stale = 0

    def due(self, now: float) -> list[Item]:
        """Remove the items whose deadline has passed; return them, the earliest first."""
        items: list[Item] = []
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            if timer.item is None:
                self._stale -= 1
                continue
            items.append(timer.item)
            timer.item = None
        return items
