"""If this broker's role for a partition changes, wake the requests that wait there."""

from __future__ import annotations

import threading
from collections.abc import Callable

from broker.catalog.leadership import Watch

Place = tuple[str, int]  # topic name and partition


class RoleWatches:
    """The requests that wait, for each partition.

    Threads: any thread may call any method. A thread holds `_lock` only for a short time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Place, set[RoleWatch]] = {}

    def add(self, place: Place, wake: Callable[[], None], other: Watch | None) -> RoleWatch:
        """Call `wake` after each change of the role, until the watch is closed.

        Args:
            other: a watch that is closed together with the new watch.
        """
        watch = RoleWatch(self, place, wake, other)
        with self._lock:
            self._waiting.setdefault(place, set()).add(watch)
        return watch

    def forget(self, watch: RoleWatch) -> None:
        """Stop calling `wake`."""
        with self._lock:
            waiting = self._waiting.get(watch.place)
            if waiting is not None:
                waiting.discard(watch)
                if not waiting:
                    del self._waiting[watch.place]

    def changed(self, place: Place) -> None:
        """Wake all requests that wait at a partition."""
        if place in self._waiting:
            with self._lock:
                waiting = tuple(self._waiting.get(place, ()))
            for watch in waiting:
                watch.wake()

    @property
    def count(self) -> int:
        """The number of partitions at which requests wait."""
        return len(self._waiting)


class RoleWatch:
    """A request that waits at one partition."""

    __slots__ = ("_other", "_watches", "place", "wake")

    def __init__(
        self,
        watches: RoleWatches,
        place: Place,
        wake: Callable[[], None],
        other: Watch | None,
    ) -> None:
        """Use `RoleWatches.add`."""
        self.place, self.wake = place, wake
        self._watches, self._other = watches, other

    def close(self) -> None:
        """Stop calling `wake`. A second call does nothing."""
        self._watches.forget(self)
        if self._other is not None:
            self._other.close()
