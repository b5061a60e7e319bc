"""Keep the figures that placement uses, so that a creation does not have to read a disk.

Until a refresh finds records in a new replica, placement uses an estimate of its size, the
*allowance*. A refresh also reads the disk's free bytes. So only the records of a replica or its
allowance are subtracted from the free bytes, but never both.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from logstore.disk.log_dir import LogDir

if TYPE_CHECKING:
    from logstore.store.placement import DirLoad

ALLOWANCE_BYTES_MIN = 1 << 20


class Sized(Protocol):
    """The size that a log reports."""

    @property
    def size_bytes(self) -> int:
        """The bytes of the log's record batches on the disk."""


class DirFigures:
    """The figures of one log dir: the keeper refreshes them, and each creation adds to them.

    Attributes:
        scrubbed_bytes: the bytes that the scrubber has read since the dir was opened; written by
            the keeper.
        corrupt_batches: the number of damaged places that the scrubber found.
        uncompacted_logs: the number of logs that could not be compacted; written by the thread that
            compacts.
    """

    def __init__(self, log_dir: LogDir) -> None:
        self.log_dir = log_dir
        self.partition_count = 0
        self.filled_count = 0
        self.filled_bytes = 0
        self.scrubbed_bytes = 0
        self.corrupt_batches = 0
        self.uncompacted_logs = 0
        self._empty: set[Sized] = set()
        self._lock = threading.Lock()

    def add(self, log: Sized) -> None:
        """Add a replica, which counts as empty until the next refresh reads its size."""
        with self._lock:
            self.partition_count += 1
            self._empty.add(log)

    def remove(self, log: Sized) -> None:
        """Stop counting a replica."""
        with self._lock:
            self.partition_count -= 1
            self._empty.discard(log)

    def refresh(self, logs: Iterable[Sized]) -> None:
        """Read the disk's free space and the replicas' sizes. Raises OSError."""
        self.log_dir.refresh_usage()
        self.weigh(logs)

    def weigh(self, logs: Iterable[Sized]) -> None:
        """Read the replicas' sizes from memory."""
        sizes = {log: log.size_bytes for log in logs}
        filled = [size for size in sizes.values() if size]
        self.filled_count, self.filled_bytes = len(filled), sum(filled)
        grown = {log for log, size in sizes.items() if size}
        with self._lock:
            self._empty -= grown

    def load(self) -> DirLoad:
        """Return the figures that placement compares."""
        from logstore.store.placement import DirLoad

        usage = self.log_dir.usage
        return DirLoad(
            usage.total_bytes, usage.usable_bytes, self.partition_count, len(self._empty)
        )


def allowance_bytes(figures: Iterable[DirFigures], default: int) -> int:
    """Estimate a new replica's size: the mean of all replicas with records, or the default.

    A mean below ALLOWANCE_BYTES_MIN counts as ALLOWANCE_BYTES_MIN.
    """
    count = size = 0
    for one in figures:
        count += one.filled_count
        size += one.filled_bytes
    return max(size // count, ALLOWANCE_BYTES_MIN) if count else default


def choose_dir(figures: Sequence[DirFigures], allowance: int) -> LogDir:
    """Choose the log dir for the next replica."""
    from logstore.store.placement import choose

    return figures[choose([one.load() for one in figures], allowance)].log_dir
