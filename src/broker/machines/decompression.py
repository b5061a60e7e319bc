"""Limit the memory of the batches that a broker decompresses for its clients.

    lease -> reserve -> enough memory is free: decompress
                     -> too little is free: the thread waits; after a time, the request is refused

A few kilobytes can decompress to gigabytes. One batch may need `batch_bytes_max`, and all batches
together may need `total_bytes_max`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from broker.machines.memory_budget import MemoryBudget
from broker.wire.error_codes import ErrorCode
from logstore import LogStoreError
from logstore.format.expansion_lease import begin, end

WAIT_SECONDS = 10.0  # if a request waits longer for memory, it is refused
TOO_LARGE = (
    "the batch needs {size_bytes} bytes or more of memory when it is decompressed, more than "
    "decompressed_batch_bytes_max={batch_bytes_max}: send fewer records in one batch"
)
NO_ROOM = (
    "other batches that are being decompressed use all of decompressed_bytes_max={total_bytes_max}:"
    " send the batch again"
)


class DecompressionError(LogStoreError):
    """Report a batch that was not decompressed. `code` is the error code for the client."""

    code: ErrorCode
    reason: str
    _template = "{reason}"


class DecompressionMemory:
    """The memory of all batches that a broker decompresses for its clients.

    Threads: any thread may call any method. `_lock` guards the budget, and is held only for a short
    time.

    Args:
        complain: logs a warning, unless a warning of the same kind was logged a moment ago.
    """

    def __init__(
        self,
        batch_bytes_max: int,
        total_bytes_max: int,
        complain: Callable[[str, str], object],
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self.batch_bytes_max, self.total_bytes_max = batch_bytes_max, total_bytes_max
        self.complain = complain
        self._wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._budget: MemoryBudget[threading.Event] = MemoryBudget(total_bytes_max)

    @property
    def taken_bytes(self) -> int:
        """The memory that is reserved now."""
        return self._budget.taken_bytes

    def lease(self) -> Lease:
        """Limit the batches that this thread decompresses in the `with` block.

        In the block, a batch may raise DecompressionError. The code of this error is
        MESSAGE_TOO_LARGE if a batch is too large, and KAFKA_STORAGE_ERROR if the thread waited too
        long for memory. After KAFKA_STORAGE_ERROR, clients repeat the request.
        """
        return Lease(self)

    def take(self, size_bytes: int) -> threading.Event:
        """Wait for memory and reserve it; raise DecompressionError if the wait is too long."""
        holder = threading.Event()
        with self._lock:
            if self._budget.take(holder, min(size_bytes, self.total_bytes_max)):
                return holder
        if not holder.wait(self._wait_seconds):
            self.give(holder)
            reason = NO_ROOM.format(total_bytes_max=self.total_bytes_max)
            self.complain("no decompression", f"a request is refused: {reason}")
            raise DecompressionError(code=ErrorCode.KAFKA_STORAGE_ERROR, reason=reason)
        return holder

    def lessen(self, holder: threading.Event, size_bytes: int) -> None:
        """Keep only `size_bytes` of the memory, and give back the rest. This never waits."""
        with self._lock:
            served = self._budget.lessen(holder, min(size_bytes, self.total_bytes_max))
        for other in served:
            other.set()

    def give(self, holder: threading.Event) -> None:
        """Give memory back, and wake the threads that get it."""
        with self._lock:
            served = self._budget.release(holder)
        for other in served:
            other.set()


class Lease:
    """The lease of one thread. It implements `logstore.format.expansion_lease.Lease`.

    Each Produce makes a lease. So this class itself is the context manager: a generator would be
    slower.
    """

    __slots__ = ("_holder", "_memory", "batch_bytes_max")

    def __init__(self, memory: DecompressionMemory) -> None:
        self.batch_bytes_max = memory.batch_bytes_max
        self._memory = memory
        self._holder: threading.Event | None = None

    def __enter__(self) -> None:
        begin(self)

    def __exit__(self, *_: object) -> None:
        end(self)

    def reserve(self, size_bytes: int) -> None:
        """Give back all memory of this lease, and reserve this many bytes.

        While a thread waits, it holds no memory. So threads cannot wait for each other for ever.
        """
        holder, self._holder = self._holder, None
        if holder is not None:
            self._memory.give(holder)
        if size_bytes:
            self._holder = self._memory.take(size_bytes)

    def lessen(self, size_bytes: int) -> None:
        """Keep only this many bytes, and give back the rest. This never waits."""
        if self._holder is not None:
            self._memory.lessen(self._holder, size_bytes)

    def too_large(self, size_bytes: int) -> DecompressionError:
        """Make the error for a batch that needs too much memory, and log it."""
        reason = TOO_LARGE.format(size_bytes=size_bytes, batch_bytes_max=self.batch_bytes_max)
        self._memory.complain("decompression", f"a batch of a client is refused: {reason}")
        return DecompressionError(code=ErrorCode.MESSAGE_TOO_LARGE, reason=reason)
