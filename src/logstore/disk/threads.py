"""Start a thread, or say what to do if this process can start no more."""

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
    """A thread whose start fails, instead of hanging, if it has no memory for its first step.

    `threading.Thread.start` waits until the new thread reports that it runs. A thread that ends
    before that, with a MemoryError, never reports it, and the caller waits for good (CPython
    gh-140746). Here the caller also sees the end: when the thread drops its target, `_ended` gets
    an item, by one call in C that allocates nothing.
    """

    def start(self) -> None:
        """Start it.

        Raises:
            RuntimeError: the process has no room for another thread, or no memory for it.
        """
        self._ended: deque[object] = deque()
        self._started = _Started(self._ended)
        try:
            super().start()
        except _NeverBeganError:
            # where threads that are starting are listed
            getattr(threading, "_limbo", {}).pop(self, None)
            self._ident = None
            raise

    @property
    def _bootstrap(self) -> Callable[[], None]:
        """Run in the new thread; no other code refers to it while it runs."""
        run: Any = vars(threading.Thread)["_bootstrap"]
        first_step: Callable[[], None] = partial(run, self)
        self._end: Any = ref(first_step, self._ended.append)
        return first_step


class _NeverBeganError(RuntimeError):
    """Raised for a thread that was made and ended before it could run."""


class _Started(threading.Event):
    """Lets a caller wait until a thread runs, or learn that it will never run."""

    def __init__(self, ended: deque[object]) -> None:
        super().__init__()
        self._ended = ended

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the thread; raises RuntimeError if it ended without running."""
        while not super().wait(LOOK_SECONDS):
            if self._ended and not self.is_set():
                raise _NeverBeganError("can't start new thread: no memory for it")
        return True


def start(thread: threading.Thread) -> None:
    """Start a thread.

    Raises:
        RuntimeError: the process has as many threads as it is allowed.
        KeyboardInterrupt: it came during the start; the thread may have started or not. (Inside a
            Condition of Python's the interrupt turns into a RuntimeError about a lock.)
    """
    try:
        thread.start()
    except RuntimeError as error:
        hidden = error.__context__
        if hidden is not None and not isinstance(hidden, Exception):
            raise hidden from None
        raise


def start_for(path: str, thread: threading.Thread) -> None:
    """Start a thread that the log dir at `path` needs.

    Raises:
        LogDirError: retriable; the process has as many threads as it is allowed.
    """
    try:
        start(thread)
    except RuntimeError as error:
        reason = (
            f"this process cannot start a thread ({error}), its disk is not to blame; raise the "
            "limit (ulimit -u, or pids.max of the container) or end some threads, then try again"
        )
        raise LogDirError(path=path, reason=reason, retriable=True) from error
