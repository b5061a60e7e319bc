"""Reserve memory for large requests before they are read. A waiting connection has no thread.

    reserve -> RUNNING, if there is memory -> MEMORY, until other requests release memory

If a request arrives slowly, it holds all its memory while it arrives. If another request has waited
for memory for too long, the connection of the slowest request is cut: the request that would hold
its memory for the longest time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from broker.config import BrokerConfig
from broker.machines.exchange import CloseConnectionError
from broker.machines.memory_budget import MemoryBudget
from broker.net.connection import Connection, Phase

ARRIVAL_BYTES_PER_SECOND = 64 << 10
# If a request waits for memory for this share of `request_arrival_ms`, the slowest request is cut.
PATIENT_SHARE = 1 / 3


class RequestMemory:
    """The memory of all large requests of a broker.

    Threads: any thread may call any method for a connection that this thread owns. `_lock` guards
    the budget.
    """

    def __init__(self, config: BrokerConfig, resume: Callable[[Connection], None]) -> None:
        """Make an empty budget of `queued_max_request_bytes`.

        Args:
            resume: this function gets a connection that now has its memory. The caller of this
                function owns the connection.
        """
        self._lock = threading.Lock()
        self._budget: MemoryBudget[Connection] = MemoryBudget(config.queued_max_request_bytes)
        self._waiting: dict[Connection, float] = {}  # when each wait began, oldest first
        self._arrival_seconds = config.request_arrival_ms / 1000
        self._patience_seconds = PATIENT_SHARE * self._arrival_seconds
        self._resume = resume

    @property
    def taken_bytes(self) -> int:
        """The memory that large requests have reserved."""
        return self._budget.taken_bytes

    def reserve(self, connection: Connection, size_bytes: int) -> bool:
        """Reserve memory for a request; return False if the connection must wait for memory."""
        with self._lock:
            # the closing of the connection also ends its wait for memory
            connection.has_memory = True
            is_taken = self._budget.take(connection, size_bytes)
            if not is_taken:
                connection.deadline = math.inf  # the client does not cause this delay
                self._waiting[connection] = time.monotonic()
                connection.phase = Phase.MEMORY
        if is_taken:
            connection.arriving_since = time.monotonic()
        return is_taken

    def release(self, connection: Connection) -> None:
        """Release memory, and resume connections that have waited for it."""
        if not connection.has_memory:
            return
        connection.has_memory = False
        with self._lock:
            served = self._budget.release(connection)
            for one in (connection, *served):
                self._waiting.pop(one, None)
        for other in served:
            if other.claim(Phase.MEMORY) is not None:
                other.arriving_since = time.monotonic()
                self._resume(other)

    def arrival_deadline(self, connection: Connection) -> float:
        """Return the time by which more of an incomplete request must have arrived."""
        arrived_bytes = connection.splitter.declared_bytes - connection.splitter.missing_bytes
        size_seconds = arrived_bytes / ARRIVAL_BYTES_PER_SECOND
        return connection.arriving_since + self._arrival_seconds + size_seconds

    def check_arrival(self, connection: Connection) -> None:
        """Check the time while bytes arrive, because only a parked connection has a timer.

        Raises:
            CloseConnectionError: the incomplete request does not arrive in time.
        """
        is_incomplete = not connection.splitter.is_between_frames
        if is_incomplete and connection.received_at > self.arrival_deadline(connection):
            raise CloseConnectionError("it does not arrive in time")

    def slowest(self, now: float) -> Connection | None:
        """Return the connection to cut, because another request waits too long for memory.

        Choose the connection whose request would hold its memory for the longest time, if the rest
        of each request arrives as fast as its first part. If all incomplete requests will arrive
        soon, return None.
        """
        with self._lock:
            since = next(iter(self._waiting.values()), now)
            if now - since < self._patience_seconds:
                return None
            holders = self._budget.holders()
        left, slowest = self._patience_seconds, None
        for connection in holders:
            seconds = _seconds_left(connection, now)
            if seconds > left and now - connection.arriving_since >= self._patience_seconds:
                left, slowest = seconds, connection
        return slowest


def _seconds_left(connection: Connection, now: float) -> float:
    """Estimate the seconds until the rest of a request arrives; 0 for a request that has arrived.

    Another thread may receive bytes of the request meanwhile. Then the estimate is a little too
    large.
    """
    missing_bytes = connection.splitter.missing_bytes
    if connection.busy_since or connection.splitter.is_between_frames:
        return 0.0
    arrived_bytes = max(connection.splitter.declared_bytes - missing_bytes, 1)
    return missing_bytes * (now - connection.arriving_since) / arrived_bytes
