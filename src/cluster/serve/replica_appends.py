"""Append the records of clients through the rules of replication, and wait for the other replicas.

    tell Produced -> the rules -> append -> acknowledge, refuse or fail
                         |
                         +-- acks=all: later, when all in-sync replicas have the records

A request that waits uses no thread. A thread that passes an event to the rules also calls
`acknowledge` or `refuse`, and this call wakes the request.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from broker.catalog.client_appends import ALL_ACKS, TIMED_OUT, Wait, check_format
from broker.catalog.leadership import NotServedError
from broker.wire.error_codes import ErrorCode
from cluster.pure import exchange as x
from cluster.run.hosted_replica import HostedReplica
from cluster.serve.cluster_leadership import ClusterLeadership
from logstore import AppendInfo, Log, LogStoreError

REASONS = {
    x.ProduceError.NOT_LEADER: "this broker does not lead the partition",
    x.ProduceError.NOT_ENOUGH_REPLICAS: (
        "fewer replicas than min.insync.replicas are in sync, or too many requests wait for them; "
        "nothing was written"
    ),
    x.ProduceError.TIMED_OUT: TIMED_OUT,
}


class ReplicaAppends:
    """Implement `Appends` for a broker of a cluster."""

    def __init__(self, leadership: ClusterLeadership) -> None:
        self._leadership = leadership

    def append(
        self, name: str, partition: int, records: Any, acks: int, token: int | None = None
    ) -> tuple[AppendInfo, Wait | None]:
        """Append in the present leader epoch. With acks=all, wait for the in-sync replicas."""
        replica = self._leadership.leading(name, partition).replica
        append = ReplicaAppend(replica, records, token)
        replica.tell(x.Produced(append, acks))
        info = append.taken()
        if append.is_acknowledged:
            return info, None
        if acks != ALL_ACKS:  # the records are in the log, but the log failed later
            raise refusal_of(x.ProduceError.TIMED_OUT)
        return info, append

    def append_marker(
        self,
        name: str,
        partition: int,
        producer_id: int,
        epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        is_raised: bool = False,
    ) -> Wait | None:
        """Append a marker in the present leader epoch, with acks=all."""
        replica = self._leadership.leading(name, partition).replica
        marker = producer_id, epoch, is_commit, coordinator_epoch, is_raised
        append = MarkerAppend(replica, marker)
        replica.tell(x.Produced(append, ALL_ACKS))
        append.taken()
        return None if append.is_acknowledged else append

    def delete_before(self, name: str, partition: int, offset: int) -> Wait | None:
        """Delete the records before an offset, and wait for the in-sync replicas."""
        replica, log = self._leadership.leading(name, partition)
        log.delete_records_before(offset)
        wait = ReplicaWait(replica)
        replica.tell(x.Deleted(wait))
        return None if wait.is_acknowledged else wait


class ReplicaWait:
    """Implement `Wait` for a request that waits until the in-sync replicas have a change.

    Threads: the rules call `acknowledge` and `refuse`, one call at a time. Any thread may call the
    other methods.
    """

    __slots__ = ("_replica", "_wake", "error", "is_acknowledged")

    def __init__(self, replica: HostedReplica) -> None:
        self._replica = replica
        self._wake: Callable[[], None] | None = None
        self.error: NotServedError | None = None
        self.is_acknowledged = False

    # --- for the rules ----------------------------------------------------------------------------

    def acknowledge(self, end_offset: int) -> None:
        """Wake the request, so that the client gets its answer."""
        self.is_acknowledged = True
        self._rouse()

    def refuse(self, error: x.ProduceError) -> None:
        """Wake the request, so that the client gets an error."""
        self.error = refusal_of(error)
        self._rouse()

    def _rouse(self) -> None:
        wake = self._wake
        if wake is not None:
            wake()

    # --- for the request --------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether the change was acknowledged or refused."""
        return self.is_acknowledged or self.error is not None

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` when the wait is over."""
        self._wake = wake

    def give_up(self) -> None:
        """Ask the rules to end the wait, unless they have just acknowledged the change."""
        with suppress(LogStoreError):  # a thread hangs with the replica
            self._replica.tell(x.GaveUp(self))
        if not self.is_over:  # the rules have already forgotten this wait
            self.error = refusal_of(x.ProduceError.TIMED_OUT)

    def close(self) -> None:
        """Stop calling `wake`."""
        self._wake = None


class ReplicaAppend(ReplicaWait):
    """Implement `Produce` for the rules, and `Wait` for the request."""

    __slots__ = ("_failure", "_info", "_records", "_token")

    def __init__(self, replica: HostedReplica, records: Any, token: int | None = None) -> None:
        super().__init__(replica)
        self._records, self._token = records, token
        self._failure: Exception | None = None
        self._info: AppendInfo | None = None

    def taken(self) -> AppendInfo:
        """Return the offsets of the records; if they were refused, raise the reason."""
        if self._failure is not None:
            raise self._failure
        if self.error is not None:
            raise self.error
        if self._info is None:
            raise refusal_of(x.ProduceError.TIMED_OUT)
        return self._info

    # --- for the rules ----------------------------------------------------------------------------

    def append(self, log: Log, leader_epoch: int) -> AppendInfo:
        """Append the records, and store their offsets."""
        self._info = self.written(log, leader_epoch)
        return self._info

    def written(self, log: Log, leader_epoch: int) -> AppendInfo:
        """Append the records. A log with a later leader epoch refuses the records."""
        # free the batch, because the request may wait for a long time
        records, self._records = self._records, None
        check_format(log)
        return log.append_encoded(records, leader_epoch=leader_epoch, token=self._token)

    def fail(self, error: Exception) -> None:
        """Store the error of the log; `taken` raises it later."""
        self._failure = error


class MarkerAppend(ReplicaAppend):
    """A marker that waits for the other replicas."""

    __slots__ = ("_marker",)

    def __init__(self, replica: HostedReplica, marker: tuple[int, int, bool, int, bool]) -> None:
        super().__init__(replica, None)
        self._marker = marker

    def written(self, log: Log, leader_epoch: int) -> AppendInfo:
        """Append the marker. A log with a later leader epoch refuses the marker."""
        check_format(log)
        producer_id, epoch, is_commit, coordinator_epoch, is_raised = self._marker
        return log.append_marker(
            producer_id, epoch,
            commit=is_commit, coordinator_epoch=coordinator_epoch, leader_epoch=leader_epoch,
            is_epoch_raised=is_raised,
        )  # fmt: skip


def refusal_of(error: x.ProduceError) -> NotServedError:
    """Translate a refusal of the rules into Kafka's error of the same name."""
    return NotServedError(code=ErrorCode[error.value], reason=REASONS[error])
