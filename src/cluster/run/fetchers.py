"""Keep one fetcher for each pair of a leader broker and a log dir of this broker."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cluster.run.fetcher import Fetcher
from cluster.run.hosted_replica import HostedReplica
from cluster.run.peer_connection import PeerConnection
from cluster.throttle.replication_throttle import ReplicationThrottle
from cluster.wire.follower_fetches import FetchLimits

Pair = tuple[int, str]  # a leader broker, and a log dir of this broker


class Fetchers:
    """The fetchers of a broker. A fetcher exists while a replica needs it.

    Threads: any thread may call any method. Only `close` waits for a fetcher.
    """

    def __init__(
        self,
        connect: Callable[[int], PeerConnection],
        limits: FetchLimits,
        clock: Callable[[], float],
        throttle: ReplicationThrottle,
    ) -> None:
        """Begin without fetchers.

        Args:
            connect: makes a new connection to a broker. The connection is opened when it is first
                used.
        """
        self._connect = connect
        self._limits = limits
        self._clock = clock
        self._throttle = throttle
        self._lock = threading.Lock()  # guards the next three fields
        self._fetchers: dict[Pair, Fetcher] = {}
        self._pairs: dict[HostedReplica, Pair] = {}
        self._is_closed = False

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs for which this broker fetches now: a leader, and a log dir with replicas."""
        return tuple(self._fetchers)

    def follow(
        self, replica: HostedReplica, leader: int, log_dir: str, *, is_new_role: bool = True
    ) -> None:
        """Fetch for a replica from a leader. If a fetcher does this already, fetch at once."""
        pair = leader, log_dir
        with self._lock:
            if self._is_closed:
                return
            if self._pairs.get(replica) != pair:
                self._leave(replica)
            fetcher = self._fetchers.get(pair)
            if fetcher is None:
                name, connection = f"{leader}-{log_dir}", self._connect(leader)
                fetcher = Fetcher(
                    leader, name, connection, self._limits, self._clock, self._throttle
                )
                self._fetchers[pair] = fetcher
            self._pairs[replica] = pair
            fetcher.add(replica, is_new_role=is_new_role)

    def leave(self, replica: HostedReplica) -> None:
        """Stop fetching for a replica."""
        with self._lock:
            self._leave(replica)

    def close(self, timeout: float | None = None) -> None:
        """End all fetchers, and wait until their threads have ended."""
        with self._lock:
            self._is_closed = True
            fetchers = list(self._fetchers.values())
            self._fetchers.clear()
            self._pairs.clear()
        for fetcher in fetchers:
            fetcher.end()
        for fetcher in fetchers:
            fetcher.join(timeout)

    def _leave(self, replica: HostedReplica) -> None:
        pair = self._pairs.pop(replica, None)
        if pair is None:
            return
        fetcher = self._fetchers[pair]
        fetcher.remove(replica)
        if not fetcher.count:
            del self._fetchers[pair]
            fetcher.end()
