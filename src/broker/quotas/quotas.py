"""Hold the quotas, and charge requests to them.

    quotas.settings = {Entity("alice", None): {"producer_byte_rate": 1e6}}
    quotas.charge("producer_byte_rate", "alice", "app-1", 65_536, now) -> 0.04 seconds

The settings are replaced as a whole. When a request is charged, its bucket is made if it does not
exist. When the bucket is full again, it is dropped. So the memory grows with the number of recently
active clients, up to `BUCKETS_MAX` buckets.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from itertools import islice
from typing import NamedTuple

from broker.quotas.buckets import BURST_SECONDS, THROTTLE_SECONDS_MAX, Bucket
from broker.quotas.entities import Entity, Sharer, candidates_of

PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
KEYS = (PRODUCE, FETCH, REQUEST)
# A request that had to wait for a disk may have taken much of the time.
# As in Kafka, such a request delays its client only for a short time.
SECONDS_MAX = {REQUEST: 20.0}
# Clients may set any rate above 0, but a bucket uses a rate in this range.
# A client cannot notice the difference.
# With other rates, the tokens of the bucket could become infinite, or not a number.
RATE_MIN, RATE_MAX = 1e-9, 1e18
BUCKETS_MAX = 100_000  # a bucket and its key take about 500 bytes

LOOKED_AT = 4  # when a new bucket is made, this many old buckets are checked
CLIENT_ID_CHARACTERS_MAX = 256  # if a client id is longer, only its hash is kept

Settings = Mapping[Entity, Mapping[str, float]]


def shortened(client_id: str) -> str:
    """Return a client id that takes little memory. Two different ids stay different."""
    if len(client_id) <= CLIENT_ID_CHARACTERS_MAX:
        return client_id
    return sha256(client_id.encode("utf-8", "surrogatepass")).hexdigest()


class _BucketKey(NamedTuple):
    """The key of a bucket: the key of the quota, and the requests that share its rate."""

    quota: str
    sharer: Sharer


class Quotas:
    """The quotas of one broker.

    Threads: any thread may call any method. `_lock` guards the buckets. The lock is held only for a
    short time.
    """

    def __init__(self) -> None:
        self._settings: Settings = {}
        self._lock = threading.Lock()
        # the bucket that was used last is at the end
        self._buckets: OrderedDict[_BucketKey, Bucket] = OrderedDict()

    @property
    def settings(self) -> Settings:
        """The present quotas."""
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def is_active(self) -> bool:
        """Whether any quota is set."""
        return bool(self._settings)

    @property
    def bucket_count(self) -> int:
        """The number of buckets in memory."""
        return len(self._buckets)

    def rate_for(self, quota: str, user: str, client_id: str) -> float | None:
        """Return the rate that applies to a client; None if the client has no limit."""
        found = self._find(quota, user, client_id)
        return None if found is None else found[1]

    def charge(self, quota: str, user: str, client_id: str, amount: float, now: float) -> float:
        """Charge an amount to the rate of a client; return the seconds that the client must wait.

        Args:
            now: the seconds of a monotonic clock.
        """
        found = self._find(quota, user, shortened(client_id))
        if found is None:
            return 0.0
        key, rate = _BucketKey(quota, found[0]), found[1]
        with self._lock:
            bucket = self._buckets.get(key)
            if bucket is None:
                self._drop_full(now)
                longest = SECONDS_MAX.get(quota, THROTTLE_SECONDS_MAX)
                bucket = self._buckets[key] = Bucket(rate, now, longest)
            elif bucket.rate != rate:
                bucket.change_rate(rate, now)
            self._buckets.move_to_end(key)
            return bucket.take(amount, now)

    def burst_for(self, quota: str, user: str, client_id: str) -> int | None:
        """Return the largest amount that one request should take; None if there is no limit."""
        rate = self.rate_for(quota, user, client_id)
        return None if rate is None else max(int(rate * BURST_SECONDS), 1)

    def _find(self, quota: str, user: str, client_id: str) -> tuple[Sharer, float] | None:
        settings = self._settings
        if not settings:
            return None
        for sharer in candidates_of(user, client_id):
            rate = settings.get(sharer.entity, {}).get(quota)
            if rate is not None:
                return sharer, min(max(rate, RATE_MIN), RATE_MAX)
        return None

    def _drop_full(self, now: float) -> None:
        """Drop full buckets. If there are too many buckets, drop the least recently used one.

        Only a few buckets are checked, the least recently used first. So no request waits long.
        """
        oldest = list(islice(self._buckets.items(), LOOKED_AT))
        for key, bucket in oldest:
            if bucket.is_full(now):
                del self._buckets[key]
        if len(self._buckets) >= BUCKETS_MAX:
            del self._buckets[next(iter(self._buckets))]
