"""Flush replicas in threads of their log dirs, so that a disk that hangs delays no other log dir.

A replica waits in the queue of its log dir at most once. When the flush begins, it covers all
records that were appended until then.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Protocol

from cluster.disks.dir_workers import DirWorkers
from logstore import Log

FLUSH_THREADS = 4  # for each log dir


class Flushable(Protocol):
    """A replica whose log can be flushed."""

    @property
    def log(self) -> Log | None:
        """The log; None if there is no log, or if its log dir does not work."""

    def flush(self) -> None:
        """Flush the log, and report the result to the rules."""


class Flushes:
    """The flushes of a broker's replicas.

    Threads: any thread may call any method.
    """

    def __init__(self) -> None:
        self._workers = DirWorkers("flush", FLUSH_THREADS)
        self._lock = threading.Lock()  # guards the next field
        self._waiting: set[Flushable] = set()
        self._is_closed = False

    def submit(self, replica: Flushable) -> None:
        """Flush a replica soon. If its flush has not begun yet, do nothing."""
        if (log := replica.log) is None:
            return
        with self._lock:
            if replica in self._waiting:
                return
            self._waiting.add(replica)
        self._workers.submit(log.log_dir, partial(self._flush, replica))

    def close(self) -> None:
        """Begin no further flush. Do not wait for flushes that are running."""
        self._is_closed = True
        self._workers.close()

    def _flush(self, replica: Flushable) -> None:
        with self._lock:
            self._waiting.discard(replica)
        if not self._is_closed:
            replica.flush()
