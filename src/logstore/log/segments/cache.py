"""Bound what a store keeps at hand: open files, index arrays, decoded batches.

One rule serves all three (second chance): when the total weight passes the capacity, the oldest
item goes, unless it was used since it was last considered. What is in use is pinned by being
referenced: an evicted item lives on in the hands of those who hold it, and a `Handle` closes its
descriptor when the last of them lets go. So nothing is closed under a reader, and reading takes no
lock. Nothing is closed under the cache's lock either: all log dirs share it, and a disk may hang.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import Any

from logstore.disk import files


class Handle:
    """Own a file descriptor and close it when nobody refers to it any more."""

    __slots__ = ("__weakref__", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __repr__(self) -> str:
        return f"Handle(fd={self.fd})"

    def __del__(self) -> None:
        with suppress(OSError):  # a close writes nothing back; the sync before it has said all
            files.close(self.fd)


class Cached:
    """Hold one cached value; whoever uses it sets `is_used`, a plain store that needs no lock."""

    __slots__ = ("home", "is_used", "key", "value", "weight")

    def __init__(self, home: dict[Any, Cached], key: Any, value: Any, weight: int) -> None:
        self.home = home
        self.key = key
        self.value = value
        self.weight = weight
        self.is_used = True


class Cache:
    """Keep the total weight of cached values within a capacity."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.weight = 0
        self._lock = threading.Lock()
        self._ring: deque[Cached] = deque()
        self._dropped = 0

    def __repr__(self) -> str:
        return f"Cache({self.weight} of {self.capacity}, {len(self._ring)} items)"

    def put(self, home: dict[Any, Cached], key: Any, value: Any, weight: int) -> Any:
        """Add a value to `home` under `key` and let older ones go; give the value that now stands.

        Of two threads that made the same value, the first one's stays, so that all share it.
        """
        evicted: list[Cached] = []  # let go behind the lock, by the end of the call
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
        """Let go of the oldest that were not used of late, never of `item`."""
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
        """Forget one value, if it is there."""
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
