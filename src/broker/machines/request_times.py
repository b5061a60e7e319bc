"""Measure how long requests take in each of Kafka's phases, and describe slow requests.

queue    from the last byte of the request until a thread executes it
local    while a thread executes the request
remote   while the request waits for something else: records, members, replicas
send     until the client has taken the answer
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import NamedTuple

# The upper bounds of the buckets, in seconds. One more bucket counts all slower requests.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
PHASES = ("queue", "local", "remote", "send")


class RequestClock:
    """The times of one request that is not answered yet.

    Attributes:
        key: the number of the request's API.
        arrived: when the last byte of the request arrived.
        begun: when a thread began to execute the request.
        decided: when the answer was known.
        waiting_since: when the request began to wait; 0.0 if the request did not wait.
    """

    __slots__ = ("arrived", "begun", "decided", "key", "remote", "waiting_since")

    def __init__(self, key: int, arrived: float, now: float) -> None:
        self.key = key
        self.arrived = arrived
        self.begun = self.decided = now
        self.remote = self.waiting_since = 0.0

    def wait(self, now: float) -> None:
        """Remember the time at which the request begins to wait."""
        self.waiting_since = now

    def decide(self, now: float) -> None:
        """Remember the time at which the answer is known."""
        self.decided = now
        if self.waiting_since:
            self.remote = now - self.waiting_since

    def phases(self, now: float) -> tuple[float, float, float, float]:
        """Return the seconds of each phase of a request whose answer has just been sent."""
        local = self.decided - self.begun - self.remote
        return self.begun - self.arrived, local, self.remote, now - self.decided


class ApiTimes(NamedTuple):
    """The number and the times of the requests of one API.

    Attributes:
        counts: the number of requests in each bucket of `BOUNDS`, and the number above the last
            bound.
        seconds: the total time in each of `PHASES`.
    """

    counts: tuple[int, ...]
    seconds: tuple[float, ...]


class RequestTimes:
    """Add up the times of all requests of each API.

    Threads: any thread may call any method. `_lock` is held only for a short time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._apis: dict[int, tuple[list[int], list[float]]] = {}

    def note(self, key: int, phases: tuple[float, float, float, float]) -> None:
        """Count a request that was answered."""
        queue, local, remote, send = phases
        bucket = bisect_left(BOUNDS, queue + local + remote + send)
        with self._lock:
            known = self._apis.get(key)
            if known is None:
                known = self._apis[key] = [0] * (len(BOUNDS) + 1), [0.0] * len(PHASES)
            counts, seconds = known
            counts[bucket] += 1
            seconds[0] += queue
            seconds[1] += local
            seconds[2] += remote
            seconds[3] += send

    def snapshot(self) -> dict[int, ApiTimes]:
        """Return the counts and times so far. The keys are the API numbers."""
        with self._lock:
            apis = [(key, (*counts,), (*seconds,)) for key, (counts, seconds) in self._apis.items()]
        return {key: ApiTimes(counts, seconds) for key, counts, seconds in apis}


def slowness_of(phases: tuple[float, float, float, float], limit_seconds: float) -> str:
    """If a request took longer than a limit, describe it; otherwise return "".

    The phase `remote` is left out, because the client decides how long a request waits for records.
    """
    queue, local, _, send = phases
    if queue + local + send <= limit_seconds:
        return ""
    parts = [f"{name} {seconds:.3f} s" for name, seconds in zip(PHASES, phases, strict=True)]
    return ", ".join(parts)
