"""Limit how often a warning is logged, so that a client cannot fill the log."""

from __future__ import annotations

INTERVAL_SECONDS = 10.0


class Complaints:
    """Count warnings by kind. In each interval, at most one warning of a kind is logged.

    The caller must hold a lock during each call.
    """

    def __init__(self, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self.interval_seconds = interval_seconds
        # For each kind: when a warning was last logged, and how many later warnings were left out.
        self._last: dict[str, tuple[float, int]] = {}

    def take(self, kind: str, now: float) -> int | None:
        """Return how many warnings were left out; None if this warning must be left out, too.

        Args:
            kind: the kind of the warning. All kinds are stored, so there must be only a few kinds.
        """
        logged, left_out = self._last.get(kind, (now - self.interval_seconds, 0))
        if now - logged < self.interval_seconds:
            self._last[kind] = (logged, left_out + 1)
            return None
        self._last[kind] = (now, 0)
        return left_out
