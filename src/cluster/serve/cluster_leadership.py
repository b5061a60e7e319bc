"""Report brokers, leaders and replicas to the handlers of requests, for a broker of a cluster.

There are two sources for the leader of a partition. The replica on this broker knows its own role.
The role of the replica decides what this broker serves. The metadata from the controller contains
all partitions. From the metadata, clients learn which broker to use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.catalog.leadership import (
    NO_EPOCH,
    NO_LEADER,
    Leader,
    Node,
    NotServedError,
    PartitionFacts,
    Reading,
    Watch,
    check_epoch,
)
from broker.catalog.topics import NO_ID
from broker.listener_config import Endpoint
from broker.wire.error_codes import ErrorCode
from cluster.pure.replica import Role
from cluster.run.hosted_replica import HostedReplica
from cluster.run.member import ClusterMember
from cluster.serve.role_watches import RoleWatches
from cluster.view import PartitionView
from logstore import Log, LogStoreError, ReplicaOfflineError, UnknownPartitionError

NO_METADATA = "this broker has no metadata from a controller yet"


class Led(NamedTuple):
    """A replica that leads, and its log."""

    replica: HostedReplica
    log: Log


class ClusterLeadership:
    """Implement `Leadership` for a broker of a cluster.

    Attributes:
        watches: the requests that wait for records.
    """

    broker_id: int
    cluster_id: str

    def __init__(
        self, member: ClusterMember, cluster_id: str, *, is_rack_aware: bool = False
    ) -> None:
        """Store the arguments.

        Args:
            is_rack_aware: whether a client should read from a replica in its own rack (KIP-392).
        """
        self._is_rack_aware = is_rack_aware
        self.broker_id, self.cluster_id = member.settings.broker, cluster_id
        self._rack = member.settings.rack
        self._host, self._replicas, self._metadata = member.host, member.replicas, member.metadata
        self.watches = RoleWatches()
        # Called after each change of a role. This function must neither wait nor call the replica.
        self.on_role: Callable[[HostedReplica], object] = lambda replica: None
        member.on_role = self._on_role

    # --- brokers ----------------------------------------------------------------------------------

    @property
    def controller_id(self) -> int:
        """The id of the controller; -1 if it is not known, or if its broker is down."""
        view = self._metadata.view
        return view.controller_id if view.controller_id in view.brokers else -1

    def nodes(self, endpoint: Endpoint) -> list[Node]:
        """List the live brokers that have a listener of the same name as the client's.

        Before a controller has sent metadata, the list is empty, as in Kafka with ZooKeeper. After
        an empty list, a client keeps the brokers that it knows, and asks again. When metadata has
        come, this broker is always in the list, even if the metadata does not contain it yet.
        """
        if not self._metadata.view.is_known:
            return []
        own = Node(self.broker_id, endpoint.host, endpoint.port, self._rack or None)
        found = {self.broker_id: own}
        for broker in self._metadata.view.brokers.values():
            for one in broker.endpoints:
                if one.name == endpoint.name and broker.id != self.broker_id:
                    found[broker.id] = Node(broker.id, one.host, one.port, broker.rack or None)
        return [found[broker] for broker in sorted(found)]

    # --- partitions -------------------------------------------------------------------------------

    def _view_of(self, name: str, partition: int) -> PartitionView | None:
        topic = self._metadata.view.topics.get(name)
        return None if topic is None else topic.partitions.get(partition)

    def facts_of(self, name: str, partition: int) -> PartitionFacts:
        """Describe a partition from the controller's metadata. Leave out a leader that is down."""
        is_known = self._metadata.view.is_known  # read first: it never becomes False
        found = self._view_of(name, partition)
        if not is_known:
            return PartitionFacts(ErrorCode.LEADER_NOT_AVAILABLE, Leader())
        if found is None:  # the partition was deleted just now
            return PartitionFacts(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Leader())
        is_led = found.leader in self._metadata.view.brokers
        replica = self._replicas.at(name, partition)
        return PartitionFacts(
            ErrorCode.NONE if is_led else ErrorCode.LEADER_NOT_AVAILABLE,
            Leader(found.leader if is_led else NO_LEADER, found.leader_epoch),
            found.replicas,
            found.isr,
            found.offline,
            found.elr,
            found.suspects,
            "" if replica is None else replica.unread_reason,
        )

    def leader_of(self, name: str, partition: int) -> Leader:
        """Find another broker that leads a partition.

        If the metadata and the replica name different leaders, the larger leader epoch decides.
        """
        found, replica = self._view_of(name, partition), self._replicas.at(name, partition)
        leader = Leader() if found is None else Leader(found.leader, found.leader_epoch)
        if replica is not None and replica.leader_epoch > leader.epoch:
            leader = Leader(replica.leader, replica.leader_epoch)
        is_other = leader.id != self.broker_id and leader.id in self._metadata.view.brokers
        return leader if is_other else Leader()

    # --- what this broker serves ------------------------------------------------------------------

    def leading(self, name: str, partition: int, epoch: int = NO_EPOCH) -> Led:
        """Find the replica that leads a partition on this broker.

        Args:
            epoch: the leader epoch that the client knows; -1 if it knows none.

        Raises:
            NotServedError: this broker does not lead the partition, or leads another epoch.
            LogStoreError: there is no such partition, or its log dir does not work.
        """
        replica = self._replicas.at(name, partition)
        if replica is not None and replica.role is Role.LEADER:
            log = replica.log
            if log is not None and self._is_present(name, log):
                check_epoch(epoch, replica.leader_epoch)
                return Led(replica, log)
        raise self._refusal(name, partition, replica, epoch)

    def _is_present(self, name: str, log: Log) -> bool:
        """Check that a log belongs to the topic in the metadata, not to an older topic."""
        topic = self._metadata.view.topics.get(name)
        return topic is None or log.topic_id in (topic.topic_id, NO_ID)

    def _refusal(
        self, name: str, partition: int, replica: HostedReplica | None, epoch: int
    ) -> LogStoreError:
        """Return the error that says why this broker does not serve a partition."""
        is_known = self._metadata.view.is_known  # read first: it never becomes False
        found = self._view_of(name, partition)
        if not is_known:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return NotServedError(code=code, reason=f"{name}-{partition}: {NO_METADATA}")
        if found is None:
            return UnknownPartitionError(topic=name, partition=partition)
        known = found.leader_epoch
        if replica is not None and self.broker_id in found.replicas:
            known = max(known, replica.leader_epoch)
            if not self._host.dirs[replica.dir_id].is_good:
                reason = f"the log dir {replica.dir_id} does not serve"
                return ReplicaOfflineError(topic=name, partition=partition, reason=reason)
            if replica.unread_reason:
                reason = replica.unread_reason
                return ReplicaOfflineError(topic=name, partition=partition, reason=reason)
        check_epoch(epoch, known)
        return NotServedError(
            code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            reason=f"broker {self.broker_id} does not lead the partition",
        )

    def log(self, name: str, partition: int, epoch: int = NO_EPOCH) -> Log:
        """Find the log of a partition that this broker leads; see `leading`."""
        return self.leading(name, partition, epoch).log

    def log_for_rack(self, name: str, partition: int, epoch: int, rack: str) -> Reading:
        """Find a log for a client in a rack, or the broker from which the client should read."""
        if rack and rack == self._rack:
            replica = self._replicas.at(name, partition)
            if replica is not None and replica.role is Role.FOLLOWER:
                log = replica.log
                if log is not None and self._is_present(name, log):
                    check_epoch(epoch, replica.leader_epoch)
                    return Reading(log, is_following=True)
        led = self.leading(name, partition, epoch)
        preferred = self._preferred(name, partition, rack)
        return Reading(led.log, preferred=preferred, leader_epoch=led.replica.leader_epoch)

    def _preferred(self, name: str, partition: int, rack: str) -> int:
        """Find an in-sync replica in the client's rack, if this broker is in another rack."""
        found = self._view_of(name, partition)
        if not self._is_rack_aware or not rack or rack == self._rack or found is None:
            return NO_LEADER
        brokers = self._metadata.view.brokers
        near = (
            one
            for one in found.replicas
            if one in found.isr and one in brokers and brokers[one].rack == rack
        )
        return next(near, NO_LEADER)

    def replica_log(self, name: str, partition: int) -> Log:
        """Find the log of the replica on this broker, in any role."""
        replica = self._replicas.at(name, partition)
        log = None if replica is None else replica.log
        if log is not None and self._is_present(name, log):
            return log
        raise self._refusal(name, partition, replica, NO_EPOCH)

    def fault_of_end(self, name: str, partition: int) -> ErrorCode:
        """Return an error while the high watermark of a new leader may be too low (KIP-207)."""
        replica = self._replicas.at(name, partition)
        is_known = replica is not None and replica.is_end_replicated
        return ErrorCode.NONE if is_known else ErrorCode.OFFSET_NOT_AVAILABLE

    def watch(self, name: str, partition: int, wake: Callable[[], None]) -> Watch:
        """Call `wake` after each change of a log, and when this broker's role changes."""
        log = self.replica_log(name, partition)
        return self.watches.add((name, partition), wake, log.subscribe(lambda _: wake()))

    def _on_role(self, replica: HostedReplica) -> None:
        self.watches.changed((replica.name, replica.number))
        self.on_role(replica)
