"""Let one thread call a function for another thread, which waits for the result."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Work(Generic[Result]):
    """A function that one thread calls once, for another thread.

    Threads: one thread calls `wait`. Another thread calls `perform` or `drop`.
    """

    def __init__(self, do: Callable[[], Result]) -> None:
        self._do = do
        self._result: Future[Result | None] = Future()

    def wait(self, seconds: float) -> Result | None:
        """Wait for the result; None if the work was dropped.

        Raises:
            TimeoutError: the function was too slow; a function that has not begun by then never
                runs.
            Exception: any exception that the function raised.
        """
        try:
            return self._result.result(seconds)
        finally:
            self._result.cancel()

    def perform(self) -> None:
        """Call the function, unless `wait` has ended.

        If the function raises an error, raise it here, too.
        """
        if self._result.set_running_or_notify_cancel():
            try:
                self._result.set_result(self._do())
            except BaseException as error:
                self._result.set_exception(error)
                raise

    def drop(self) -> None:
        """End the wait without a result."""
        if self._result.set_running_or_notify_cancel():
            self._result.set_result(None)
