"""Decide which thread checks a waiting request: a check follows each wake-up, and no two overlap.

    LOOKING   a thread evaluates the request
    AGAIN     a thread evaluates it, and something happened meanwhile
    RESTING   no thread has it; it waits for a wake-up
    DONE      it was answered or dropped

    state     wake        rest        end
    LOOKING   AGAIN       RESTING     DONE
    AGAIN     -           LOOKING     DONE
    RESTING   LOOKING     -           DONE
    DONE      -           -           -

The thread that changes RESTING to LOOKING has the request evaluated. A thread that calls `rest` and
sees AGAIN evaluates it once more. So no event is lost.
"""

from __future__ import annotations

import enum
import threading


class Phase(enum.Enum):
    """The state of a waiting request."""

    LOOKING = enum.auto()
    AGAIN = enum.auto()
    RESTING = enum.auto()
    DONE = enum.auto()


class Wakeup:
    """The state of one waiting request; it begins with a thread that evaluates it.

    Threads: any thread may call any method. `_lock` is held for moments, and no lock is taken
    under it.
    """

    __slots__ = ("_lock", "phase")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.phase = Phase.LOOKING

    def wake(self) -> bool:
        """Say that something happened; True: the caller must have the request evaluated."""
        if self.phase is Phase.AGAIN:  # usually another partition of the same request
            return False
        with self._lock:
            if self.phase is Phase.RESTING:
                self.phase = Phase.LOOKING
                return True
            if self.phase is Phase.LOOKING:
                self.phase = Phase.AGAIN
            return False

    def rest(self) -> bool:
        """Give the request up after a look; False: something happened, so look once more."""
        with self._lock:
            if self.phase is Phase.LOOKING:
                self.phase = Phase.RESTING
                return True
            if self.phase is Phase.AGAIN:
                self.phase = Phase.LOOKING
                return False
            return True

    def end(self) -> bool:
        """End the wait; False: it had ended already."""
        with self._lock:
            is_first = self.phase is not Phase.DONE
            self.phase = Phase.DONE
            return is_first
