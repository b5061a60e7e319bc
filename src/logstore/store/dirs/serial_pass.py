"""Go over several log dirs in one thread that is left behind when the dir it is at hangs.

The steps of one pass hang on each other, so they are taken one after the other. Nobody waits for a
step once its log dir is SUSPECT; the thread, should it ever come back, takes no further one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from logstore.disk.calls import SYNCING, call
from logstore.disk.log_dir import LogDir


class GivenUpError(Exception):
    """Say, to the thread of a pass alone, that nobody waits for it any more."""


class Pass:
    """One pass over log dirs, step by step.

    Attributes:
        is_given_up: nobody waits for it, and what it would still do is done by another one.
    """

    def __init__(self) -> None:
        self.is_given_up = False
        self._at: LogDir | None = None
        self._lock = threading.Lock()  # never held over a call to a disk

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
        """Give it up when the log dir that it is at is suspect; tells whether that is so."""
        with self._lock:
            is_stuck = self._at is not None and self._at.is_suspect
            self.is_given_up |= is_stuck
            return is_stuck

    def stop(self) -> None:
        """Let it end after the step that it is at."""
        with self._lock:
            self.is_given_up = True
