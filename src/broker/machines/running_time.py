"""Count the time in which the process runs, without the time for which it is frozen.

A process can be frozen: by SIGSTOP, or because its machine is paused. While it is frozen, its
clients cannot reach it, but `time.monotonic` continues. So a limit for the requests of a client
must not count this time.

The caller reports the present time about once a second. If a report is late by more than a second,
the process was frozen, or its machine was very busy. Then only `STEP_SECONDS_MAX` are counted.
"""

from __future__ import annotations

import threading

STEP_SECONDS_MAX = 2.0  # the longest time between two reports that counts


class RunningTime:
    """A clock that stops while the process is frozen.

    Threads: any thread may call any method. `_lock` is held only for a short time.
    """

    def __init__(self, now: float) -> None:
        """Begin at a time of a monotonic clock."""
        self._lock = threading.Lock()
        self._reported, self._running = now, 0.0

    def at(self, now: float) -> float:
        """Report the present time; return the seconds in which the process ran until now."""
        with self._lock:
            step = max(now - self._reported, 0.0)
            self._reported = max(now, self._reported)
            self._running += min(step, STEP_SECONDS_MAX)
            return self._running
