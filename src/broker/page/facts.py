"""Define the facts that the page shows, all from one moment.

None is a number that this broker does not know. For example, it does not know the log end of a
partition without a replica on this broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.page.history import Curves, Rates

NOBODY = -1
# The states in which a log dir serves as it should.
SOUND = frozenset({"online", "cordoned"})


class DirRow(NamedTuple):
    """A log dir, as the store describes it.

    Attributes:
        reason: why the log dir is in its state, and what to do; "" if it is ONLINE.
        size_bytes: the size of all record batches in the log dir.
        longest_call_seconds: for how long the oldest running call has been running.
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
    """A partition: what the cluster knows of it, and this broker's replica.

    Attributes:
        leader: the broker that leads; -1 if no broker leads.
        offline: the replicas that do not serve: their broker or their log dir is away.
        elr: the eligible leader replicas, which left the ISR but have all committed records. Only
            the controller knows these replicas; None on another broker.
        log_dir: the log dir of this broker's replica; "" if this broker has no replica that serves.
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

    @property
    def is_offline(self) -> bool:
        """Whether no broker leads the partition, so that no client can use it."""
        return self.leader == NOBODY

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is missing in the ISR."""
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
        end: the high watermark of the partition, as far as this broker knows it.
    """

    topic: str
    partition: int
    offset: int
    end: int | None

    @property
    def lag(self) -> int | None:
        """How many offsets the group is behind; None if the high watermark is not known."""
        return None if self.end is None else max(self.end - self.offset, 0)


class MemberRow(NamedTuple):
    """A member of a group; all texts come from clients."""

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
        about: the broker's own values, such as its id and its addresses.
        counts: how many connections, threads, groups and partitions there are.
        moves: the running moves between log dirs, and the last moves that ended.
        curves: the rates of the last hour, of all topics together.
        topic_curves: the rates of the last hour by topic, for the topics that were busiest.
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
        """Count the problems for an operator; all values are 0 if the broker is well."""
        return {
            "bad_log_dirs": sum(one.state not in SOUND for one in self.dirs),
            "offline_partitions": sum(one.is_offline for one in self.partitions),
            "under_replicated_partitions": sum(one.is_under_replicated for one in self.partitions),
            "failed_moves": sum(one["state"] == "failed" for one in self.moves),
        }
