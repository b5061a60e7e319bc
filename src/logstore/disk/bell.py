"""Wake threads so that Ctrl-C cannot break it: replaces `threading.Event` and `Condition`.

Both of those guard themselves with a lock that Python code takes and gives back. An interrupt in
between leaves that lock held, and every thread that waits, or wants to wake another, hangs for
good. Here a waiting thread owns a lock that no other thread waits for, and each step is one call in
C.
"""

from __future__ import annotations

import time
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable
from contextlib import suppress


class Bell:
    """Wakes the threads that wait for it, and stays rung until it is cleared.

    Threads: any may call anything at any time. `waiters` is not empty while a thread waits; after
    an interrupt it may keep a lock that is not waited for, until the bell is rung again.
    """

    __slots__ = ("is_rung", "waiters")

    def __init__(self) -> None:
        self.is_rung = False
        self.waiters: deque[LockType] = deque()

    def ring(self) -> None:
        """Wake all waiting threads, and let no thread wait until `clear`."""
        self.is_rung = True
        self.wake()

    def wake(self) -> None:
        """Make all waiting threads check their condition again."""
        with suppress(IndexError):
            while True:
                waiter = self.waiters[0]
                with suppress(RuntimeError):  # another thread wakes it too
                    waiter.release()
                with suppress(ValueError):
                    self.waiters.remove(waiter)

    def clear(self) -> None:
        """Let threads wait again."""
        self.is_rung = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is rung, or the time is over; returns whether it was rung."""
        return self.wait_for(lambda: self.is_rung, timeout)

    def wait_for(self, is_true: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until a condition is true, checked at each wake-up; returns whether it is.

        A thread that makes it true does so first and calls `wake` after that.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not is_true():
            seconds = -1.0 if deadline is None else deadline - time.monotonic()
            if deadline is not None and seconds <= 0:
                return False
            waiter = allocate_lock()
            waiter.acquire()
            self.waiters.append(waiter)
            if not is_true():
                waiter.acquire(timeout=seconds)
            with suppress(ValueError):  # it was woken, and is no longer in the list
                self.waiters.remove(waiter)
        return True
