"""Handle a store that was dropped without a close: give a warning, and release everything.

While a thread of a store waits, it does not refer to the store. So the garbage collector finds a
store that is no longer used, and calls this module in any thread. A log, a mover, an appender and a
reader refer to their store. While one of these objects is in use, the store stays open. An appender
counts as in use while it has records to send.

This module writes nothing: the next open recovers the logs, as after a crash. This module waits for
nothing, because the thread in which the collector runs may hold any lock.

If the process ends with an open store, Python may drop the store at that time. At the end of the
process, this module only gives the warning, as Python does for an open file or socket. All other
threads have stopped, and a stopped thread may hold a lock for ever. The operating system closes the
descriptors.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple, ParamSpec
from weakref import WeakMethod

if TYPE_CHECKING:
    from logstore.store.state import OwnerState

Arguments = ParamSpec("Arguments")
DROPPED = "the store was dropped without a close"


class Place(NamedTuple):
    """A line of the user's code that opened a store."""

    path: str
    line: int


class Dropping:
    """Handle the drop of a store; an instance must not refer to its `LogStore`.

    Args:
        opened_at: the line of the user's code that opened the store, for the warning.
    """

    def __init__(self, state: OwnerState, opened_at: Place) -> None:
        self._state = state
        self._opened_at = opened_at

    def dropped(self, *, is_exiting: bool) -> None:
        """Handle the drop of an open store. If the process is ending, globals may be gone."""
        if not is_exiting:
            let_go(self._state, self._opened_at)
            return
        with suppress(AttributeError, TypeError):  # at the end of the process, modules may be gone
            text = "was still open when the process ended: the next open recovers it"
            _warn(self._state, self._opened_at, text)


def calling_place() -> Place:
    """Find the line of the user's code that called this library, without reading source files."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("logstore."):
        frame = frame.f_back
    return (
        Place("<unknown>", 0) if frame is None else Place(frame.f_code.co_filename, frame.f_lineno)
    )


def weakly(method: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Make a callback from a method; the callback does not keep the method's object alive.

    If the object does not exist any more, the callback does nothing.
    """
    entry = WeakMethod(method)

    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> None:
        bound = entry()
        if bound is not None:
            bound(*arguments, **options)

    return call


def let_go(state: OwnerState, opened_at: Place) -> None:
    """Release the locks of the log dirs, end the threads, then give the warning."""
    state.closed, state.failures.is_armed = DROPPED, False
    for log_dir in state.replicas.log_dirs:
        log_dir.release()
        log_dir.leave()
    for keeper in list(state.keepers.values()):
        keeper.stop()
    state.watchdog.leave()
    state.admin.leave()
    text = "was dropped without a close: its log dirs are unlocked, and the next open recovers them"
    _warn(state, opened_at, text)


def _warn(state: OwnerState, opened_at: Place, what: str) -> None:
    paths = ", ".join(state.log_dirs)
    warnings.warn_explicit(
        f"the store of {paths}, opened at {opened_at.path}:{opened_at.line}, {what}; "
        "call close(), or open it in a with statement",
        ResourceWarning,
        opened_at.path,
        opened_at.line,
        source=state,
    )
