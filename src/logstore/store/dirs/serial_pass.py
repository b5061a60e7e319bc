"""Work on several log dirs in one thread, which is abandoned if its current log dir hangs.

The steps of a pass depend on each other, so one thread takes all steps, one after another. If the
log dir of the current step becomes SUSPECT, no thread waits for the pass any more. If the hung call
returns later, the thread of the pass takes no further step.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from logstore.disk.calls import SYNCING, call
from logstore.disk.log_dir import LogDir


class GivenUpError(Exception):
    """Raised in the thread of a pass that was given up."""


class Pass:
    """One pass over log dirs, step by step.

    Attributes:
        is_given_up: whether no thread waits for this pass any more. Another thread may then repeat
            the pass.
    """

    def __init__(self) -> None:
        self.is_given_up = False
        self._at: LogDir | None = None
        self._lock = threading.Lock()  # no thread holds this lock during a disk call

    @contextmanager
    def at(self, log_dir: LogDir) -> Iterator[None]:
        """Run the `with` block as one step of the pass, at one log dir.

        Raises:
            GivenUpError: the pass was given up. Only the thread of the pass gets this error.
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
        """If the pass is at a SUSPECT log dir, give up the pass; return whether this was done."""
        with self._lock:
            is_stuck = self._at is not None and self._at.is_suspect
            self.is_given_up |= is_stuck
            return is_stuck

    def stop(self) -> None:
        """End the pass after its current step."""
        with self._lock:
            self.is_given_up = True
