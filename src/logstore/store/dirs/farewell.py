"""Let log dirs that are closed together exchange their last generations."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from logstore.disk.log_dir import LogDir

# How long a closing log dir waits for the other log dirs to write their last generations.
SECONDS_MAX = 5.0
LOOK_SECONDS = 0.05


class Farewell:
    """Makes log dirs that are closed together wait until each has written its last generation.

    Each log dir then stores the last generations of the other log dirs. Records may be flushed
    after the last checkpoint. If an old copy lacks nothing but these records, only its last
    generation shows that it is old. If the process can start no thread, one thread closes all log
    dirs, one after the other. With only one thread, no log dir waits for another log dir.
    """

    def __init__(self, log_dirs: Iterable[LogDir], timeout: float | None) -> None:
        self._left = set(log_dirs)
        seconds = SECONDS_MAX if timeout is None else timeout / 2
        self._deadline = time.monotonic() + min(seconds, SECONDS_MAX)
        self._changed = threading.Condition()
        self._made_by = threading.get_ident()

    def arrive(self, log_dir: LogDir) -> None:
        """Report that the last generation of a log dir is on the disk, or will not be written."""
        with self._changed:
            self._left.discard(log_dir)
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait, for a limited time, until `arrive` was called for every log dir that works."""
        if threading.get_ident() == self._made_by:
            return
        with self._changed:
            while any(not log_dir.is_refusing for log_dir in self._left):
                seconds = self._deadline - time.monotonic()
                if seconds <= 0:
                    return
                self._changed.wait(min(seconds, LOOK_SECONDS))
