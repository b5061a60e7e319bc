"""Register calls to a disk while they are under way, so that a hang is noticed.

    with call(path): ...        an ordinary call
    with call(path, SYNCING):   one that waits for the disk to write

A call is an entry in one set, which a watchdog reads. It takes no lock. An append costs less: it
stores its write position in the log (see `log.custody`).

Ctrl-C may come between the lines here, and keep a call from being removed. So the set does not keep
calls alive: a call whose thread has left it does not count, and no disk is reported as hanging
because of it.

If a process is stopped, or its machine is paused or asleep, all its calls are old when it
continues, and no disk is to blame. A thread that checks ages therefore waits in short steps,
`wait_awake`: a wait that takes far too long shows such a nap, and naps are left out of every age.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Self, TypeVar
from weakref import ref

Waited = TypeVar("Waited")

# How much longer than an ordinary call these may take.
SYNCING = 3.0
WORKING = 12.0

NAP_SECONDS_MIN = 1.0  # a wait may be late by less, on a busy machine
NAPS_MAX = 64


class call:  # noqa: N801 - it is used as a statement
    """One call under way, to something below `path`; a context manager."""

    __slots__ = ("__weakref__", "_entry", "path", "patience", "since")

    def __init__(self, path: str, patience: float = 1.0) -> None:
        self.path = path
        self.patience = patience
        self.since = 0.0

    def __repr__(self) -> str:
        return f"call({self.path!r}, {self.patience})"

    def __enter__(self) -> Self:
        """Register the call."""
        self.since = time.monotonic()
        entry: ref[call] = ref(self)
        under_way.add(entry)
        self._entry = entry
        return self

    def __exit__(self, *_: object) -> None:
        """Unregister it."""
        under_way.discard(self._entry)

    def beat(self) -> None:
        """Report progress: one call of many returned."""
        self.since = time.monotonic()


# Changed by the threads that call; a thread that iterates copies it first.
under_way: set[ref[call]] = set()


def calls_under_way() -> list[call]:
    """Give the current calls, and remove those that no thread is in any more."""
    found = []
    for entry in tuple(under_way):
        one = entry()
        if one is None:
            under_way.discard(entry)
        else:
            found.append(one)
    return found


def calls_to(path: str) -> list[call]:
    """Give the current calls to something at or below `path`."""
    below = path + "/"
    return [one for one in calls_under_way() if one.path == path or one.path.startswith(below)]


def longest_seconds(path: str) -> float:
    """Say how long the oldest call to something below `path` has been under way; 0.0: none is."""
    now = time.monotonic()
    return max((awake_seconds(one.since, now) for one in calls_to(path)), default=0.0)


# --- time in which this process did not run -------------------------------------------------------

# The start and end of each nap, in order; monotonic seconds.
naps: deque[tuple[float, float]] = deque(maxlen=NAPS_MAX)
_noting = threading.Lock()


def wait_awake(wait: Callable[[float], Waited], seconds: float) -> Waited:
    """Wait for a short time, by `wait`, and record how much longer it took than a wait can."""
    due = time.monotonic() + seconds
    waited = wait(seconds)
    now = time.monotonic()
    if now - due > NAP_SECONDS_MIN:
        with _noting:
            _note_nap(due, now)
    return waited


def _note_nap(since: float, until: float) -> None:
    while naps and naps[-1][1] > since:  # another thread saw the same nap, or parts of it
        since = min(since, naps.pop()[0])
    naps.append((since, until))


def awake_seconds(since: float, now: float) -> float:
    """Say how long this process ran between two moments of the monotonic clock."""
    asleep = sum(max(0.0, min(end, now) - max(start, since)) for start, end in tuple(naps))
    return now - since - asleep


def _forget() -> None:
    """Start again in a child: its parent's threads do not exist there."""
    global _noting  # noqa: PLW0603 - the parent's may have been held
    under_way.clear()
    _noting = threading.Lock()


os.register_at_fork(after_in_child=_forget)
