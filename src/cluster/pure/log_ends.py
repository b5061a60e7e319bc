"""Track the start of a log and the end of each leader epoch, without the records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cluster.requests import NO_EPOCH

__all__ = ["NO_EPOCH", "LogEnds"]


class LogEnds:
    """The leader epochs of a log, each with the offset at which it ends (exclusive).

    Attributes:
        start: the offset at which the first batch begins. The end of an empty log is the same
            offset.
        log_start_offset: the first offset that is not deleted; it may be inside the first batch.
        flushed: the records below this offset are flushed.
    """

    __slots__ = ("_spans", "flushed", "log_start_offset", "start")

    def __init__(
        self,
        spans: Iterable[tuple[int, int]] = (),
        flushed: int = 0,
        start: int = 0,
        log_start_offset: int = 0,
    ) -> None:
        self._spans: list[tuple[int, int]] = []
        self.start, self.flushed = start, max(flushed, start)
        self.log_start_offset = max(start, log_start_offset)
        self.append_all(spans)
        assert self.flushed <= self.end, "the flushed offset is after the log end"
        assert self.log_start_offset <= self.end, "the log start offset is after the log end"

    @property
    def end(self) -> int:
        """The log end offset."""
        return self._spans[-1][1] if self._spans else self.start

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last record; NO_EPOCH if there is none."""
        return self._spans[-1][0] if self._spans else NO_EPOCH

    def append(self, epoch: int, end: int) -> None:
        """Extend the log to an offset, with records of this epoch."""
        last_epoch, last_end = self.last_epoch, self.end
        assert epoch >= last_epoch and end > last_end, "epochs and offsets only rise"
        if epoch == last_epoch and self._spans:
            self._spans.pop()
        self._spans.append((epoch, end))

    def append_all(self, spans: Iterable[tuple[int, int]]) -> None:
        """Extend the log by spans; a span is a leader epoch, and the offset at which it ends."""
        for epoch, end in spans:
            self.append(epoch, end)

    def truncate(self, offset: int) -> None:
        """Remove the records from an offset on. The offset must be at or after the log start."""
        assert offset >= self.log_start_offset, "a log cannot end before its start"
        spans = self._spans
        while spans and spans[-1][1] > offset:
            epoch, _ = spans.pop()
            if offset > self.end:
                spans.append((epoch, offset))
        self.flushed = min(self.flushed, offset)

    def raise_start(self, start: int, log_start_offset: int = 0) -> None:
        """Forget the batches before an offset; their records were deleted on purpose.

        Args:
            log_start_offset: the first offset that is not deleted; it may be inside the first
                batch.
        """
        if start > self.start:
            self._spans = [span for span in self._spans if span[1] > start]
            self.start, self.flushed = start, max(self.flushed, start)
        self.log_start_offset = max(self.log_start_offset, self.start, log_start_offset)

    def begin_at(self, start: int) -> None:
        """Forget all records; the log is empty, and begins at an offset."""
        self._spans = []
        self.start = self.flushed = self.log_start_offset = start

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch that is not above this epoch, and the offset where it ends.

        If there is no such epoch, return NO_EPOCH and the start of the log. The source of this rule
        is KIP-101 and KIP-279.
        """
        for known, end in reversed(self._spans):
            if known <= epoch:
                return known, end
        return NO_EPOCH, self.start


def longest(logs: Sequence[tuple[int, int, int]]) -> int:
    """Return the broker with the longest log; if several logs are equal, the lowest broker id.

    A log without records has no epoch. All records before the end of an empty log were replicated
    and then deleted. So an empty log counts as longer than each log that ends earlier, even if the
    other log has a later epoch.

    Args:
        logs: for each log, its last epoch, its log end and its broker.
    """
    full = [(epoch, end, -m) for epoch, end, m in logs if epoch > NO_EPOCH]
    empty = [(end, -m) for epoch, end, m in logs if epoch == NO_EPOCH]
    if full and (not empty or max(full)[1] >= max(empty)[0]):
        return -max(full)[2]
    return -max(empty)[1]
