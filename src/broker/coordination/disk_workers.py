"""Call the disks of several log dirs at the same time, and notice one that hangs.

A thread that hangs in a call of a disk cannot be stopped. So each log dir has a thread of its own,
and its caller stops waiting for it when other disks have answered long ago.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection

from logstore.disk.threads import Thread, start_for

SLICES = 10


class Call:
    """One call of a disk.

    Threads: the worker writes `error` and then sets `is_over`; its caller reads it after that.
    """

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self.is_over = threading.Event()
        self.error: BaseException | None = None

    def make(self) -> None:
        """Make the call, and keep its error."""
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - its caller raises it
            self.error = error
        self.is_over.set()

    @property
    def is_good(self) -> bool:
        """Whether the disk has answered without an error."""
        return self.is_over.is_set() and self.error is None


class DiskWorker:
    """The thread that makes the calls of one log dir, one after another."""

    def __init__(self, path: str) -> None:
        """Start the thread; raises LogDirError if the process can start no more threads."""
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._thread = Thread(target=self._run, name=f"coordination-{path}", daemon=True)
        start_for(path, self._thread)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.make()

    def begin(self, call: Callable[[], object]) -> Call:
        """Queue a call."""
        begun = Call(call)
        self._calls.put(begun)
        return begun

    def end(self, last: Callable[[], object]) -> Call:
        """Queue a last call, after which the thread ends."""
        begun = self.begin(last)
        self._calls.put(None)
        return begun


def wait_for(calls: Collection[Call], seconds_max: float) -> None:
    """Wait until all calls are over, or until some hang.

    A call hangs if it is not over `seconds_max` after another disk has answered. If all disks are
    slow, none of them is to blame. The time is counted in slices: if the whole process was stopped
    for a while, this counts as one slice.
    """
    left = SLICES
    while left > 0:
        running = [call for call in calls if not call.is_over.is_set()]
        if not running:
            return
        if not running[0].is_over.wait(seconds_max / SLICES) and any(
            call.is_good for call in calls
        ):
            left -= 1
