"""Run work that Ctrl-C must not stop in the middle, in a second thread.

Python raises KeyboardInterrupt in the main thread only. So if the main thread calls an operation of
several steps (a truncation, a close), the operation runs in a second thread. A first Ctrl-C is
raised only after the work is complete. A second Ctrl-C is raised immediately, because the disk may
hang. After a second Ctrl-C, the work still continues to its end in its thread. If the work has not
changed anything yet, the work notices that the caller has left, and stops.

On a disk, an operation of several steps takes milliseconds. Starting the thread takes 0.05 ms.
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
    """Raised in the work if its caller left before the first change; no caller sees this error."""


class Work(Generic[Result]):
    """One piece of work, and its result.

    Threads: the second thread writes the outcome and then rings `_is_over`. The caller reads the
    outcome only after `_is_over` was rung.
    """

    def __init__(self, work: Callable[[Callable[[], None]], Result]) -> None:
        self._work = work
        self._is_wanted = self._is_left = False
        self._may_begin, self._is_over = Bell(), Bell()
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="logstore-whole", daemon=True)

    def start(self) -> None:
        """Start the thread. Raises RuntimeError if the process cannot start more threads."""
        start(self._thread)
        self._is_wanted = True
        self._may_begin.ring()

    def wait(self) -> None:
        """Wait for the end of the work.

        The caller waits in short steps, because a signal that arrives just before a wait does not
        end that wait.
        """
        while not self._is_over.wait(LOOK_SECONDS):
            if not self._thread.is_alive():  # if there is no memory, a thread can end early
                return

    def wait_after_interrupt(self) -> None:
        """If the start succeeded, wait for the end of the work; otherwise the work never begins."""
        self._may_begin.ring()
        if self._is_wanted:
            self.wait()

    def leave(self) -> None:
        """Remember that the caller no longer waits."""
        self._is_left = True
        self._may_begin.ring()  # if the start was interrupted, the thread now ends

    def outcome(self) -> Result:
        """Return the result of the work, or raise its error."""
        self._thread.join()
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            if not self._results:
                raise MemoryError(
                    "a thread ended for lack of memory; its work may or may not be done"
                )
            return self._results[0]
        finally:
            del error  # an error refers to frames, and frames refer to descriptors

    def _check(self) -> None:
        """Raise AbandonedError if the caller left; the work calls this before its first change."""
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
    """Do work to its end even if Ctrl-C comes. Raises the errors of the work.

    Args:
        work: the function to run. The only argument of `work` is another function, the check.
            `work` calls the check once, after it has taken its locks and before its first change.
            The check raises an error if the caller no longer waits.
    """
    if threading.current_thread() is not threading.main_thread():
        return work(_go_on)
    whole = Work(work)
    try:
        try:
            whole.start()
            whole.wait()
        # No thread can be started. So Ctrl-C can stop the work in the middle, and the work allows
        # this.
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
    """Do nothing: this check is for work that runs in the caller's own thread."""


def uninterruptible(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Wrap a method so that Ctrl-C does not interrupt it."""

    @functools.wraps(method)
    def whole(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        return uninterrupted(lambda _: method(*arguments, **options))

    return whole
