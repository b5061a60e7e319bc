"""Decide which thread checks a waiting request.

After each wake-up, there is a check. Two checks never run at the same time.

    LOOKING   a thread checks the request
    AGAIN     a thread checks the request, and a wake-up came meanwhile
    RESTING   no thread checks the request; it waits for a wake-up
    DONE      the request was answered or dropped

    state     wake        rest        end
    LOOKING   AGAIN       RESTING     DONE
    AGAIN     -           LOOKING     DONE
    RESTING   LOOKING     -           DONE
    DONE      -           -           -

The thread that changes RESTING to LOOKING starts a check. If a thread calls `rest` in the state
AGAIN, this thread checks the request once more. So no wake-up is lost.
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
    """The state of one waiting request. The thread that executes the request makes the first check.

    Threads: any thread may call any method. `_lock` is held only for a short time, and its holder
    takes no other lock.
    """

    __slots__ = ("_lock", "phase")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.phase = Phase.LOOKING

    def wake(self) -> bool:
        """Remember a wake-up; return True if the caller must start a check of the request."""
        if self.phase is Phase.AGAIN:  # usually, another partition has woken the request
            return False
        with self._lock:
            if self.phase is Phase.RESTING:
                self.phase = Phase.LOOKING
                return True
            if self.phase is Phase.LOOKING:
                self.phase = Phase.AGAIN
            return False

    def rest(self) -> bool:
        """End a check; return False if there was a wake-up, so that the caller must check again."""
        with self._lock:
            if self.phase is Phase.LOOKING:
                self.phase = Phase.RESTING
                return True
            if self.phase is Phase.AGAIN:
                self.phase = Phase.LOOKING
                return False
            return True

    def end(self) -> bool:
        """End the wait; return False if the wait had already ended."""
        with self._lock:
            is_first = self.phase is not Phase.DONE
            self.phase = Phase.DONE
            return is_first
