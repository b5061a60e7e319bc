"""Report leaders, replicas and leader epochs for a broker that runs without a cluster.

For a broker of a cluster, a class with the same methods would ask the controller. The handlers of
requests need to know nothing else about other brokers.
"""

from __future__ import annotations

from broker.wire.error_codes import ErrorCode
from logstore import Log

NO_EPOCH = -1


class SoleBroker:
    """Describe a broker without a cluster: it leads every partition and has the only replica."""

    def __init__(self, broker_id: int, cluster_id: str) -> None:
        self.broker_id = broker_id
        self.cluster_id = cluster_id

    @property
    def replica_ids(self) -> tuple[int, ...]:
        """The ids of the brokers that have a replica of each partition."""
        return (self.broker_id,)

    def fault_of_epoch(self, log: Log, epoch: int) -> ErrorCode:
        """Return an error if a client's leader epoch is not the log's epoch; -1 is no error."""
        if epoch == NO_EPOCH or epoch == (current := log.leader_epoch):
            return ErrorCode.NONE
        if epoch < current:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH
