"""Reserve room at the targets of moves, because there may be room for only one of two moves.

Log dirs on one file system share its room. A reservation covers only the bytes that a move still
has to write. The bytes that the move has written are not free any more.
"""

from __future__ import annotations

import threading
from typing import Protocol

from logstore.disk import files
from logstore.disk.log_dir import LogDir
from mover.errors import TargetFullError

# Extra room for index files, for small files, and for records that are appended during the move.
ALLOWANCE_BYTES = 1 << 20
INDEX_SHARE = 256  # this many bytes of batches need one byte of index files (an entry each 4 KiB)


class Occupant(Protocol):
    """Declare the attributes of a move that decide how much room the move needs."""

    topic: str
    partition: int

    @property
    def bytes_left(self) -> int:
        """Bytes that are still to be written."""


def need_of(size_bytes: int) -> int:
    """Compute how many bytes of room a move needs if the replica has `size_bytes`."""
    return size_bytes + size_bytes // INDEX_SHARE + ALLOWANCE_BYTES


def device_of(target: LogDir) -> int:
    """Return the device number of a log dir's file system; raise OSError if the disk fails."""
    return files.stat(target.path).st_dev


class Reservations:
    """Remember how many bytes each move still has to write, and to which file system."""

    def __init__(self) -> None:
        # This lock is never held during a disk call, so that `release` never waits for a disk.
        self._lock = threading.Lock()
        self._held: dict[Occupant, int] = {}  # the file system of each move that has reserved room
        # The lock of each file system. Only one move at a time reserves room on a file system.
        self._asking: dict[int, threading.Lock] = {}

    def reserve(self, occupant: Occupant, target: LogDir) -> None:
        """Reserve room for a move; if the move has room already, do nothing.

        Raises:
            TargetFullError: the free bytes minus the other reservations are too few.
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
        """Give the room back; a second call has no effect."""
        with self._lock:
            self._held.pop(occupant, None)

    def __len__(self) -> int:
        return len(self._held)
