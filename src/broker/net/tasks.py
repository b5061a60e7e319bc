"""Call tasks of other packages in the threads of the server, now or later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.net.poller import Poller
from broker.net.workers import Task, Workers


class Tasks:
    """The scheduler of a server (`broker.machines.exchange.Scheduler`)."""

    def __init__(self, poller: Poller, workers: Workers) -> None:
        self._poller = poller
        self._workers = workers

    def submit(self, task: Task) -> None:
        """Call a task soon, in a thread. The task must not raise an error."""
        self._workers.submit(task)

    def call_at(self, deadline: float, task: Task) -> object:
        """Call a task at a time of `time.monotonic`; return a timer for `cancel`."""
        return self._poller.set_timer(deadline, task)

    def each_second(self, on_tick: Callable[[float], object]) -> None:
        """Call a function about once a second, in the poller's thread. It must not wait."""
        self._poller.each_second(on_tick)

    def cancel(self, timer: Any) -> None:
        """Forget the task of a timer, if it was not called yet. `timer` may be None."""
        self._poller.cancel(timer)
