"""Start a thread, or say what to do if this process can have no more of them."""

from __future__ import annotations

import threading

from logstore.errors import LogDirError


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
