"""Reserve memory for large requests before they are read; a connection waits without a thread."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from broker.machines.memory_budget import MemoryBudget
from broker.net.connection import Connection, Phase


class RequestMemory:
    """The memory of all large requests of a broker.

    Threads: any thread may call any method, for a connection that it owns. `_lock` guards the
    budget.
    """

    def __init__(self, bytes_max: int, resume: Callable[[Connection], None]) -> None:
        """Make an empty budget.

        Args:
            resume: called with a connection that has got its memory; the caller owns the
                connection.
        """
        self._lock = threading.Lock()
        self._budget: MemoryBudget[Connection] = MemoryBudget(bytes_max)
        self._resume = resume

    @property
    def taken_bytes(self) -> int:
        """The memory that large requests have reserved."""
        return self._budget.taken_bytes

    def reserve(self, connection: Connection, size_bytes: int) -> bool:
        """Reserve memory for a request; return False if the connection must wait for memory."""
        with self._lock:
            # so that a close of the connection ends its wait for memory
            connection.has_memory = True
            is_taken = self._budget.take(connection, size_bytes)
            if not is_taken:
                connection.deadline = math.inf  # no deadline: the client does not cause this delay
                connection.phase = Phase.MEMORY
        if is_taken:
            connection.arriving_since = time.monotonic()
        return is_taken

    def release(self, connection: Connection) -> None:
        """Release memory, and resume connections that waited for it."""
        if not connection.has_memory:
            return
        connection.has_memory = False
        with self._lock:
            served = self._budget.release(connection)
        for other in served:
            if other.claim(Phase.MEMORY) is not None:
                other.arriving_since = time.monotonic()
                self._resume(other)
