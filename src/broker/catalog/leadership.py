"""Report leaders, replicas and leader epochs for a broker that runs without a cluster.

A broker of a cluster needs a class with the same methods that asks the controller. The handlers of
requests need no other facts about other brokers.
"""

from __future__ import annotations

from broker.wire.error_codes import ErrorCode
from logstore import Log

NO_EPOCH = -1


class SoleBroker:
    """The only broker: it leads every partition, and it is the only replica."""

    def __init__(self, broker_id: int, cluster_id: str) -> None:
        self.broker_id = broker_id
        self.cluster_id = cluster_id

    @property
    def replica_ids(self) -> tuple[int, ...]:
        """The brokers that have a replica."""
        return (self.broker_id,)

    def fault_of_epoch(self, log: Log, epoch: int) -> ErrorCode:
        """Compare the leader epoch that a client knows with the log's epoch; -1 is not compared."""
        if epoch == NO_EPOCH or epoch == (current := log.leader_epoch):
            return ErrorCode.NONE
        if epoch < current:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH
