"""Run work that Ctrl-C must not stop in the middle: in a thread, which no interrupt reaches.

Python raises KeyboardInterrupt in the main thread only. An operation of several steps (a
truncation, a close) therefore runs in a second thread when the main thread asks for it. The first
interrupt is raised once the work is complete. The second one is raised at once, because the disk
may hang: the work then completes by itself, unless it has not changed anything yet.

Such an operation takes milliseconds on a disk. Starting the thread takes 0.05 ms.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

from logstore.disk.bell import Bell
from logstore.disk.threads import Thread, start
from logstore.errors import LogStoreError

LOOK_SECONDS = 0.1
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class AbandonedError(LogStoreError):
    """Raised if the caller left before the work had changed anything; no caller sees this error."""


class Work(Generic[Result]):
    """One piece of work, and its result.

    Threads: the worker writes the outcome before it sets `_is_over`; the caller reads it after.
    """

    def __init__(self, work: Callable[[Callable[[], None]], Result]) -> None:
        self._work = work
        self._is_wanted = self._is_left = False
        self._may_begin, self._is_over = Bell(), Bell()
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="logstore-whole", daemon=True)

    def start(self) -> None:
        """Start the thread; raises RuntimeError if the process can start no more."""
        start(self._thread)
        self._is_wanted = True
        self._may_begin.ring()

    def wait(self) -> None:
        """Wait for the end of the work.

        It waits in short steps: a signal that arrives just before a wait begins does not end that
        wait.
        """
        while not self._is_over.wait(LOOK_SECONDS):
            if not self._thread.is_alive():  # without memory it may end before it begins
                return

    def wait_after_interrupt(self) -> None:
        """Wait for the end of work that has begun; work that has not begun never begins."""
        self._may_begin.ring()
        if self._is_wanted:
            self.wait()

    def leave(self) -> None:
        """Record that the caller waits no more."""
        self._is_left = True
        self._may_begin.ring()  # unwanted work ends at once

    def outcome(self) -> Result:
        """Give the result of the work, or raise its error."""
        self._thread.join()
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            if not self._results:
                raise MemoryError("a thread ended for lack of memory; its work may be done or not")
            return self._results[0]
        finally:
            del error  # its traceback holds this frame, and frames below it hold descriptors

    def _check(self) -> None:
        """Raise AbandonedError if the caller left; work asks this before its first change."""
        if self._is_left:
            raise AbandonedError(reason="the caller was interrupted twice; nothing was changed")

    def _run(self) -> None:
        self._may_begin.wait()
        try:
            if self._is_wanted:
                self._results.append(self._work(self._check))
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            self._error = error
        finally:
            self._is_over.ring()


def uninterrupted(work: Callable[[Callable[[], None]], Result]) -> Result:
    """Do work as a whole even if Ctrl-C comes; raises what the work raises.

    Args:
        work: called with a function that it calls once, under its locks and before its first
            change. The function raises if the caller has left.
    """
    if threading.current_thread() is not threading.main_thread():
        return work(_go_on)
    whole = Work(work)
    try:
        try:
            whole.start()
            whole.wait()
        # no thread can be started: an interrupt may stop the work, which allows for that
        except RuntimeError:
            return work(_go_on)
        except BaseException:
            whole.wait_after_interrupt()
            raise
    except BaseException:
        whole.leave()
        raise
    return whole.outcome()


def _go_on() -> None:
    """Replace the caller's check in a thread that no interrupt reaches."""


def uninterruptible(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Make each call of a method complete although Ctrl-C comes."""

    @functools.wraps(method)
    def whole(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        return uninterrupted(lambda _: method(*arguments, **options))

    return whole
