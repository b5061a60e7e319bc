"""Define the requests of administrators about leaders and replicas.

SoleReplicas         a broker without a cluster: it has each replica, and leads it
cluster.control      a broker of a cluster: the controller decides
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from broker.wire.error_codes import ErrorCode

Place = tuple[str, int]  # topic name and partition
NO_PARTITION = "there is no such partition"


class Outcome(NamedTuple):
    """The result for one partition: NONE, or an error code and its reason."""

    code: ErrorCode = ErrorCode.NONE
    reason: str | None = None


UNKNOWN = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_PARTITION)


class Reassignment(NamedTuple):
    """A running reassignment (KIP-455).

    Attributes:
        replicas: the brokers that have a replica now, including brokers that are being added or
            removed.
    """

    replicas: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]


class ReplicaChanges(Protocol):
    """Change leaders and replicas. Each method waits at most the given time.

    Any thread may call any method. If a method changes nothing at all, it returns an error code.
    For example, this broker may not be the controller.
    """

    def elect_leaders(
        self, places: Sequence[Place] | None, *, is_unclean: bool, seconds: float
    ) -> Mapping[Place, Outcome] | ErrorCode:
        """Let the preferred replicas lead, or elect leaders that may lack records (KIP-460).

        Args:
            places: the partitions. None means all partitions that need an election.
        """

    def alter_reassignments(
        self, wanted: Mapping[Place, Sequence[int] | None], seconds: float
    ) -> Mapping[Place, Outcome] | ErrorCode:
        """Begin reassignments to these brokers. For None, cancel the running reassignment."""

    def list_reassignments(
        self, places: Collection[Place] | None, seconds: float
    ) -> Mapping[Place, Reassignment] | ErrorCode:
        """List the running reassignments of these partitions, or of all partitions."""


class SoleReplicas:
    """Implement `ReplicaChanges` for a broker without a cluster. It has all replicas."""

    def __init__(self, broker_id: int, is_known: Callable[[str, int], bool]) -> None:
        """Store the arguments.

        Args:
            is_known: reports whether a partition exists.
        """
        self._replicas, self._is_known = [broker_id], is_known

    def elect_leaders(
        self, places: Sequence[Place] | None, *, is_unclean: bool, seconds: float
    ) -> Mapping[Place, Outcome] | ErrorCode:
        """Answer that no election is needed, because this broker leads each partition."""
        leads = Outcome(ErrorCode.ELECTION_NOT_NEEDED, "this broker leads it")
        return {place: leads if self._is_known(*place) else UNKNOWN for place in places or ()}

    def alter_reassignments(
        self, wanted: Mapping[Place, Sequence[int] | None], seconds: float
    ) -> Mapping[Place, Outcome] | ErrorCode:
        """Accept the present replicas. Refuse other brokers and cancellations."""
        return {place: self._altered(place, replicas) for place, replicas in wanted.items()}

    def _altered(self, place: Place, replicas: Sequence[int] | None) -> Outcome:
        if not self._is_known(*place):
            return UNKNOWN
        if replicas is None:
            return Outcome(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is under way")
        if list(replicas) != self._replicas:
            reason = f"the brokers are {self._replicas}, not {list(replicas)}"
            return Outcome(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        return Outcome()

    def list_reassignments(
        self, places: Collection[Place] | None, seconds: float
    ) -> Mapping[Place, Reassignment] | ErrorCode:
        """Return an empty list, because a broker without a cluster has no reassignments."""
        return {}
