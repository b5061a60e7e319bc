"""Start a thread; if this process can start no more threads, the error says what to do."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

from logstore.errors import LogDirError

LOOK_SECONDS = 0.05


class Thread(threading.Thread):
    """A thread whose `start` raises an error, and does not hang, if its first step gets no memory.

    `threading.Thread.start` waits until the new thread reports that it runs. If the new thread ends
    with a MemoryError before its report, the caller waits forever (CPython gh-140746). In this
    class, the caller notices that the thread ended without a report. When the thread drops its
    target, a call in C adds an item to `_ended`. This call in C allocates no memory.
    """

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: the process cannot start more threads, or has no memory for a thread.
        """
        self._ended: deque[object] = deque()
        self._started = _Started(self._ended)
        try:
            super().start()
        except _NeverBeganError:
            # `_limbo` is Python's registry of the threads that are starting.
            getattr(threading, "_limbo", {}).pop(self, None)
            self._ident = None
            raise

    @property
    def _bootstrap(self) -> Callable[[], None]:
        """The function that the new thread runs. Only the thread itself refers to this function."""
        run: Any = vars(threading.Thread)["_bootstrap"]
        first_step: Callable[[], None] = partial(run, self)
        self._end: Any = ref(first_step, self._ended.append)
        return first_step


class _NeverBeganError(RuntimeError):
    """Raised if a new thread ended before it ran its target."""


class _Started(threading.Event):
    """Lets a caller wait until a thread runs. Raises an error if the thread ends instead."""

    def __init__(self, ended: deque[object]) -> None:
        super().__init__()
        self._ended = ended

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the thread. Raises RuntimeError if it ended without running."""
        while not super().wait(LOOK_SECONDS):
            if self._ended and not self.is_set():
                raise _NeverBeganError("can't start new thread: no memory for it")
        return True


def start(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        RuntimeError: the process cannot start more threads.
        KeyboardInterrupt: Ctrl-C came during the start, and it is unknown whether the thread
            started. (Python's Condition can turn the interrupt into a RuntimeError about a lock.)
    """
    try:
        thread.start()
    except RuntimeError as error:
        hidden = error.__context__
        if hidden is not None and not isinstance(hidden, Exception):
            raise hidden from None
        raise


def start_for(path: str, thread: threading.Thread) -> None:
    """Start a thread that works for the log dir at `path`.

    Raises:
        LogDirError: retriable; the process cannot start more threads.
    """
    try:
        start(thread)
    except RuntimeError as error:
        reason = (
            f"this process cannot start a thread ({error}), and its disk is not at fault; raise "
            "the limit (ulimit -u, or pids.max of the container) or end some threads, then try "
            "again"
        )
        raise LogDirError(path=path, reason=reason, retriable=True) from error
