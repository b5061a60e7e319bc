"""Measure by how much a rate is exceeded. Each shared rate has one token bucket.

A bucket fills at the rate, up to rate * BURST_SECONDS. After a request was executed, its amount is
taken from the bucket, even if the bucket becomes negative. Then the client must wait until the
bucket is at zero again. So over any time T, a client gets at most rate * (T + BURST_SECONDS) plus
the amount of the last request. If several clients share the rate, the amount of the last request of
each client is added. No wait is longer than the longest wait of the bucket; the rest of the wait is
forgotten.
"""

from __future__ import annotations

BURST_SECONDS = 0.25
# One answer delays a client at most this long.
# If the longest wait were short, many clients that share a rate could exceed the rate.
# The reason is that each of these clients gets one request executed in this time.
# But a client whose rate was too low by mistake should work again after some minutes.
THROTTLE_SECONDS_MAX = 900.0


class Bucket:
    """The tokens of one rate. The caller must hold a lock, and must use a monotonic clock.

    Invariant: `-rate * seconds_max <= _tokens <= rate * BURST_SECONDS`.

    Args:
        seconds_max: the longest wait.
    """

    __slots__ = ("_at", "_seconds_max", "_tokens", "rate")

    def __init__(self, rate: float, now: float, seconds_max: float = THROTTLE_SECONDS_MAX) -> None:
        self.rate = rate
        self._seconds_max = seconds_max
        self._tokens = rate * BURST_SECONDS
        self._at = now

    def take(self, amount: float, now: float) -> float:
        """Take an amount; return the seconds that the client must wait."""
        assert amount >= 0
        self._fill(now)
        self._tokens = max(self._tokens - amount, -self.rate * self._seconds_max)
        return min(max(-self._tokens / self.rate, 0.0), self._seconds_max)

    def change_rate(self, rate: float, now: float) -> None:
        """Use another rate from now on. The time that the client must still wait stays the same."""
        self._fill(now)
        self._tokens *= rate / self.rate
        self.rate = rate

    def is_full(self, now: float) -> bool:
        """Report whether the bucket is as full as a new bucket."""
        self._fill(now)
        return self._tokens >= self.rate * BURST_SECONDS

    def _fill(self, now: float) -> None:
        now = max(now, self._at)  # a thread may call this later with an earlier time
        self._tokens = min(self._tokens + (now - self._at) * self.rate, self.rate * BURST_SECONDS)
        self._at = now
