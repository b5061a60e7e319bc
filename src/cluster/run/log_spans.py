"""Read the leader epochs of a log as the spans that the rules use."""

from __future__ import annotations

from cluster.pure.log_ends import NO_EPOCH
from logstore import Log

Spans = tuple[tuple[int, int], ...]


def spans_of(log: Log, after: int = 0) -> Spans:
    """Give each leader epoch of a log with the offset at which it ends.

    Records without an epoch, and records that retention has removed, are in a span of NO_EPOCH. An
    epoch without records is left out.

    Args:
        after: only spans that end after this offset are given.
    """
    end = log.log_end_offset
    begins = [(NO_EPOCH, 0), *((max(epoch, NO_EPOCH), start) for epoch, start in log.leader_epochs)]
    spans: list[tuple[int, int]] = []
    known = 0
    for number, (epoch, _) in enumerate(begins):
        until = begins[number + 1][1] if number + 1 < len(begins) else end
        until = min(until, end)
        if until > known:
            spans.append((epoch, until))
            known = until
    return tuple(span for span in spans if span[1] > after)
