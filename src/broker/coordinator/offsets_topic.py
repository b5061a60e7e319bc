"""Define the topic `__consumer_offsets`, which stores the groups and their offsets."""

from __future__ import annotations

import time
from collections.abc import Callable

from broker.catalog.served_topics import ServedTopics
from broker.coordinator.internal_topic import InternalTopic, SoleTopic

# 8 MiB is enough for a group with thousands of members.
OFFSETS = InternalTopic("__consumer_offsets", "broker.offsets_partitions", 8 << 20)
NAME = OFFSETS.name


class OffsetsTopic(SoleTopic):
    """Implement `GroupLogs`: `__consumer_offsets` of a broker without a cluster."""

    def __init__(
        self, topics: ServedTopics, partitions: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(OFFSETS, topics, partitions, clock)
