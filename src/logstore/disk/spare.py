"""Get descriptors when the process has none left: from a reserve, and from the caches of files.

A log keeps descriptors open until the log is flushed, and a flush needs one more descriptor. If no
descriptor were free, no log could be flushed, and no descriptor would ever become free. So `Spare`
keeps one descriptor in reserve.

The stores of a process cache open files. If the caches held all descriptors, no other file could be
opened, and no client could connect. So if no descriptor is left, `relieve` closes half of the files
of each cache.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar
from weakref import WeakSet

from logstore.disk import files

Result = TypeVar("Result")
SHORTAGES = (errno.EMFILE, errno.ENFILE)


class FileCache(Protocol):
    """A cache of open files; any thread may call `shed`."""

    def shed(self) -> int:
        """Close the files that were not used for the longest time; return their number."""


_caches: WeakSet[FileCache] = WeakSet()


def share(cache: FileCache) -> None:
    """Let a cache close files when this process has no descriptors left."""
    _caches.add(cache)


def relieve() -> bool:
    """Let all caches close half of their files; return False if no cache had a file."""
    return sum(cache.shed() for cache in list(_caches)) > 0


def relieved(work: Callable[[], Result]) -> Result:
    """Do work that opens a file; if no descriptor is free, relieve the process and try again.

    If a closed file is still in use, its descriptor stays open. So this function closes files until
    the work succeeds, or no cache has a file.
    """
    while True:
        try:
            return work()
        except files.SyncError:
            raise
        except OSError as error:
            if error.errno not in SHORTAGES or not relieve():
                raise


class Spare:
    """A reserved descriptor; work that needs a descriptor closes the spare, then opens it again.

    Threads: `_lock` is held only while the spare is used, during calls to the log dir's own disk.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fd = -1

    def fill(self) -> None:
        """Open the spare if a descriptor is available."""
        if self._fd < 0:
            with suppress(OSError):
                self._fd = files.open_spare()

    def empty(self) -> None:
        """Close the spare."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            files.close_spare(fd)

    def use(self, work: Callable[[], Result]) -> Result:
        """Do work that opens one file; if no descriptor is free, close the spare meanwhile."""
        try:
            return work()
        except files.SyncError:
            raise
        except OSError as error:
            if error.errno not in SHORTAGES:
                raise
        with self._lock:
            self.empty()
            try:
                return work()
            finally:
                self.fill()
