"""Guard a replica with a lock, and do not wait for a thread that hangs in a call to a disk.

A thread that hangs keeps the lock of its replica, and cannot be stopped. Other threads serve other
log dirs, too: a fetch of a follower names replicas in several log dirs. So a thread that waits for
the lock looks at the state of the log dir, and raises if the log dir does not work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

LOOK_SECONDS = 0.05


class PatientLock:
    """A lock that one thread may take several times; use it in a `with` statement.

    Attributes:
        patient: the lock itself. A thread that only serves one log dir may wait for it.
    """

    __slots__ = ("_check", "patient")

    def __init__(self, check: Callable[[], None]) -> None:
        """Make a free lock.

        Args:
            check: raises LogStoreError if the log dir of the replica does not work.
        """
        self._check = check
        self.patient = threading.RLock()

    def __enter__(self) -> None:
        """Take the lock. Raises LogStoreError if the log dir does not work, and it is taken."""
        if not self.patient.acquire(blocking=False):
            self._check()
            while not self.patient.acquire(timeout=LOOK_SECONDS):
                self._check()

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self.patient.release()
