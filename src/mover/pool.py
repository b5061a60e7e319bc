"""Run moves in a few threads, which start with the first move and end when the pool is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import ref

from logstore.arguments import whole
from logstore.disk.threads import Thread, start_for
from logstore.errors import LogDirError

Task = TypeVar("Task")

NUM_REPLICA_MOVE_THREADS = 2
# At this interval, a waiting thread checks whether its pool is still in use.
IDLE_SECONDS = 5.0


class ReplicaMoveThreadPool(Generic[Task]):
    """Run `num.replica.move.threads` ReplicaMoveThreads (KIP-113, section 2).

    Args:
        take: returns the next task, or None if no task is allowed to run now.
        run: runs a task; if the task raises an error, the thread continues.
        changed: a condition that is notified when `take` can return a task again.
        failed: called with the error that `run` raised.
        path: if no thread can be started, the error names this log dir.
    """

    def __init__(
        self,
        count: int,
        take: Callable[[], Task | None],
        run: Callable[[Task], None],
        changed: threading.Condition,
        failed: Callable[[Task, Exception], None],
        path: str,
    ) -> None:
        self.count = whole(count, "num_replica_move_threads", 1)
        self._take, self._run, self._failed = take, run, failed
        self._changed, self._path = changed, path
        self._threads: list[threading.Thread] = []
        self._wakeups = 0
        self._is_closed = False

    def wake(self) -> None:
        """Wake the threads, so that they look for a task.

        Raises:
            LogDirError: the pool has no thread, and no thread can be started. The error is
                retriable.
        """
        with self._changed:
            self._wakeups += 1
            if not self._is_closed and len(self._threads) < self.count:
                name = f"ReplicaMoveThread-{len(self._threads)}"
                thread = Thread(
                    target=_work, args=(ref(self), self._changed), name=name, daemon=True
                )
                try:
                    start_for(self._path, thread)
                except LogDirError:
                    if not self._threads:
                        raise
                else:
                    self._threads.append(thread)
            self._changed.notify_all()

    def wakeups(self) -> int | None:
        """Return how often the threads were woken, or None if the pool is closed."""
        return None if self._is_closed else self._wakeups

    def run_all(self) -> None:
        """Run tasks until `take` returns no task."""
        while (task := self._take()) is not None:
            try:
                self._run(task)
            except Exception as error:  # noqa: BLE001 - the thread continues with the next task
                self._failed(task, error)
            self.wake()

    def close(self) -> None:
        """Take no more tasks, and wait until the running tasks have stopped."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()


def _work(entry: ref[ReplicaMoveThreadPool[Any]], changed: threading.Condition) -> None:
    """Run tasks until the pool ends; a waiting thread refers to neither the mover nor the store."""
    seen = -1
    while True:
        with changed:
            pool = entry()
            wakeups = None if pool is None else pool.wakeups()
            if wakeups is None:
                return
            if wakeups == seen:
                pool = None
                changed.wait(IDLE_SECONDS)
            seen = wakeups if pool is not None else seen
        if pool is not None:
            pool.run_all()
            pool = None
