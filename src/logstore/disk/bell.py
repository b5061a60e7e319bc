"""Wake threads in a way that Ctrl-C cannot break; replaces `threading.Event` and `Condition`.

Python's `Event` and `Condition` have a lock that Python code acquires and releases. If Ctrl-C comes
after the acquire and before the release, the lock is never released, and every thread that waits,
or wakes other threads, hangs forever. In this module, each waiting thread has a lock of its own
that no other thread waits for. Each acquire and each release is one call in C.
"""

from __future__ import annotations

import time
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable
from contextlib import suppress


class Bell:
    """Wakes the threads that wait for the bell; after `ring`, the bell stays rung until `clear`.

    Threads: any thread may call any method at any time. While a thread waits, `waiters` has at
    least one lock. After an interrupt, `waiters` can contain a lock for which no thread waits,
    until the bell is rung again.
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
                with suppress(RuntimeError):  # another thread has released the lock already
                    waiter.release()
                with suppress(ValueError):
                    self.waiters.remove(waiter)

    def clear(self) -> None:
        """Make later calls of `wait` block again."""
        self.is_rung = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the bell is rung or the timeout ends; return whether the bell is rung."""
        return self.wait_for(lambda: self.is_rung, timeout)

    def wait_for(self, is_true: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until a condition is true or the timeout ends; return whether the condition is true.

        The condition is checked at each wake-up. So a thread that makes the condition true must
        call `wake` afterwards.
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
            with suppress(ValueError):  # the thread was woken, so its lock is not in the list
                self.waiters.remove(waiter)
        return True
