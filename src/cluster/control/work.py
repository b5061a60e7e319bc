"""Let one thread do what another thread asks for, and wait for its result."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Work(Generic[Result]):
    """A function that another thread calls, once.

    Threads: one thread waits; another one performs the work or drops it.
    """

    def __init__(self, do: Callable[[], Result]) -> None:
        self._do = do
        self._result: Future[Result | None] = Future()

    def wait(self, seconds: float) -> Result | None:
        """Wait for the result; None if the work was dropped.

        Raises:
            TimeoutError: the function has not returned; if it was not called, it never will be.
            Exception: whatever the function raised.
        """
        try:
            return self._result.result(seconds)
        finally:
            self._result.cancel()

    def perform(self) -> None:
        """Call the function, unless nobody waits any more; raises what it raises."""
        if self._result.set_running_or_notify_cancel():
            try:
                self._result.set_result(self._do())
            except BaseException as error:
                self._result.set_exception(error)
                raise

    def drop(self) -> None:
        """Let the wait end without a result."""
        if self._result.set_running_or_notify_cancel():
            self._result.set_result(None)
