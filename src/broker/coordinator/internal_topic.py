"""Find, or create, a partition of a topic in which coordinators keep their records."""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from broker.catalog import dir_facts
from broker.catalog.served_topics import ServedTopics
from broker.catalog.topics import Topic
from broker.coordinator.group_logs import Producer
from broker.listener_config import Endpoint
from logstore import Log, LogClosedError, LogConfig, LogStoreError

LOG = logging.getLogger("broker")

INT_MIN = -(2**31)
LOCK_SECONDS = 1.0  # a thread waits this long for another thread that creates the topic
RETRY_SECONDS = 10.0  # the shortest time between two tries to create missing partitions
SEGMENT_BYTES = 100 << 20


class InternalTopic(NamedTuple):
    """A topic of coordinators: `__consumer_offsets` or `__transaction_state`.

    Attributes:
        fact: the name under which every log dir stores the number of partitions. The partition of
            a key depends on this number, so the number must never change.
        record_bytes_max: the largest size of a record.
    """

    name: str
    fact: str
    record_bytes_max: int

    @property
    def config(self) -> LogConfig:
        """The configuration of the partitions, for a broker without a cluster."""
        return LogConfig(
            record_format="kafka",
            cleanup_policy="compact",
            segment_bytes=SEGMENT_BYTES,
            max_message_bytes=self.record_bytes_max,
        )

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """The same configuration, in the form of topic settings in a cluster."""
        return (
            ("cleanup.policy", "compact"),
            ("segment.bytes", str(SEGMENT_BYTES)),
            ("max.message.bytes", str(self.record_bytes_max)),
        )


def java_hash(text: str) -> int:
    """Return Java's `hashCode` of a string: 32 bits, computed from its units of 16 bits."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", data):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (value >> 31 << 32)


def partition_of(key: str, count: int) -> int:
    """Return the partition of a group or a transactional id, as Kafka computes it."""
    value = java_hash(key)
    return 0 if value == INT_MIN else abs(value) % count


class SoleTopic:
    """Implement `GroupLogs`: an internal topic of a broker without a cluster.

    Threads: any thread may call any method. `_creating` is held while partitions are created.

    Args:
        partitions: the number of partitions if this broker creates the topic.
    """

    def __init__(
        self,
        internal: InternalTopic,
        topics: ServedTopics,
        partitions: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.internal = internal
        self._config = internal.config
        self._topics = topics
        self._partitions = partitions
        self._clock = clock
        self._count = 0
        self._retry_at = 0.0  # the time of the next try to create missing partitions
        self._spread_over: frozenset[str] = frozenset()  # the log dirs that have the number
        self._creating = threading.Lock()

    @property
    def partition_count(self) -> int:
        """The number of partitions of the topic; 0 if there is no such topic."""
        topic = self._topics.get(self.internal.name)
        if topic is None:
            return 0
        if not self._count:  # a partition may be in a log dir that does not work
            remembered = dir_facts.largest(self._topics.store, self.internal.fact)
            self._count = max(remembered, topic.partitions[-1] + 1)
        return self._count

    def ensure(self) -> int:
        """Create the topic or its missing partitions; return how many partitions it must have.

        Partitions may be missing after a crash, or because a disk was full. All partitions are
        missing if a client deleted the topic.

        Raises:
            LogStoreError: no log dir accepts the topic, or the creation waits for a disk that
                hangs.
        """
        topic = self._topics.get(self.internal.name)
        if topic is None or len(topic.partitions) < self.partition_count:
            self._create(topic)
        self._spread()
        return self._count

    def _create(self, topic: Topic | None) -> None:
        """Create missing partitions.

        If the topic exists, and another thread creates its missing partitions, do nothing.
        """
        if topic is not None and self._clock() < self._retry_at:
            return
        if not self._creating.acquire(timeout=LOCK_SECONDS if topic is None else 0.0):
            if topic is None:
                raise LogStoreError(f"{self.internal.name} is still being created")
            return
        try:
            topic = self._topics.get(self.internal.name)
            if topic is None:
                self._create_all()
            else:
                self._create_missing(topic)
        finally:
            self._creating.release()

    def _create_all(self) -> None:
        store = self._topics.store
        count = dir_facts.largest(store, self.internal.fact) or self._partitions
        dir_facts.remember(store, self.internal.fact, count)
        self._topics.create(self.internal.name, count, self._config)
        self._count = count

    def _create_missing(self, topic: Topic) -> None:
        self._retry_at = self._clock() + RETRY_SECONDS
        for number in sorted(set(range(self.partition_count)) - set(topic.partitions)):
            with suppress(LogStoreError):  # the log dir does not work, or the disk is full
                self._topics.store.create(
                    self.internal.name, number, config=self._config, topic_id=topic.id
                )

    def _spread(self) -> None:
        """Write the number of partitions to log dirs that were added later."""
        log_dirs = frozenset(self._topics.store.log_dirs)
        if log_dirs != self._spread_over:
            self._spread_over = log_dirs
            with suppress(LogStoreError):  # one log dir with the number is enough
                dir_facts.spread(self._topics.store, self.internal.fact, self._count)

    def log(self, partition: int) -> Log:
        """Find the log of a partition.

        Raises:
            LogStoreError: there is no such partition, or its log dir does not work.
        """
        return self._topics.log(self.internal.name, partition)

    def own(self) -> Sequence[int]:
        """List all partitions."""
        return range(self.partition_count)

    def open(self, partition: int) -> SoleGroupLog:
        """Find the log of a partition; see `log`."""
        return SoleGroupLog(self, partition, self.log(partition))

    def find(self, partition: int, endpoint: Endpoint) -> None:
        """Return None, because this broker coordinates all groups."""


class SoleGroupLog(NamedTuple):
    """Implement `GroupLog`: one partition of a broker without a cluster."""

    topic: SoleTopic
    partition: int
    log: Log

    @property
    def is_led(self) -> bool:
        """Return True, because no other broker can coordinate the groups."""
        return True

    @property
    def is_settled(self) -> bool:
        """Return True, because there is no other replica."""
        return True

    @property
    def epoch(self) -> int:
        """Return the leader epoch of the log, which no other broker can change."""
        return max(self.log.leader_epoch, 0)

    def mend(self) -> None:
        """Repair a log if only unflushed records are damaged, for example after a power cut.

        The records of a coordinator are not flushed at once. If a loss of power destroys some
        unflushed records, the log is read-only until it is repaired. The repair keeps every
        undamaged record, and moves the rest to another file. So the coordinator can continue
        without the help of a user. But if flushed records are damaged, a user must repair the log.
        """
        log = self.log
        problems = log.recovery.problems
        if problems and all(one.offset >= log.recovery_point for one in problems):
            LOG.warning("%s is repaired after a power cut: %s", log, log.repair())

    def append(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamp: int) -> None:
        """Append records as one batch. There are no other replicas, so nothing waits."""
        self._check()
        self.log.extend(values, keys=keys, timestamps=timestamp)

    def append_of(
        self,
        producer: Producer,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamp: int,
    ) -> None:
        """Append records as one batch of a producer's transaction."""
        self._check()
        self.log.append_of_transaction(
            producer.id, producer.epoch, values, keys, timestamp, token=producer.token
        )

    def _check(self) -> None:
        if self.topic.log(self.partition) is not self.log:
            # The log dir was OFFLINE and has returned, so the log may have lost records.
            raise LogClosedError(f"{self.log} was opened again")
