"""Find the partition of `__consumer_offsets` that keeps a group; create the topic if needed."""

from __future__ import annotations

import struct
import threading
from contextlib import suppress

from broker.catalog import dir_facts
from broker.catalog.topics import TopicCatalog
from logstore import Log, LogConfig, LogStoreError

NAME = "__consumer_offsets"
# The number of partitions. It decides which partition keeps a group, so it must never change.
FACT = "broker.offsets_partitions"
RECORD_BYTES_MAX = 8 << 20  # enough for a group with thousands of members
CONFIG = LogConfig(
    record_format="kafka",
    cleanup_policy="compact",
    segment_bytes=100 << 20,
    max_message_bytes=RECORD_BYTES_MAX,
)
INT_MIN = -(2**31)


def java_hash(text: str) -> int:
    """Return Java's `hashCode` of a string: 32 bits, computed from its units of 16 bits."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", data):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (value >> 31 << 32)


def partition_of(group: str, count: int) -> int:
    """Return which of `count` partitions keeps a group; it is the same partition as in Kafka."""
    value = java_hash(group)
    return 0 if value == INT_MIN else abs(value) % count


class OffsetsTopic:
    """The topic `__consumer_offsets` of a store.

    Threads: any thread may call any method. `_creating` is held while the topic is created.

    Args:
        partitions: how many partitions the topic gets if this broker creates it.
    """

    def __init__(self, topics: TopicCatalog, partitions: int) -> None:
        self._topics = topics
        self._partitions = partitions
        self._count = 0
        self._is_whole = False  # whether `ensure` has nothing to do any more
        self._creating = threading.Lock()

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has; 0 if there is no such topic."""
        topic = self._topics.get(NAME)
        if topic is None:
            return 0
        if not self._count:  # a partition may be in a log dir that is away
            remembered = dir_facts.largest(self._topics.store, FACT)
            self._count = max(remembered, topic.partitions[-1] + 1)
        return self._count

    def ensure(self) -> int:
        """Create the topic, or its partitions that a crash left out; return the partition count.

        Raises:
            LogStoreError: no log dir takes the topic.
        """
        if not self._is_whole:
            with self._creating:
                if not self._is_whole:
                    self._create()
        return self._count

    def _create(self) -> None:
        store, topic = self._topics.store, self._topics.get(NAME)
        if topic is None:
            count = dir_facts.largest(store, FACT) or self._partitions
            dir_facts.remember(store, FACT, count)
            self._topics.create(NAME, count, CONFIG)
            self._count = count
        else:
            for number in sorted(set(range(self.partition_count)) - set(topic.partitions)):
                with suppress(LogStoreError):  # the partition is in a log dir that is away
                    store.create(NAME, number, config=CONFIG, topic_id=topic.id)
        self._is_whole = True

    def log(self, partition: int) -> Log:
        """Find the log of a partition.

        Raises:
            LogStoreError: there is no such partition, or its log dir does not serve.
        """
        return self._topics.log(NAME, partition)
