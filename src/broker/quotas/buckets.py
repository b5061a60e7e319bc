"""Measure how far a rate is exceeded, with one token bucket for each shared rate.

A bucket fills at the rate, up to rate * BURST_SECONDS. A request takes its amount after it was
executed, even if the bucket becomes negative. Then the client has to wait until the bucket is at
zero again. So over any time T, the client gets at most rate * (T + BURST_SECONDS) plus the amount
of the last request.
"""

from __future__ import annotations

BURST_SECONDS = 0.25
# One answer delays a client at most this long; the next request of the client waits for the rest.
# Clients give up a request after 30 s or more, so a longer wait would make the broker look dead.
THROTTLE_SECONDS_MAX = 20.0


class Bucket:
    """The tokens of one rate. The caller must hold a lock, and its clock must not go back.

    Invariant: `_tokens <= rate * BURST_SECONDS`.
    """

    __slots__ = ("_at", "_tokens", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._tokens = rate * BURST_SECONDS
        self._at = now

    def take(self, amount: float, now: float) -> float:
        """Take an amount; return for how many seconds the client has to wait."""
        assert amount >= 0
        self._fill(now)
        self._tokens -= amount
        return min(max(-self._tokens / self.rate, 0.0), THROTTLE_SECONDS_MAX)

    def change_rate(self, rate: float, now: float) -> None:
        """Use another rate from now on; the remaining wait of the client stays the same."""
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
