"""Read the start of a log and its leader epochs, as the rules need them."""

from __future__ import annotations

from cluster.pure.log_ends import NO_EPOCH
from logstore import Log, LogStoreError

Spans = tuple[tuple[int, int], ...]


def spans_of(log: Log, after: int = 0) -> Spans:
    """Return each leader epoch of a log with the offset at which it ends.

    Records without an epoch are in a span of NO_EPOCH. An epoch without records is left out.

    Args:
        after: leave out spans that end at or before this offset.
    """
    end, known = log.log_end_offset, log.log_start_offset
    begins = [
        (NO_EPOCH, known), *((max(epoch, NO_EPOCH), start) for epoch, start in log.leader_epochs)
    ]  # fmt: skip
    spans: list[tuple[int, int]] = []
    for number, (epoch, _) in enumerate(begins):
        until = begins[number + 1][1] if number + 1 < len(begins) else end
        until = min(until, end)
        if until > known:
            spans.append((epoch, until))
            known = until
    return tuple(span for span in spans if span[1] > after)


def start_of(log: Log) -> int:
    """Return the offset where the first batch with a record begins.

    If records were deleted up to an offset inside a batch, this offset is before the log start.
    Followers copy whole batches, so a follower without records begins at this offset.
    """
    start = log.log_start_offset
    if start == log.log_end_offset:
        return start
    try:
        with log.read_range(start, 1) as found:
            return min(start, found.first_offset) if found.size_bytes else start
    except LogStoreError:  # the log start rose just now, or the batch is damaged
        return start
