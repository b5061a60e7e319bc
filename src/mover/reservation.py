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


def device_of(target: LogDir) -> int:
    """Tell on which file system a log dir is; raises OSError."""
    return files.stat(target.path).st_dev


class Reservations:
    """Who may write how much to which file system."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # never held over the disk, which may hang: all end here
        self._held: dict[Occupant, int] = {}  # the file system on which room is held
        self._asking: dict[int, threading.Lock] = {}  # of each: one asks for its room at a time

    def reserve(self, occupant: Occupant, target: LogDir) -> None:
        """Hold room for a move; again is fine.

        Raises:
            TargetFullError: there is not enough beside the others.
            LogStoreError: the disk failed.
        """
        try:
            device = device_of(target)
            with self._lock:
                if occupant in self._held:
                    return
                asking = self._asking.setdefault(device, threading.Lock())
            with asking:
                usable = target.refresh_usage().usable_bytes
                self._hold(occupant, target.path, device, usable)
        except OSError as error:
            raise target.failed(error, target.path) from error

    def _hold(self, occupant: Occupant, path: str, device: int, usable: int) -> None:
        with self._lock:
            others = sum(need_of(o.bytes_left) for o, d in self._held.items() if d == device)
            needed = need_of(occupant.bytes_left)
            if needed > usable - others:
                raise TargetFullError(
                    topic=occupant.topic,
                    partition=occupant.partition,
                    path=path,
                    needed_bytes=needed,
                    usable_bytes=usable,
                    reserved_bytes=others,
                )
            self._held[occupant] = device

    def release(self, occupant: Occupant) -> None:
        """Give the room back; twice is fine."""
        with self._lock:
            self._held.pop(occupant, None)

    def __len__(self) -> int:
        return len(self._held)
