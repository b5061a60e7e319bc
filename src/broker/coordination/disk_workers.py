"""Call the disks of several log dirs at the same time, and notice a disk that hangs.

A thread that hangs in a call to a disk cannot be stopped. So each log dir has its own thread. If
the other disks have answered and one disk takes much longer, the caller no longer waits for the
thread of this disk. But the call may still change the log dir later. So until the disk has
answered, no store of this process uses the log dir again: see `is_free`.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from broker.coordination.errors import StoreClosedError
from logstore.disk.threads import Thread, start_for

SLICES = 10


class Call:
    """One call to a disk.

    Threads: the worker writes `result` and `error`, and then sets `is_over`. The caller reads both
    fields only after `is_over` is set.
    """

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self.is_over = threading.Event()
        self.result: object = None
        self.error: BaseException | None = None

    def make(self) -> None:
        """Make the call, and store its result or its error."""
        try:
            self.result = self._call()
        except BaseException as error:  # noqa: BLE001 - the caller of `make` raises it
            self.error = error
        self.is_over.set()

    @property
    def is_good(self) -> bool:
        """Whether the disk has answered without an error."""
        return self.is_over.is_set() and self.error is None


# For each log dir, the newest call of its newest worker.
# A forked child process does not have these threads.
_last_calls: dict[str, Call] = {}
os.register_at_fork(after_in_child=_last_calls.clear)


def is_free(path: str, seconds_max: float = 0.0) -> bool:
    """Wait for the last call to a log dir; return False if the call hangs."""
    call = _last_calls.get(os.path.abspath(path))
    return call is None or call.is_over.wait(seconds_max)


class DiskWorker:
    """A thread that makes the calls to one log dir, one after another."""

    def __init__(self, path: str) -> None:
        """Start the thread. Raises LogDirError if the process can start no more threads."""
        self._path = os.path.abspath(path)
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards the order: no call follows the last call
        self._is_ended = False
        self._thread = Thread(target=self._run, name=f"coordination-{path}", daemon=True)
        start_for(path, self._thread)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.make()

    def begin(self, call: Callable[[], object]) -> Call:
        """Queue a call. After `end`, the call fails with StoreClosedError."""
        begun = Call(call)
        with self._lock:
            if self._is_ended:
                begun.error = StoreClosedError()
                begun.is_over.set()
            else:
                self._calls.put(begun)
        return begun

    def end(self, last: Callable[[], object]) -> Call:
        """Queue the last call. The thread ends after this call."""
        begun = Call(last)
        with self._lock:
            self._is_ended = True
            _last_calls[self._path] = begun
            self._calls.put(begun)
            self._calls.put(None)
        return begun


class HangingError(TimeoutError):
    """Report a disk that does not answer, although other disks have answered.

    Attributes:
        call: the call that hangs.
    """

    def __init__(self, path: str, call: Call) -> None:
        super().__init__(errno.ETIMEDOUT, "the disk hangs, but other disks do not", path)
        self.call = call


def ask(
    workers: Mapping[str, DiskWorker],
    calls: Mapping[str, Callable[[], object]],
    seconds_max: float,
) -> tuple[dict[str, Any], dict[str, OSError]]:
    """Call the disks of some log dirs at the same time, and wait as `wait_for` does.

    Returns: The results of the log dirs that have answered, and the errors of all other log dirs.

    Raises:
        StoreClosedError: another thread has ended a worker.
    """
    if not calls.keys() <= workers.keys():
        raise StoreClosedError
    made = {path: workers[path].begin(call) for path, call in calls.items()}
    wait_for(made.values(), seconds_max)
    results: dict[str, Any] = {}
    errors: dict[str, OSError] = {}
    for path, one in made.items():
        if not one.is_over.is_set():
            errors[path] = HangingError(path, one)
        elif isinstance(one.error, OSError):
            errors[path] = one.error
        elif one.error is not None:
            raise one.error
        else:
            results[path] = one.result
    return results, errors


def wait_for(calls: Collection[Call], seconds_max: float) -> None:
    """Wait until all calls are over, or until a call hangs.

    If another disk has answered, and a call is still not over after `seconds_max`, this call hangs.
    If all disks are slow, no call counts as hanging. The time is counted in slices. So if the whole
    process was stopped for a while, this counts as only one slice.
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
