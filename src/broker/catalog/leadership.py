"""Report brokers, leaders, replicas and leader epochs to the handlers of requests.

    SoleBroker           a broker without a cluster: it leads every partition
    cluster.serve        a broker of a cluster

The handlers of requests use only `Leadership`, and know nothing else about other brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from broker.catalog.served_topics import ServedTopics
from broker.listener_config import Endpoint
from broker.wire.error_codes import ErrorCode
from logstore import Log, LogStoreError

NO_EPOCH = -1
NO_LEADER = -1


class NotServedError(LogStoreError):
    """Report that this broker does not serve a partition now. `code` is for the client.

    A client that gets the code finds the leader, or tries again.
    """

    code: ErrorCode
    reason: str
    _template = "{reason}"


class Node(NamedTuple):
    """A broker, and the address at which the client reaches it."""

    id: int
    host: str
    port: int
    rack: str | None = None


class Leader(NamedTuple):
    """The broker that leads a partition, and the leader epoch; -1 means unknown."""

    id: int = NO_LEADER
    epoch: int = NO_EPOCH


class PartitionFacts(NamedTuple):
    """The leader and the replicas of a partition.

    Attributes:
        offline: the replicas that cannot be used now, because their broker or log dir does not
            work.
        elr, suspects: the eligible leader replicas, and the replicas that may have lost records
            (KIP-966).
        unread_reason: why this broker cannot read its replica, although its log dir works; "" if
            this broker has no such replica.
    """

    error: ErrorCode
    leader: Leader
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    unread_reason: str = ""


class Reading(NamedTuple):
    """The log from which a client reads.

    Attributes:
        is_following: whether the log is that of a follower, which may lack the newest records.
        preferred: the broker from which the client should read instead; -1 for this one.
        leader_epoch: if this broker leads the partition, the present leader epoch. The log gets
            this epoch only with the first record of the epoch.
    """

    log: Log
    is_following: bool = False
    preferred: int = NO_LEADER
    leader_epoch: int = NO_EPOCH


class Watch(Protocol):
    """A registered callback."""

    def close(self) -> None:
        """Stop calling the callback. A second call does nothing."""


class Leadership(Protocol):
    """A broker's view of its cluster. Any thread may call any method. No method waits."""

    @property
    def broker_id(self) -> int:
        """The id of this broker."""

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""

    @property
    def controller_id(self) -> int:
        """The id of the controller, which is one of `nodes`; -1 if no controller is known."""

    def nodes(self, endpoint: Endpoint) -> list[Node]:
        """List the live brokers, with their addresses for the client's listener.

        The list is empty if this broker knows nothing about its cluster yet.
        """

    def facts_of(self, name: str, partition: int) -> PartitionFacts:
        """Describe a partition of a known topic."""

    def leader_of(self, name: str, partition: int) -> Leader:
        """Find the leader of a partition, for a client that asked another broker (KIP-951)."""

    def log(self, name: str, partition: int, epoch: int = NO_EPOCH) -> Log:
        """Find the log from which a client reads.

        Args:
            epoch: the leader epoch that the client knows; -1 if it knows none.

        Raises:
            NotServedError: this broker does not lead the partition, or leads another epoch.
            LogStoreError: there is no such partition, or no log dir that works has it.
        """

    def log_for_rack(self, name: str, partition: int, epoch: int, rack: str) -> Reading:
        """Find the log from which a client in a rack reads (KIP-392); see `log`.

        If this broker is a follower in the client's rack, the client can also read from it, up to
        the high watermark that this follower knows.
        """

    def replica_log(self, name: str, partition: int) -> Log:
        """Find the log of this broker's replica, even if it follows, for tools that compare logs.

        Raises:
            NotServedError: this broker has no replica of the partition.
            LogStoreError: there is no such partition, or no log dir that works has it.
        """

    def fault_of_end(self, name: str, partition: int) -> ErrorCode:
        """Return an error if a new leader does not know the high watermark yet."""

    def watch(self, name: str, partition: int, wake: Callable[[], None]) -> Watch:
        """Call `wake` after each change of a log, and after each change of this broker's role.

        Raises:
            LogStoreError: the log cannot be used now.
        """


class SoleBroker:
    """A broker without a cluster.

    A broker without a cluster leads every partition, and has the only replica.
    """

    controller_id: int
    broker_id: int
    cluster_id: str

    def __init__(self, broker_id: int, cluster_id: str, topics: ServedTopics) -> None:
        self.broker_id = self.controller_id = broker_id
        self.cluster_id = cluster_id
        self._topics = topics

    def nodes(self, endpoint: Endpoint) -> list[Node]:
        """Return this broker, with its address for the client's listener."""
        return [Node(self.broker_id, endpoint.host, endpoint.port)]

    def facts_of(self, name: str, partition: int) -> PartitionFacts:
        """Describe a partition.

        If the log dir of the partition does not work, the partition has no leader.
        """
        replicas = (self.broker_id,)
        try:
            epoch = self._topics.log(name, partition).leader_epoch
        except LogStoreError:
            return PartitionFacts(
                ErrorCode.LEADER_NOT_AVAILABLE, Leader(), replicas, offline=replicas
            )
        return PartitionFacts(ErrorCode.NONE, Leader(self.broker_id, epoch), replicas, replicas)

    def leader_of(self, name: str, partition: int) -> Leader:
        """Return this broker, because it leads every partition."""
        return Leader(self.broker_id)

    def log(self, name: str, partition: int, epoch: int = NO_EPOCH) -> Log:
        """Find a log; raise NotServedError if the client knows another leader epoch."""
        log = self._topics.log(name, partition)
        if epoch != NO_EPOCH:
            check_epoch(epoch, log.leader_epoch)
        return log

    def log_for_rack(self, name: str, partition: int, epoch: int, rack: str) -> Reading:
        """Find a log as `log` does, because there are no replicas in other racks."""
        return Reading(self.log(name, partition, epoch))

    def replica_log(self, name: str, partition: int) -> Log:
        """Find the log of the only replica, which this broker has."""
        return self._topics.log(name, partition)

    def fault_of_end(self, name: str, partition: int) -> ErrorCode:
        """Return NONE, because there are no other replicas."""
        return ErrorCode.NONE

    def watch(self, name: str, partition: int, wake: Callable[[], None]) -> Watch:
        """Call `wake` after each change of a log."""
        return self._topics.log(name, partition).subscribe(lambda _: wake())


def check_epoch(known: int, present: int) -> None:
    """Raise NotServedError if a client's leader epoch is not the present leader epoch.

    Raises:
        NotServedError: the epochs differ. The code says whether the client or this broker has the
            older epoch.
    """
    if known in (NO_EPOCH, present):
        return
    code = ErrorCode.FENCED_LEADER_EPOCH if known < present else ErrorCode.UNKNOWN_LEADER_EPOCH
    raise NotServedError(code=code, reason=f"the leader epoch is {present}, not {known}")
