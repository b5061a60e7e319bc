"""Limit the rate at which a broker sends bytes to followers, or fetches bytes as a follower.

    topic settings   which replicas are throttled
    broker settings  leader.replication.throttled.rate, follower.replication.throttled.rate
    the ISR          a replica in sync is never throttled, because producers wait for it (KIP-73)

Both limits are token buckets (`broker/quotas/buckets`). If more bytes were sent than a rate allows,
the next bytes wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import Enum

from broker.quotas.buckets import BURST_SECONDS, Bucket
from cluster.throttle.throttled_replicas import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    NONE,
    ThrottledReplicas,
    parse,
)

WAIT_SECONDS_MAX = 20.0


class Side(Enum):
    """The leader or the follower. Each side has settings for its rate and its replicas."""

    LEADER = "leader.replication.throttled.rate", LEADER_REPLICAS
    FOLLOWER = "follower.replication.throttled.rate", FOLLOWER_REPLICAS

    @property
    def rate_key(self) -> str:
        """The name of the broker's setting."""
        return self.value[0]

    @property
    def replicas_key(self) -> str:
        """The name of the topic's setting."""
        return self.value[1]


class ReplicationThrottle:
    """The limits of one broker.

    Until the settings of the topics are known, each replica counts as throttled, so that a broker
    does not exceed the rate at its start.

    Threads: any thread may call any method. `_lock` guards the buckets, and is held only for a
    short time. Each change of `_replicas` replaces one entry of a dict, so a reader needs no lock.
    """

    def __init__(
        self, broker: int, is_in_sync: Callable[[str, int, int], bool], clock: Callable[[], float]
    ) -> None:
        """Begin without limits.

        Args:
            is_in_sync: returns whether a broker is in the ISR of a topic's partition.
        """
        self._broker, self._is_in_sync, self._clock = broker, is_in_sync, clock
        self._lock = threading.Lock()
        self._buckets: dict[Side, Bucket] = {}
        self._is_known = False
        self._replicas: dict[Side, dict[str, ThrottledReplicas]] = {one: {} for one in Side}

    def set_rate(self, side: Side, rate: int | None) -> None:
        """Set the bytes per second of one side; None means no limit."""
        with self._lock:
            if rate is None:
                self._buckets.pop(side, None)
            elif side in self._buckets:
                self._buckets[side].change_rate(rate, self._clock())
            else:
                self._buckets[side] = Bucket(rate, self._clock())

    def set_topic(self, name: str, settings: Mapping[str, str]) -> None:
        """Set which replicas of a topic are throttled.

        If a value cannot be read, throttle no replica.
        """
        for side in Side:
            try:
                found = parse(settings.get(side.replicas_key, ""))
            except ValueError:
                found = NONE
            if found == NONE:
                self._replicas[side].pop(name, None)
            else:
                self._replicas[side][name] = found

    def settings_are_known(self) -> None:
        """Use the settings of the topics from now on. All settings must already be read."""
        self._is_known = True

    def sends(self, name: str, partition: int, follower: int) -> bool:
        """Report whether this leader limits the bytes that it sends to a follower."""
        return self._counts(Side.LEADER, name, partition, follower)

    def fetches(self, name: str, partition: int) -> bool:
        """Report whether this follower limits the bytes that it fetches for its replica."""
        return self._counts(Side.FOLLOWER, name, partition, self._broker)

    def _counts(self, side: Side, name: str, partition: int, follower: int) -> bool:
        if side not in self._buckets:
            return False
        listed = self._replicas[side].get(name, NONE)
        is_listed = not self._is_known or listed.has(partition, self._broker)
        return is_listed and not self._is_in_sync(name, partition, follower)

    def wait_of(self, side: Side) -> float:
        """Return the seconds until the next bytes may be sent or fetched.

        The caller asks again after at most `WAIT_SECONDS_MAX`, because the rate may be higher then.
        """
        return min(self._take(side, 0), WAIT_SECONDS_MAX)

    def take(self, side: Side, size_bytes: int) -> None:
        """Count bytes that were sent or fetched."""
        self._take(side, size_bytes)

    def burst_bytes(self, side: Side) -> int:
        """Return the largest number of bytes that one answer should have."""
        bucket = self._buckets.get(side)
        return 1 << 62 if bucket is None else max(int(bucket.rate * BURST_SECONDS), 1)

    def _take(self, side: Side, size_bytes: int) -> float:
        with self._lock:
            bucket = self._buckets.get(side)
            return 0.0 if bucket is None else bucket.take(size_bytes, self._clock())
