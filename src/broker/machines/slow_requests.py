"""Remember the latest slow requests, and describe them."""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

from broker.machines.request_times import slowness_of
from broker.wire.schemas import api_names

KEPT_MAX = 50


class SlowRequest(NamedTuple):
    """A request that took longer than the limit.

    Attributes:
        at: the time of the answer, in seconds since the epoch.
        seconds: the time in each phase of `request_times.PHASES`.
    """

    at: float
    api: str
    address: str
    seconds: tuple[float, ...]


class SlowRequests:
    """Keep the latest slow requests of a server.

    Threads: any thread may call any method. The deque is never iterated, only copied.
    """

    def __init__(self, limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds
        self._kept: deque[SlowRequest] = deque(maxlen=KEPT_MAX)

    def take(self, key: int, address: str, phases: tuple[float, float, float, float]) -> str:
        """If a request was slow, store it and return its description; otherwise return ""."""
        slowness = slowness_of(phases, self._limit_seconds)
        if not slowness:
            return ""
        name = api_names().get(key, str(key))
        self._kept.append(SlowRequest(time.time(), name, address, phases))
        return f"{name} of {address}: {slowness}"

    def snapshot(self) -> list[SlowRequest]:
        """Return the slow requests, the latest last."""
        return list(self._kept.copy())
