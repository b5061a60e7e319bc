"""Limit the memory of requests that arrive or run.

A request reserves its whole size before its bytes are read. If there is no room, the connection of
the request waits in a queue, and the bytes of the request stay in the kernel. No request overtakes
another in the queue, because small requests could then delay a large request for ever.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Holder = TypeVar("Holder")


class MemoryBudget(Generic[Holder]):
    """Reserve memory for requests. The caller must hold a lock during each call.

    Invariants: `taken_bytes` is the sum of `_held`, and at most `limit_bytes`. If the queue is not
    empty, its first entry does not fit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.taken_bytes = 0
        self._held: dict[Holder, int] = {}
        self._queue: OrderedDict[Holder, int] = OrderedDict()

    def take(self, holder: Holder, size_bytes: int) -> bool:
        """Reserve bytes. If there is no room, put the holder into the queue and return False.

        A later call of `release` reserves the bytes of queued holders, and returns these holders.
        """
        assert 0 <= size_bytes <= self.limit_bytes
        assert holder not in self._held and holder not in self._queue
        if self._queue or self.taken_bytes + size_bytes > self.limit_bytes:
            self._queue[holder] = size_bytes
            return False
        self._hold(holder, size_bytes)
        return True

    def holders(self) -> list[Holder]:
        """List the holders that have memory now."""
        return list(self._held)

    def release(self, holder: Holder) -> list[Holder]:
        """Release the bytes of a holder, or remove the holder from the queue.

        Returns:
            The holders that have left the queue, because their bytes are reserved now.
        """
        self.taken_bytes -= self._held.pop(holder, 0)
        self._queue.pop(holder, None)
        return self._serve()

    def lessen(self, holder: Holder, size_bytes: int) -> list[Holder]:
        """Keep only `size_bytes` of a holder's bytes; the result is the same as in `release`."""
        assert 0 <= size_bytes <= self._held[holder]
        self.taken_bytes -= self._held[holder] - size_bytes
        self._held[holder] = size_bytes
        return self._serve()

    def _serve(self) -> list[Holder]:
        served = []
        while self._queue:
            first, size_bytes = next(iter(self._queue.items()))
            if self.taken_bytes + size_bytes > self.limit_bytes:
                break
            del self._queue[first]
            self._hold(first, size_bytes)
            served.append(first)
        return served

    def _hold(self, holder: Holder, size_bytes: int) -> None:
        self._held[holder] = size_bytes
        self.taken_bytes += size_bytes
