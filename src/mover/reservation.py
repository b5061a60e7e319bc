"""Keep room at the targets for the moves that were let in: what fits alone may not fit together.

Log dirs on one file system share its room. A move holds what it still has to write; what it wrote
shows in the free bytes already.
"""

from __future__ import annotations

import threading
from typing import Protocol

from logstore.disk import files
from logstore.disk.log_dir import LogDir
from mover.errors import TargetFullError

# Beside the segments: index files, small files, and what is appended while the move runs.
ALLOWANCE_BYTES = 1 << 20
INDEX_SHARE = 256  # one byte of index files for so many of batches, at 4 KiB between entries


class Occupant(Protocol):
    """A move, as far as its need for room goes."""

    topic: str
    partition: int

    @property
    def bytes_left(self) -> int:
        """What it still has to write."""


def need_of(size_bytes: int) -> int:
    """Say how much room a replica of a size wants."""
    return size_bytes + size_bytes // INDEX_SHARE + ALLOWANCE_BYTES


class Reservations:
    """Who may write how much to which file system."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Occupant, int] = {}  # the file system on which room is held

    def reserve(self, occupant: Occupant, target: LogDir) -> None:
        """Hold room for a move; again is fine.

        Raises:
            TargetFullError: there is not enough beside the others.
            LogStoreError: the disk failed.
        """
        try:
            device = files.stat(target.path).st_dev
            with self._lock:
                if occupant in self._held:
                    return
                usable = target.refresh_usage().usable_bytes
                others = sum(need_of(o.bytes_left) for o, d in self._held.items() if d == device)
                needed = need_of(occupant.bytes_left)
                if needed > usable - others:
                    raise TargetFullError(
                        topic=occupant.topic,
                        partition=occupant.partition,
                        path=target.path,
                        needed_bytes=needed,
                        usable_bytes=usable,
                        reserved_bytes=others,
                    )
                self._held[occupant] = device
        except OSError as error:
            raise target.failed(error, target.path) from error

    def release(self, occupant: Occupant) -> None:
        """Give the room back; twice is fine."""
        with self._lock:
            self._held.pop(occupant, None)

    def __len__(self) -> int:
        return len(self._held)
