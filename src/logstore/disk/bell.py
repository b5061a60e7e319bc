"""Wake threads in a way that Ctrl-C cannot break: the place of `threading.Event` and `Condition`.

Both of those guard themselves with a lock that Python code takes and gives back. An interrupt in
between leaves that lock held, and every thread that waits, or wants to wake one, hangs for good.
Here a thread that waits owns a lock that nobody else waits for, and each step is one call in C.
"""

from __future__ import annotations

import time
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable
from contextlib import suppress


class Bell:
    """Wake the threads that wait for it, and stay rung until it is cleared.

    Threads: any may call anything at any time. `waiters` is not empty while a thread waits; after
    an interrupt it may keep a lock that nobody waits for, until the bell is rung again.
    """

    __slots__ = ("is_rung", "waiters")

    def __init__(self) -> None:
        self.is_rung = False
        self.waiters: deque[LockType] = deque()

    def ring(self) -> None:
        """Wake all that wait, and let nobody wait until `clear`."""
        self.is_rung = True
        self.wake()

    def wake(self) -> None:
        """Have all that wait look at what they wait for."""
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
        """Wait until it is rung, or the time is over; tells whether it was rung."""
        return self.wait_for(lambda: self.is_rung, timeout)

    def wait_for(self, is_true: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until something is true, which is looked at when it is woken; tells whether it is.

        Whoever makes it true does so first and calls `wake` after that.
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
            with suppress(ValueError):  # it was woken, and is not in there any more
                self.waiters.remove(waiter)
        return True
