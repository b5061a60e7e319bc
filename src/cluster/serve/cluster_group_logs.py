"""Find the partitions of coordinators in a cluster, and append if this broker leads them.

The coordinator of a group is the leader of the group's partition of `__consumer_offsets`. The
coordinator of a transactional id is the leader of that id's partition of `__transaction_state`. The
state that a coordinator has in memory is valid for one leader epoch only: between two epochs,
another broker may have changed the partition. So an append names the leader epoch, and the rules of
replication refuse the append in any other epoch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.catalog.admin.topic_admin import NewTopic, TopicAdmin, TopicRefusedError
from broker.catalog.client_appends import ALL_ACKS, Wait
from broker.catalog.leadership import Node, NotServedError
from broker.coordinator.errors import CoordinatorError
from broker.coordinator.group_logs import Producer
from broker.coordinator.internal_topic import InternalTopic
from broker.listener_config import Endpoint
from broker.machines.exchange import CloseConnectionError
from broker.wire.error_codes import ErrorCode
from cluster.pure import exchange as x
from cluster.run.hosted_replica import HostedReplica
from cluster.run.metadata_cache import MetadataCache
from cluster.serve.cluster_leadership import ClusterLeadership
from cluster.serve.replica_appends import ReplicaAppend
from logstore import AppendInfo, Log, LogStoreError, ReplicaOfflineError

LOG = logging.getLogger("cluster")
FOLLOWED_SECONDS = 1.0  # followers fetch twice in this time
NOT_LED = "another broker leads the partition of this key"
NOT_YET = "this broker is about to lead the partition of this key"
NO_LEASE = "this broker may be cut off, so another broker may lead the partition of this key"


class ClusterGroupLogs:
    """Implement `GroupLogs` for a broker of a cluster.

    Threads: any thread may call any method. `_creating` is held while the topic is created.

    Args:
        partitions: how many partitions the topic gets if it is created now.
        factor: how many replicas each partition gets. If there are fewer live brokers, each live
            broker gets one replica.
        is_leased: returns whether it is certain that the broker's session has not ended (P16).
    """

    def __init__(
        self,
        leadership: ClusterLeadership,
        metadata: MetadataCache,
        admin: TopicAdmin,
        internal: InternalTopic,
        is_leased: Callable[[], bool],
        *,
        partitions: int,
        factor: int,
    ) -> None:
        self._leadership, self._metadata, self._admin = leadership, metadata, admin
        self._internal, self._is_leased = internal, is_leased
        self._partitions, self._factor = partitions, factor
        self._creating = threading.Lock()

    @property
    def partition_count(self) -> int:
        """The number of partitions of the topic; 0 if this broker does not know the topic."""
        topic = self._metadata.view.topics.get(self._internal.name)
        return 0 if topic is None else len(topic.partitions)

    def ensure(self) -> int:
        """Return the number of partitions of the topic. If the topic does not exist, create it.

        If several brokers create the topic at the same time, only the first broker succeeds.

        Raises:
            NotServedError: the metadata of this broker does not have the topic yet. The client asks
                again.
        """
        count = self.partition_count
        if count:
            return count
        reason = f"{self._internal.name} is being created"
        if self._creating.acquire(blocking=False):
            try:
                self._create()
            except TopicRefusedError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    LOG.warning("%s cannot be created now: %s", self._internal.name, error)
                    reason = f"{self._internal.name} cannot be created now: {error}"
            finally:
                self._creating.release()
        raise NotServedError(code=ErrorCode.COORDINATOR_NOT_AVAILABLE, reason=reason)

    def _create(self) -> None:
        brokers = len(self._metadata.view.brokers)
        factor = min(self._factor, brokers)
        if factor:
            name, settings = self._internal.name, self._internal.settings
            self._admin.create(NewTopic(name, self._partitions, factor, settings=settings))

    def own(self) -> Sequence[int]:
        """List the partitions that this broker leads."""
        return [number for number in range(self.partition_count) if self._leads(number)]

    def _leads(self, partition: int) -> bool:
        try:
            self.open(partition)
        except (CoordinatorError, LogStoreError):
            return False
        return True

    def open(self, partition: int) -> LedGroupLog:
        """Find the replica on this broker that leads a partition, and its leader epoch.

        Clients may know that this broker is the next leader before its replica leads. Until the
        replica leads, the error is COORDINATOR_LOAD_IN_PROGRESS, so that clients ask this broker
        again.
        """
        try:
            replica, log = self._leadership.leading(self._internal.name, partition)
        except LogStoreError as error:
            is_offline = isinstance(error, ReplicaOfflineError)  # another broker will lead
            if not is_offline and self._will_lead(partition):
                raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NOT_YET) from error
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR, NOT_LED) from error
        # The epoch is read first.
        # If the role changes now, the replica no longer leads in this epoch.
        led = LedGroupLog(replica, log, replica.leader_epoch, self._is_leased)
        if not led.is_led:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR, NOT_LED)
        return led

    def _will_lead(self, partition: int) -> bool:
        """Report whether the controller has announced that this broker leads a partition."""
        announced = self._leadership.facts_of(self._internal.name, partition).leader.id
        return announced == self._leadership.broker_id and self._is_leased()

    def find(self, partition: int, endpoint: Endpoint) -> Node:
        """Find the leader that the controller has announced for a partition.

        If this broker led the partition and was then cut off, it does not know the present leader.
        An error code would not help: some clients ask the same broker again as long as they are
        connected. So the connection is closed, and the client asks another broker.

        Raises:
            CloseConnectionError: this broker may be cut off.
        """
        facts = self._leadership.facts_of(self._internal.name, partition)
        is_own = facts.leader.id == self._leadership.broker_id
        if is_own and not self._is_leased() and not self._leads(partition):
            raise CloseConnectionError(NO_LEASE)
        for node in self._leadership.nodes(endpoint):
            if node.id == facts.leader.id:
                return node
        reason = f"no broker leads partition {partition} of {self._internal.name} now"
        raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)


class LedGroupLog(NamedTuple):
    """Implement `GroupLog`: a partition that this broker leads, in one leader epoch."""

    replica: HostedReplica
    log: Log
    leader_epoch: int
    is_leased: Callable[[], bool]

    @property
    def is_led(self) -> bool:
        """Whether the replica leads in this epoch, and certainly no broker leads a later epoch.

        This is certain if the broker's session has not ended, or if the other in-sync replicas
        still fetch.
        """
        is_same = self.replica.leads(self.leader_epoch) and self.replica.log is self.log
        return is_same and (self.is_leased() or self.replica.is_followed(FOLLOWED_SECONDS))

    @property
    def is_settled(self) -> bool:
        """Whether all records are replicated.

        When all records are replicated, only the groups of this broker append records.
        """
        log = self.log
        return self.replica.is_end_replicated and log.high_watermark >= log.log_end_offset

    @property
    def epoch(self) -> int:
        """The leader epoch of the partition."""
        return self.leader_epoch

    def mend(self) -> None:
        """Do nothing. A replica with a damaged log fetches the missing records as a follower."""

    def append(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamp: int
    ) -> Wait | None:
        """Append with acks=all, but only in this leader epoch."""
        return self._append(GroupAppend(self, keys, values, timestamp))

    def append_of(
        self,
        producer: Producer,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamp: int,
    ) -> Wait | None:
        """Append a batch of a transaction with acks=all, but only in this leader epoch."""
        return self._append(GroupAppend(self, keys, values, timestamp, producer))

    def _append(self, append: GroupAppend) -> Wait | None:
        self.replica.tell(x.Produced(append, ALL_ACKS))
        append.taken()
        return None if append.is_acknowledged else append


class GroupAppend(ReplicaAppend):
    """Records of a coordinator that wait for the other replicas."""

    __slots__ = ("_led", "_producer", "_rows")

    def __init__(
        self,
        led: LedGroupLog,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamp: int,
        producer: Producer | None = None,
    ) -> None:
        super().__init__(led.replica, None)
        self._led, self._rows = led, (keys, values, timestamp)
        self._producer = producer

    def written(self, log: Log, leader_epoch: int) -> AppendInfo:
        """Append the records.

        Refuse the append if another broker may have led after the groups were read.
        """
        is_same = leader_epoch == self._led.leader_epoch and log is self._led.log
        if not is_same or leader_epoch < log.leader_epoch:
            raise NotServedError(code=ErrorCode.NOT_LEADER_OR_FOLLOWER, reason=NOT_LED)
        keys, values, timestamp = self._rows
        self._rows = (), (), 0  # free the records, because the request may wait for a long time
        if (producer := self._producer) is not None:
            return log.append_of_transaction(
                producer.id, producer.epoch, values, keys, timestamp,
                token=producer.token, leader_epoch=leader_epoch,
            )  # fmt: skip
        log.leader_epoch = leader_epoch
        offsets = log.extend(values, keys=keys, timestamps=timestamp)
        return AppendInfo(offsets.start, offsets.stop - 1, -1, log.log_start_offset, timestamp)
