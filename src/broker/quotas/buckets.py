"""Measure by how much a rate is exceeded. Each shared rate has one token bucket.

A bucket fills at the rate, up to rate * BURST_SECONDS. After a request was executed, it takes its
amount from the bucket, even if the bucket becomes negative. Then the client must wait until the
bucket is at zero again. So over any time T, the client gets at most rate * (T + BURST_SECONDS) plus
the amount of the last request.
"""

from __future__ import annotations

BURST_SECONDS = 0.25
# One answer delays a client at most this long. The next request of the client waits for the rest.
# Clients give up a request after 30 s or more. So after a longer wait, they would assume that the
# broker is dead.
THROTTLE_SECONDS_MAX = 20.0


class Bucket:
    """The tokens of one rate. The caller must hold a lock, and must use a monotonic clock.

    Invariant: `_tokens <= rate * BURST_SECONDS`.
    """

    __slots__ = ("_at", "_tokens", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._tokens = rate * BURST_SECONDS
        self._at = now

    def take(self, amount: float, now: float) -> float:
        """Take an amount; return the seconds that the client must wait."""
        assert amount >= 0
        self._fill(now)
        self._tokens -= amount
        return min(max(-self._tokens / self.rate, 0.0), THROTTLE_SECONDS_MAX)

    def change_rate(self, rate: float, now: float) -> None:
        """Use another rate from now on. The remaining wait of the client stays the same."""
        self._fill(now)
        self._tokens *= rate / self.rate
        self.rate = rate

    def is_full(self, now: float) -> bool:
        """Report whether the bucket is as full as a new bucket."""
        self._fill(now)
        return self._tokens >= self.rate * BURST_SECONDS

    def _fill(self, now: float) -> None:
        now = max(now, self._at)  # a thread with an earlier time may come later
        self._tokens = min(self._tokens + (now - self._at) * self.rate, self.rate * BURST_SECONDS)
        self._at = now
