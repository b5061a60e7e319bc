"""Define the facts that the page shows, all from one moment.

If this broker does not know a number, the number is None. For example, a broker without a replica
of a partition does not know the log end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.page.history import Curves, Rates

NOBODY = -1
# In a state of this set, a log dir works normally.
SOUND = frozenset({"online", "cordoned"})


class DirRow(NamedTuple):
    """The store's description of a log dir.

    Attributes:
        reason: the reason for the state of the log dir, and what to do; "" if it is ONLINE.
        size_bytes: the size of all record batches in the log dir.
        longest_call_seconds: the duration of the oldest running call.
    """

    path: str
    state: str
    reason: str
    since_ms: int
    partition_count: int
    size_bytes: int
    total_bytes: int
    usable_bytes: int
    longest_call_seconds: float


class PartitionRow(NamedTuple):
    """A partition: the cluster's facts about it, and the replica of this broker.

    Attributes:
        leader: the broker that leads; -1 if no broker leads.
        offline: the replicas that cannot be used now, because their broker or log dir does not
            work.
        elr: the eligible leader replicas. An eligible leader replica left the ISR, but has all
            committed records. Only the controller knows the eligible leader replicas. On any other
            broker, this is None.
        log_dir: the log dir of this broker's replica; "" if this broker has no replica, or if the
            log dir does not work.
        reason: why this broker cannot use its replica; "" if it can, or if it has no replica.
    """

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    elr: tuple[int, ...] | None
    log_dir: str = ""
    start: int | None = None
    high_watermark: int | None = None
    end: int | None = None
    size_bytes: int | None = None
    reason: str = ""

    @property
    def is_offline(self) -> bool:
        """Whether no broker leads the partition, so that no client can use the partition."""
        return self.leader == NOBODY

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in the ISR."""
        return len(self.isr) < len(self.replicas)


class BrokerRow(NamedTuple):
    """A live broker of the cluster."""

    id: int
    host: str
    port: int
    rack: str
    is_controller: bool
    leads: int
    replicas: int


class OffsetRow(NamedTuple):
    """An offset that a group committed.

    Attributes:
        end: the high watermark of the partition, if this broker knows it.
    """

    topic: str
    partition: int
    offset: int
    end: int | None

    @property
    def lag(self) -> int | None:
        """High watermark minus offset, but at least 0; None if the high watermark is not known."""
        return None if self.end is None else max(self.end - self.offset, 0)


class MemberRow(NamedTuple):
    """A member of a group. All its texts come from clients."""

    id: str
    instance_id: str
    client_id: str
    host: str


class GroupRow(NamedTuple):
    """A group that this broker coordinates.

    Attributes:
        unknown_count: the number of committed offsets whose lag is not known.
    """

    name: str
    state: str
    protocol: str
    members: tuple[MemberRow, ...]
    offsets: tuple[OffsetRow, ...]
    lag: int
    unknown_count: int


class TopicRow(NamedTuple):
    """A topic, and its rates over the last interval."""

    name: str
    partition_count: int
    size_bytes: int
    rates: Rates


class SlowRow(NamedTuple):
    """A slow request.

    Attributes:
        seconds: the time in each of the phases queue, local, remote and send.
    """

    at_ms: int
    api: str
    address: str
    seconds: tuple[float, ...]


class Facts(NamedTuple):
    """The facts that a broker had at one moment.

    Attributes:
        about: values of the broker itself, such as its id and its addresses.
        counts: the numbers of connections, threads, groups and partitions.
        moves: the running moves between log dirs, and the moves that ended most recently.
        curves: the rates of the last hour, of all topics together.
        topic_curves: for the busiest topics, the rates of the last hour by topic.
    """

    at_ms: int
    about: Mapping[str, Any]
    counts: Mapping[str, int]
    dirs: tuple[DirRow, ...]
    partitions: tuple[PartitionRow, ...]
    moves: tuple[Mapping[str, Any], ...]
    brokers: tuple[BrokerRow, ...]
    groups: tuple[GroupRow, ...]
    topics: tuple[TopicRow, ...]
    slow: tuple[SlowRow, ...]
    rates: Rates
    curves: Curves
    topic_curves: Mapping[str, Curves]

    def trouble(self) -> dict[str, int]:
        """Count the problems for an operator. If there is no problem, all values are 0."""
        return {
            "bad_log_dirs": sum(one.state not in SOUND for one in self.dirs),
            "offline_partitions": sum(one.is_offline for one in self.partitions),
            "offline_replicas": sum(bool(one.reason) for one in self.partitions),
            "under_replicated_partitions": sum(one.is_under_replicated for one in self.partitions),
            "failed_moves": sum(one["state"] == "failed" for one in self.moves),
        }
