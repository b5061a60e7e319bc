"""Limit what a store keeps in memory: open files, index arrays, decoded batches.

One rule serves all three (second chance): if the total weight exceeds the capacity, the oldest item
goes, unless it was used since it was last considered. A reference pins an item in use: an evicted
item stays alive as long as a reader holds it, and a `Handle` closes its descriptor when the last
reference to it ends. So nothing is closed under a reader, and reading takes no lock. Nothing is
closed under the cache's lock either: all log dirs share it, and a disk may hang.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import Any

from logstore.disk import files


class Handle:
    """Owns a file descriptor and closes it when nothing refers to it any more."""

    __slots__ = ("__weakref__", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __repr__(self) -> str:
        return f"Handle(fd={self.fd})"

    def __del__(self) -> None:
        # a close writes nothing back; the sync before it has reported any error
        with suppress(OSError):
            files.close(self.fd)


class Cached:
    """One cached value; a thread that uses it sets `is_used`, a plain store that needs no lock."""

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
        """Add a value to `home` under `key`, evict older ones; give the value that is cached now.

        If two threads made the same value, the first thread's stays, so that both share it.
        """
        evicted: list[Cached] = []  # released outside the lock, by the end of the call
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
        """Evict the oldest values that were not used recently, never `item`."""
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

    def drop(self, home: dict[Any, Cached], key: Any) -> None:
        """Forget one value, if it is present."""
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
        del value  # what it had open is closed here at the earliest

    def _forget(self, item: Cached) -> None:
        self.weight -= item.weight
        item.weight = 0
        if item.home.get(item.key) is item:
            del item.home[item.key]

    def drop_all(self, home: dict[Any, Cached]) -> None:
        """Forget every value of one home."""
        for key in list(home):
            self.drop(home, key)
