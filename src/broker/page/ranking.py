"""Choose the most important rows: the busiest topics, and the groups with the largest lag."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from broker.page.facts import GroupRow, TopicRow

SHOWN_MAX = 10


def most_traffic(topics: Sequence[TopicRow]) -> list[TopicRow]:
    """Choose the topics with the most bytes in and out, and then idle topics, by size."""
    return heapq.nsmallest(
        SHOWN_MAX,
        topics,
        key=lambda one: (-one.rates.bytes_in - one.rates.bytes_out, -one.size_bytes, one.name),
    )


def largest_lags(groups: Sequence[GroupRow]) -> list[GroupRow]:
    """Choose the groups with the largest lag."""
    return heapq.nsmallest(SHOWN_MAX, groups, key=lambda one: (-one.lag, one.name))
