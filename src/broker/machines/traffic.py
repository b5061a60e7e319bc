"""Count the records that clients append to each topic, and read from each topic."""

from __future__ import annotations

import threading
from typing import NamedTuple


class Gauge(NamedTuple):
    """A present value for Prometheus, with its name and help text."""

    name: str
    text: str
    value: float


class TopicTraffic(NamedTuple):
    """The counters of one topic."""

    bytes_in: int = 0
    messages_in: int = 0
    bytes_out: int = 0
    produce_requests: int = 0
    fetch_requests: int = 0
    failed_produce_requests: int = 0
    failed_fetch_requests: int = 0


class Traffic:
    """The counters of all topics to which clients appended, or which they read.

    Deleted topics have no counters.

    Threads: any thread may call any method. `_lock` is held only for a short time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[str, list[int]] = {}

    def appended(self, topic: str, size_bytes: int, messages: int) -> None:
        """Count a batch that was appended."""
        with self._lock:
            counts = self._of(topic)
            counts[0] += size_bytes
            counts[1] += messages
            counts[3] += 1

    def read(self, topic: str, size_bytes: int) -> None:
        """Count the records of a partition in an answer to Fetch."""
        with self._lock:
            counts = self._of(topic)
            counts[2] += size_bytes
            counts[4] += 1

    def refused(self, topic: str | None, *, is_fetch: bool) -> None:
        """Count a refused append or read of a partition. Skip topics without counters."""
        with self._lock:
            counts = None if topic is None else self._topics.get(topic)
            if counts is not None:
                counts[6 if is_fetch else 5] += 1

    def forget(self, topic: str) -> None:
        """Forget a topic."""
        with self._lock:
            self._topics.pop(topic, None)

    def snapshot(self) -> dict[str, TopicTraffic]:
        """Return the counters by topic."""
        with self._lock:
            return {topic: TopicTraffic(*counts) for topic, counts in self._topics.items()}

    def _of(self, topic: str) -> list[int]:
        counts = self._topics.get(topic)
        if counts is None:
            counts = self._topics[topic] = [0] * len(TopicTraffic._fields)
        return counts
