"""Log errors of clients, but rarely, so that a client cannot fill the log."""

from __future__ import annotations

import logging
import threading
import time

from broker.machines.complaints import Complaints

LOG = logging.getLogger("broker")


class ComplaintLog:
    """Log the warnings of a server.

    Threads: any thread may call any method. `_lock` is held only for a short time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._complaints = Complaints()

    def warn(self, kind: str, text: str) -> None:
        """Log a warning, unless a warning of this kind was logged a moment ago."""
        with self._lock:
            left_out = self._complaints.take(kind, time.monotonic())
        if left_out is not None:
            more = f" ({left_out} more such warnings were left out)" if left_out else ""
            LOG.warning("%s%s", text, more)
