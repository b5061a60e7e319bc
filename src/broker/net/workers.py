"""Run tasks in threads: as many as there are tasks that run at once, up to a limit.

A thread whose disk hangs is lost until the disk answers. The others are not affected, because a
task never waits for a thread that is busy, unless the limit is reached.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

IDLE_SECONDS = 10.0  # how long a thread waits for its next task before it ends

Task = Callable[[], None]


class Workers:
    """A set of threads that grows and shrinks.

    Threads: any thread may call any method. The lock of `_changed` guards all fields.

    Attributes:
        count: the number of threads.
        waiting: the number of threads without a task.
    """

    def __init__(self, threads_max: int, idle_seconds: float = IDLE_SECONDS) -> None:
        self.threads_max = threads_max
        self.idle_seconds = idle_seconds
        self.count = 0
        self.waiting = 0
        self._is_ended = False
        self._tasks: deque[Task] = deque()
        self._changed = threading.Condition(threading.Lock())

    def submit(self, task: Task) -> None:
        """Run a task in a thread of its own; it must not raise."""
        with self._changed:
            self._tasks.append(task)
            is_new = len(self._tasks) > self.waiting and self.count < self.threads_max
            self.count += is_new
            self._changed.notify()
        if is_new:
            thread = threading.Thread(target=self._run, name="broker-worker", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads in this process: the next free one runs the task
                with self._changed:
                    self.count -= 1

    def end(self) -> None:
        """Let each thread end when no task is left."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    def _run(self) -> None:
        task = self._next()
        while task is not None:
            task()
            del task  # it refers to a connection, and the thread may wait for long
            task = self._next()

    def _next(self) -> Task | None:
        """Wait for the next task; None: this thread is to end."""
        is_awake = True
        while True:
            with self._changed:
                if self._tasks:
                    return self._tasks.popleft()
                if self._is_ended or not is_awake:
                    self.count -= 1
                    return None
                self.waiting += 1
                try:
                    is_awake = self._changed.wait(self.idle_seconds)
                finally:
                    self.waiting -= 1
