"""Decide which warnings are logged, so that a client in a loop does not fill the log."""

from __future__ import annotations

INTERVAL_SECONDS = 10.0


class Complaints:
    """Warnings by kind; of each kind one is logged in an interval, with the number left out.

    The caller holds a lock of its own during each call.
    """

    def __init__(self, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self.interval_seconds = interval_seconds
        self._last: dict[str, tuple[float, int]] = {}  # by kind: time of the last, left out since

    def take(self, kind: str, now: float) -> int | None:
        """Return how many of a kind were left out before this one; None: leave this one out, too.

        Args:
            kind: one of a few texts, so that memory has a bound.
        """
        logged, left_out = self._last.get(kind, (now - self.interval_seconds, 0))
        if now - logged < self.interval_seconds:
            self._last[kind] = (logged, left_out + 1)
            return None
        self._last[kind] = (now, 0)
        return left_out
