"""Know where each leader epoch of a log ends, without its records."""

from __future__ import annotations

from collections.abc import Iterable

NO_EPOCH = -1


class LogEnds:
    """The leader epochs of a log, each with the offset at which it ends (exclusive)."""

    __slots__ = ("_spans", "flushed")

    def __init__(self, spans: Iterable[tuple[int, int]] = (), flushed: int = 0) -> None:
        self._spans: list[tuple[int, int]] = []
        self.flushed = flushed
        self.append_all(spans)
        assert flushed <= self.end, "more is flushed than there is"

    @property
    def end(self) -> int:
        """The log end offset."""
        return self._spans[-1][1] if self._spans else 0

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last record; NO_EPOCH if there is none."""
        return self._spans[-1][0] if self._spans else NO_EPOCH

    def append(self, epoch: int, end: int) -> None:
        """Extend the log to an offset, with records of this epoch."""
        last_epoch, last_end = self.last_epoch, self.end
        assert epoch >= last_epoch and end > last_end, "epochs and offsets only rise"
        if epoch == last_epoch:
            self._spans.pop()
        self._spans.append((epoch, end))

    def append_all(self, spans: Iterable[tuple[int, int]]) -> None:
        """Extend the log by spans: a leader epoch each, and the offset at which it ends."""
        for epoch, end in spans:
            self.append(epoch, end)

    def truncate(self, offset: int) -> None:
        """Remove the records from an offset on."""
        spans = self._spans
        while spans and spans[-1][1] > offset:
            epoch, _ = spans.pop()
            if offset > self.end:
                spans.append((epoch, offset))
        self.flushed = min(self.flushed, offset)

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Give the largest epoch that is not after this one, and its end (KIP-101, KIP-279).

        NO_EPOCH and 0 if there is none.
        """
        for known, end in reversed(self._spans):
            if known <= epoch:
                return known, end
        return NO_EPOCH, 0
