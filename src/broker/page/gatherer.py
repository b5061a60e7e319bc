"""Gather the facts of a broker from memory. The gathering never waits for a disk or another broker.

The gatherer uses only values that other threads have already read or counted. If the holder of a
lock may wait for a disk, the gatherer does not take this lock.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from broker.catalog.leadership import Leadership
from broker.catalog.served_topics import ServedTopics
from broker.listener_config import Endpoint
from broker.machines.request_times import ApiTimes
from broker.machines.slow_requests import SlowRequest
from broker.machines.traffic import TopicTraffic
from broker.page.facts import (
    BrokerRow,
    DirRow,
    Facts,
    GroupRow,
    MemberRow,
    OffsetRow,
    PartitionRow,
    SlowRow,
    TopicRow,
)
from broker.page.history import History, Rates
from logstore import Log, LogStore, LogStoreError, UnknownPartitionError, __version__
from logstore.disk.calls import longest_seconds
from mover import ReplicaMover
from mover.administration import facts_of

ENDED_MOVES_MAX = 20
Place = tuple[str, int]


class Elr(Protocol):
    """A function that returns the eligible leader replicas; None if they are not known."""

    def __call__(self) -> Mapping[Place, tuple[int, ...]] | None:
        """Return the eligible leader replicas of each partition that has some."""


class Group(Protocol):
    """A loaded group; see `broker.coordinator.hosted`."""

    @property
    def group(self) -> Any:
        """The state of the group."""

    @property
    def offsets(self) -> dict[Place, Any]:
        """The committed offsets."""


class Sources(NamedTuple):
    """The functions that give facts to a page.

    Any thread may call such a function, and no call waits.

    Attributes:
        slow: the slow requests, the latest last.
        groups: the loaded groups.
    """

    store: LogStore
    topics: ServedTopics
    leadership: Leadership
    endpoints: tuple[Endpoint, ...]
    traffic: Callable[[], Mapping[str, TopicTraffic]]
    request_times: Callable[[], Mapping[int, ApiTimes]]
    slow: Callable[[], list[SlowRequest]]
    groups: Callable[[], list[Any]]
    counts: Callable[[], Mapping[str, int]]
    elr: Elr


class Gatherer:
    """Make `Facts`. One thread at a time may call a method."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._history = History()
        self._started_ms = time.time_ns() // 1_000_000

    def sample(self, now: float) -> None:
        """Add the present counters to the history."""
        topics = {
            name: Rates(
                one.bytes_in, one.messages_in, one.bytes_out,
                one.produce_requests + one.fetch_requests,
            )
            for name, one in self._sources.traffic().items()
        }  # fmt: skip
        sums = [sum(each) for each in zip(*topics.values(), strict=True)] or [0.0] * 4
        times = self._sources.request_times().values()
        requests = sum(sum(one.counts) for one in times)
        self._history.take(now, Rates(*sums)._replace(requests=requests), topics)

    def gather(self) -> Facts:
        """Gather all facts."""
        sources, history = self._sources, self._history
        partitions = self._partitions()
        return Facts(
            time.time_ns() // 1_000_000,
            self._about(),
            sources.counts(),
            self._dirs(),
            partitions,
            self._moves(),
            self._brokers(partitions),
            self._groups({(one.topic, one.partition): one for one in partitions}),
            self._topics(partitions),
            tuple(
                SlowRow(int(one.at * 1000), one.api, one.address, one.seconds)
                for one in reversed(sources.slow())
            ),
            history.latest,
            history.curves(),
            history.topic_curves(),
        )

    def _about(self) -> dict[str, Any]:
        leadership = self._sources.leadership
        return {
            "broker_id": leadership.broker_id,
            "cluster_id": leadership.cluster_id,
            "controller_id": leadership.controller_id,
            "listeners": [str(one) for one in self._sources.endpoints],
            "version": __version__,
            "started_ms": self._started_ms,
        }

    def _dirs(self) -> tuple[DirRow, ...]:
        return tuple(
            DirRow(
                one.path, one.state, one.reason or "", one.since_ms, len(one.partitions),
                sum(each.size for each in one.partitions), one.total_bytes, one.usable_bytes,
                longest_seconds(one.path),
            )
            for one in self._sources.store.describe_dirs().log_dirs
        )  # fmt: skip

    def _partitions(self) -> tuple[PartitionRow, ...]:
        elr = self._sources.elr()
        return tuple(
            self._partition(topic.name, number, elr)
            for topic in self._sources.topics.current().by_name.values()
            for number in topic.partitions
        )

    def _partition(
        self, name: str, number: int, elr: Mapping[Place, tuple[int, ...]] | None
    ) -> PartitionRow:
        found = self._sources.leadership.facts_of(name, number)
        row = PartitionRow(
            name, number, *found.leader, found.replicas, found.isr, found.offline,
            None if elr is None else elr.get((name, number), ()), reason=found.unread_reason,
        )  # fmt: skip
        try:
            log: Log = self._sources.store.log(name, number)
            # The offsets are read in this order, so that start <= high watermark <= end.
            start, high_watermark = log.log_start_offset, log.high_watermark
            return row._replace(
                log_dir=log.log_dir,
                start=start,
                high_watermark=max(start, high_watermark),
                end=max(log.log_end_offset, high_watermark),
                size_bytes=log.size_bytes,
            )
        except UnknownPartitionError:  # another broker has the replica
            return row
        except LogStoreError as error:
            if self._sources.leadership.broker_id not in row.replicas:
                return row
            return row._replace(reason=row.reason or str(error))

    def _moves(self) -> tuple[Mapping[str, Any], ...]:
        moves = ReplicaMover.of(self._sources.store).moves()
        ended = [one for one in moves if one.state.is_end]
        kept = [one for one in moves if not one.state.is_end] + ended[-ENDED_MOVES_MAX:][::-1]
        return tuple(facts_of(one) for one in kept)

    def _brokers(self, partitions: tuple[PartitionRow, ...]) -> tuple[BrokerRow, ...]:
        leadership = self._sources.leadership
        leads = Counter(one.leader for one in partitions)
        replicas = Counter(broker for one in partitions for broker in one.replicas)
        return tuple(
            BrokerRow(
                node.id, node.host, node.port, node.rack or "",
                node.id == leadership.controller_id, leads[node.id], replicas[node.id],
            )
            for node in leadership.nodes(self._sources.endpoints[0])
        )  # fmt: skip

    def _topics(self, partitions: tuple[PartitionRow, ...]) -> tuple[TopicRow, ...]:
        sizes: dict[str, list[int]] = {}
        for one in partitions:
            sizes.setdefault(one.topic, []).append(one.size_bytes or 0)
        return tuple(
            TopicRow(name, len(each), sum(each), self._history.latest_of(name))
            for name, each in sizes.items()
        )

    def _groups(self, partitions: Mapping[Place, PartitionRow]) -> tuple[GroupRow, ...]:
        return tuple(sorted(_group_row(one, partitions) for one in self._sources.groups()))


def _group_row(hosted: Group, partitions: Mapping[Place, PartitionRow]) -> GroupRow:
    """Describe a group without taking its lock: a thread may hold this lock during a write.

    Each collection is copied in one step, so it is consistent. If the group changes in the
    meantime, two values may be from different moments.
    """
    group = hosted.group
    members = tuple(
        MemberRow(one.id, one.instance_id or "", one.client_id, one.client_host)
        for one in group.members.copy().values()
    )
    offsets = []
    for (topic, number), committed in sorted(hosted.offsets.copy().items()):
        found = partitions.get((topic, number))
        end = None if found is None else found.high_watermark
        offsets.append(OffsetRow(topic, number, committed.offset, end))
    lags = [one.lag for one in offsets if one.lag is not None]
    return GroupRow(
        group.name, group.state.value, group.protocol or "", members, tuple(offsets), sum(lags),
        len(offsets) - len(lags),
    )  # fmt: skip
