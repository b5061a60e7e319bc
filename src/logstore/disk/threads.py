"""Start a thread, or say what to do if this process can have no more of them."""

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

    `threading.Thread.start` waits until the new thread says that it runs. A thread that ends
    before that, with a MemoryError, never says so, and the caller waits for good (CPython
    gh-140746). Here the caller also sees the end: `_ended` gets an item, by one call in C that
    allocates nothing, when the thread drops what it was to run.
    """

    def start(self) -> None:
        """Start it.

        Raises:
            RuntimeError: the process has no room for a further thread, or no memory for it.
        """
        self._ended: deque[object] = deque()
        self._started = _Started(self._ended)
        try:
            super().start()
        except _NeverBeganError:
            getattr(threading, "_limbo", {}).pop(self, None)  # where those that start are listed
            self._ident = None
            raise

    @property
    def _bootstrap(self) -> Callable[[], None]:
        """What the new thread runs; nobody else refers to it while it does."""
        run: Any = vars(threading.Thread)["_bootstrap"]
        first_step: Callable[[], None] = partial(run, self)
        self._end: Any = ref(first_step, self._ended.append)
        return first_step


class _NeverBeganError(RuntimeError):
    """A thread that was made and ended before it could run."""


class _Started(threading.Event):
    """Let a caller wait until a thread runs, or learn that the thread will never run."""

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
        RuntimeError: the process has as many threads as it may have.
        KeyboardInterrupt: it came here; the thread may have started or not. (Inside a Condition of
            Python's the interrupt turns into a RuntimeError about a lock.)
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
        LogDirError: retriable; the process has as many threads as it may have.
    """
    try:
        start(thread)
    except RuntimeError as error:
        reason = (
            f"this process cannot start a thread ({error}), its disk is not to blame; raise the "
            "limit (ulimit -u, or pids.max of the container) or end some threads, then try again"
        )
        raise LogDirError(path=path, reason=reason, retriable=True) from error
