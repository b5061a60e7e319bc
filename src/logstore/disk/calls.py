"""Register calls to a disk while they are running, so that a hang is noticed.

    with call(path): ...        an ordinary call
    with call(path, SYNCING):   a call that waits for the disk to write

A running call is an entry in one set, which a watchdog reads. A call is added to the set without a
lock. An append is not registered, to save time; instead, the append stores its write position in
the log (see `log/write/hung_locks`).

Ctrl-C may interrupt the code of this module before a call is removed from the set. The call would
then look as if it hung. So the set has weak references to the calls: if no thread refers to a call
any more, the set forgets the call.

A process can be stopped, and its machine can be paused or asleep. When the process continues, all
its calls look old, although no disk is slow. A time in which the process does not run is called a
*nap*. A thread that checks the ages of calls waits in short steps with `wait_awake`. If a short
wait takes far too long, the process had a nap. The age of a call does not include the naps of the
process.
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

# These factors lengthen the time limit of a call that syncs, and of a call that does long work.
SYNCING = 3.0
WORKING = 12.0

NAP_SECONDS_MIN = 1.0  # a busy machine can lengthen a wait by up to this much
NAPS_MAX = 64


class call:  # noqa: N801 - the class is used as a statement
    """One running call to a file at or below `path`; this is a context manager."""

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
        """Unregister the call."""
        under_way.discard(self._entry)

    def beat(self) -> None:
        """Report that one of this entry's system calls has returned; set the entry's age to 0."""
        self.since = time.monotonic()


# Threads change this set at any time. So copy the set before you iterate over it.
under_way: set[ref[call]] = set()


def calls_under_way() -> list[call]:
    """Return the running calls, without calls to which no thread refers any more."""
    found = []
    for entry in tuple(under_way):
        one = entry()
        if one is None:
            under_way.discard(entry)
        else:
            found.append(one)
    return found


def calls_to(path: str) -> list[call]:
    """Return the running calls to files at or below `path`."""
    below = path + "/"
    return [one for one in calls_under_way() if one.path == path or one.path.startswith(below)]


def longest_seconds(path: str) -> float:
    """Return the age (s) of the oldest running call to a file at or below `path`.

    If no call is running, return 0.0. The age of a call does not include the naps of the process.
    """
    now = time.monotonic()
    return max((awake_seconds(one.since, now) for one in calls_to(path)), default=0.0)


# --- time in which this process did not run -------------------------------------------------------

# The start and end of each nap, in seconds of the monotonic clock; the oldest nap comes first.
naps: deque[tuple[float, float]] = deque(maxlen=NAPS_MAX)
_noting = threading.Lock()


def wait_awake(wait: Callable[[float], Waited], seconds: float) -> Waited:
    """Wait for a short time by calling `wait`; if this takes far too long, note a nap."""
    due = time.monotonic() + seconds
    waited = wait(seconds)
    now = time.monotonic()
    if now - due > NAP_SECONDS_MIN:
        with _noting:
            _note_nap(due, now)
    return waited


def _note_nap(since: float, until: float) -> None:
    while naps and naps[-1][1] > since:  # another thread noticed this nap, or a part of it
        since = min(since, naps.pop()[0])
    naps.append((since, until))


def awake_seconds(since: float, now: float) -> float:
    """Return how many seconds this process ran between two times of the monotonic clock."""
    asleep = sum(max(0.0, min(end, now) - max(start, since)) for start, end in tuple(naps))
    return now - since - asleep


def _forget() -> None:
    """Forget all calls in a forked child, because the threads of its parent do not exist there."""
    global _noting  # noqa: PLW0603 - a thread of the parent may hold the old lock
    under_way.clear()
    _noting = threading.Lock()


os.register_at_fork(after_in_child=_forget)
