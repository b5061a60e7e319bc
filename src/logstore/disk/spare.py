"""Keep one descriptor in reserve, so that a flush works when no other descriptor is left.

A log keeps descriptors open until the log is flushed. Without a free descriptor, a flush could
flush no log, and no descriptor would ever become free.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from logstore.disk import files

Result = TypeVar("Result")


class Spare:
    """A reserved descriptor; work that needs a descriptor closes it, then opens it again.

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
        """Do work that opens one file; if no descriptor is free, close the spare for that time."""
        try:
            return work()
        except files.SyncError:
            raise
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        with self._lock:
            self.empty()
            try:
                return work()
            finally:
                self.fill()
