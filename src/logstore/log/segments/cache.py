"""Limit the open files, index arrays and decoded batches that a store keeps in memory.

If the total weight exceeds the capacity, the cache looks at the oldest item. If the item was not
used since the cache last looked at it, the cache evicts the item. A used item becomes the newest
item, and the cache looks at the next item (the rule "second chance"). If a reader refers to an
evicted item, the item exists until the reader drops it. A `Handle` closes its descriptor when the
last reference to the `Handle` ends. So no descriptor is closed while a reader uses it, and reading
takes no lock. All log dirs share the cache's lock. The cache closes no file while it holds this
lock, because a close on a disk that hangs would then block all log dirs.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import Any

from logstore.disk import files


class Handle:
    """Owns a file descriptor, and closes it when nothing refers to the handle any more."""

    __slots__ = ("__weakref__", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __repr__(self) -> str:
        return f"Handle(fd={self.fd})"

    def __del__(self) -> None:
        # Ignore errors: a close writes no data, and each sync reports its own errors.
        with suppress(OSError):
            files.close(self.fd)


class Cached:
    """One cached value. A thread that uses the value sets `is_used`, without a lock.

    Attributes:
        home: the dict that holds the cached values of one object, for example `Segment.cached`.
    """

    __slots__ = ("home", "is_used", "key", "value", "weight")

    def __init__(self, home: dict[Any, Cached], key: Any, value: Any, weight: int) -> None:
        self.home = home
        self.key = key
        self.value = value
        self.weight = weight
        self.is_used = True


class Cache:
    """Keeps the total weight of cached values within a capacity."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.weight = 0
        self._lock = threading.Lock()
        self._ring: deque[Cached] = deque()
        self._dropped = 0

    def __repr__(self) -> str:
        return f"Cache({self.weight} of {self.capacity}, {len(self._ring)} items)"

    def put(self, home: dict[Any, Cached], key: Any, value: Any, weight: int) -> Any:
        """Add a value to `home` under `key`, return the cached value, and evict older values.

        If two threads add a value under the same key, the cache keeps the first value, and both
        threads get it.
        """
        evicted: list[Cached] = []  # the end of the call frees the value, without the lock
        with self._lock:
            present = home.get(key)
            if present is not None:
                return present.value
            item = Cached(home, key, value, weight)
            home[key] = item
            self._ring.append(item)
            self.weight += weight
            if self.weight > self.capacity:
                self._make_room(item, evicted)
        return value

    def _make_room(self, item: Cached, evicted: list[Cached]) -> None:
        """Evict the oldest values that were not used recently, but never `item`."""
        chances = len(self._ring)
        while self.weight > self.capacity and len(self._ring) > 1:
            oldest = self._ring.popleft()
            if oldest.weight == 0:
                self._dropped -= 1
            elif oldest is item or (oldest.is_used and chances > 0):
                oldest.is_used = False
                self._ring.append(oldest)
            else:
                self._forget(oldest)
                evicted.append(oldest)
            chances -= 1

    def shed(self) -> int:
        """Evict the older half of the values, even values that were used recently.

        Returns:
            The number of evicted values.
        """
        with self._lock:
            evicted = self._forget_half()
        return len(evicted)  # the values are freed now, after the lock is released

    def _forget_half(self) -> list[Cached]:
        items = [item for item in self._ring if item.weight]
        half = -(-len(items) // 2)
        for item in items[:half]:
            self._forget(item)
        self._ring, self._dropped = deque(items[half:]), 0
        return items[:half]

    def drop(self, home: dict[Any, Cached], key: Any) -> None:
        """Remove one value from the cache, if the cache has this value."""
        with self._lock:
            item = home.get(key)
            if item is None:
                return
            self._forget(item)
            value, item.value = item.value, None
            self._dropped += 1
            if self._dropped * 2 > len(self._ring):
                self._ring = deque(kept for kept in self._ring if kept.weight)
                self._dropped = 0
        del value  # this may close a descriptor, so the lock is released first

    def _forget(self, item: Cached) -> None:
        self.weight -= item.weight
        item.weight = 0
        if item.home.get(item.key) is item:
            del item.home[item.key]

    def drop_all(self, home: dict[Any, Cached]) -> None:
        """Remove every value of `home` from the cache."""
        for key in list(home):
            self.drop(home, key)
