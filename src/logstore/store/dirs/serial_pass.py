"""Go over several log dirs in one thread, which is abandoned if the current dir hangs.

The steps of one pass depend on each other, so they are taken one after the other. Once its log dir
is SUSPECT, no thread waits for a step. If the thread ever returns, it takes no further step.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from logstore.disk.calls import SYNCING, call
from logstore.disk.log_dir import LogDir


class GivenUpError(Exception):
    """Raised in the thread of a pass that no other thread waits for any more."""


class Pass:
    """One pass over log dirs, step by step.

    Attributes:
        is_given_up: no thread waits for it, and another thread does the rest of its work.
    """

    def __init__(self) -> None:
        self.is_given_up = False
        self._at: LogDir | None = None
        self._lock = threading.Lock()  # never held during a disk call

    @contextmanager
    def at(self, log_dir: LogDir) -> Iterator[None]:
        """Take one step, at one log dir.

        Raises:
            GivenUpError: in the thread of a pass that was given up.
        """
        self._stand(log_dir)
        try:
            with call(log_dir.path, SYNCING):
                yield
        finally:
            self._stand(None)

    def _stand(self, log_dir: LogDir | None) -> None:
        with self._lock:
            if self.is_given_up:
                raise GivenUpError
            self._at = log_dir

    def give_up_if_stuck(self) -> bool:
        """Give the pass up if its current log dir is SUSPECT; returns whether that is so."""
        with self._lock:
            is_stuck = self._at is not None and self._at.is_suspect
            self.is_given_up |= is_stuck
            return is_stuck

    def stop(self) -> None:
        """End the pass after its current step."""
        with self._lock:
            self.is_given_up = True
