"""Run tasks in threads: one thread for each running task, up to a limit.

If a thread calls a disk that hangs, it can do nothing else until the disk answers. Many tasks can
come at the same time, for example if thousands of requests have waited for the same record. If each
task had a thread, the threads would only compete for the interpreter. So a few threads
(`THREADS_BUSY`) run the tasks one after another. If no task ends for `STALL_SECONDS`, all busy
threads may hang. So more threads are started: 1, 2, 4 and so on, until tasks end again. So after 10
checks, there are enough new threads to replace 1,000 threads that hang.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

IDLE_SECONDS = 10.0  # if a thread has no task for this time, it ends
THREADS_BUSY = 16  # while fewer threads are busy, each task gets a thread at once
STALL_SECONDS = 0.005

Task = Callable[[], None]


class Workers:
    """A set of threads that grows and shrinks.

    Threads: any thread may call any method. The lock of `_changed` guards all fields.

    Attributes:
        count: the number of threads.
        waiting: the number of threads without a task.

    Args:
        call_later: a function that arranges a call of `relieve` after some seconds.
    """

    def __init__(
        self,
        threads_max: int,
        call_later: Callable[[float, Workers], object],
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.threads_max = threads_max
        self.idle_seconds = idle_seconds
        self.count = 0
        self.waiting = 0
        self._call_later = call_later
        self._ended = 0  # the number of tasks that have ended
        # The value of `_ended` at the last check for a stall; None means that no check is due.
        self._seen: int | None = None
        self._relief = 1  # the number of threads to start at the next stall
        self._is_ended = False
        self._tasks: deque[Task] = deque()
        self._changed = threading.Condition(threading.Lock())

    @property
    def is_crowded(self) -> bool:
        """Whether tasks wait for a thread.

        If tasks wait, no thread should wait for a client's bytes.
        """
        return bool(self._tasks)

    def submit(self, task: Task) -> None:
        """Run a task in a thread. The task must not raise an error."""
        with self._changed:
            self._tasks.append(task)
            is_crowded = len(self._tasks) > self.waiting and self.count < self.threads_max
            is_new = is_crowded and self.count - self.waiting < THREADS_BUSY
            is_look_due = is_crowded and not is_new and self._seen is None
            self.count += is_new
            if is_look_due:
                self._seen = self._ended
            self._changed.notify()
        if is_new:
            self._start()
        if is_look_due:
            self._call_later(STALL_SECONDS, self)

    def relieve(self) -> None:
        """If no task has ended since the last check, start twice as many threads as last time."""
        with self._changed:
            missing = min(len(self._tasks) - self.waiting, self.threads_max - self.count)
            is_stalled = self._seen == self._ended
            self._seen = self._ended if missing > 0 else None
            started = min(max(missing, 0), self._relief) if is_stalled else 0
            self._relief = 2 * self._relief if is_stalled else 1
            self.count += started
        for _ in range(started):
            self._start()
        if missing > 0:
            self._call_later(STALL_SECONDS, self)

    def _start(self) -> None:
        """Start a thread that is already counted."""
        thread = threading.Thread(target=self._run, name="broker-worker", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started, so the next free thread runs the task
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
            self._ended += 1  # this is not atomic, but a lost count does no harm
            del task  # the task would keep its connection in memory while the thread waits
            task = self._next()

    def _next(self) -> Task | None:
        """Wait for the next task; return None if this thread must end."""
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
