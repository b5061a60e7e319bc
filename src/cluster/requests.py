"""Define the requests between brokers, and their answers, as data.

A request may arrive late. To make late requests harmless, each request names its topic, the broker
epoch or registration epoch, the leader epoch, and the version of the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from cluster.registration import TopicIdentity
from cluster.state import State

NEVER = 2**63 - 1  # the value of whole_since for a replica that is not whole
NO_EPOCH = -1  # the last epoch of a log whose records have no leader epoch


class LeaderAndIsr(NamedTuple):
    """Give a replica its role; the controller sends this request.

    Attributes:
        broker_epoch: the epoch of the addressed broker.
        version: the version of the state.
        is_new: whether the topic was just created. A new topic can have no older replica.
    """

    topic: TopicIdentity
    partition: int
    broker_epoch: int
    version: int
    state: State
    is_new: bool = False


class RoleAnswer(NamedTuple):
    """The facts of a replica, as an answer to LeaderAndIsr, or after a failure of its log dir.

    Attributes:
        registration_epoch: the registration epoch of the broker at the time of the answer.
        is_offline: whether the replica cannot be used now. If the replica is offline, the facts
            below are 0.
        whole_since: the replica lost no record since this registration epoch.
        last_epoch: the leader epoch of the last record; -1 for an empty log.
        version: the version of the last state that the replica obeyed.
        held_since: after this registration epoch, the log dir of the replica neither failed nor
            returned. A replica that was elected at an earlier epoch cannot lead.
    """

    topic: TopicIdentity
    partition: int
    broker: int
    registration_epoch: int
    is_offline: bool
    whole_since: int = 0
    last_epoch: int = 0
    log_end_offset: int = 0
    version: int = 0
    held_since: int = 0


class StopReplica(NamedTuple):
    """Ask a broker to delete its replica, because this version of the state no longer names it."""

    topic: TopicIdentity
    partition: int
    broker_epoch: int
    version: int


class StopAnswer(NamedTuple):
    """Report that a broker has no replica of a topic that a StopReplica names.

    Attributes:
        version: the version in the StopReplica that this object answers.
    """

    topic: TopicIdentity
    partition: int
    broker: int
    version: int


class ControlledShutdown(NamedTuple):
    """Announce that a broker will stop. Before it stops, other brokers become the leaders (P21)."""

    broker: int
    broker_epoch: int


class FollowerFetch(NamedTuple):
    """Ask a leader for the records after a follower's log end.

    Attributes:
        last_epoch: the leader epoch of the follower's last record; -1 for an empty log.
        is_leaving: whether the follower's broker will stop. A follower whose broker will stop joins
            no ISR (P21).
        log_start: the log start offset of the follower. The log start offset may be inside the
            first batch.
    """

    topic: TopicIdentity
    partition: int
    follower: int
    registration_epoch: int
    leader_epoch: int
    offset: int
    last_epoch: int
    is_leaving: bool = False
    log_start: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the follower's log has no record."""
        return self.offset == self.log_start


class FetchAnswer(NamedTuple):
    """Answer a fetch with records, or with an epoch and the offset to which the follower truncates.

    Attributes:
        request: the fetch that is answered.
        records: the record batches, which only the log can decode.
        diverging: None, or an epoch of the leader's log and the offset at which the epoch ends.
        log_start: the offset at which the leader's log begins.
        may_lack: whether compaction may have removed offsets from the leader's log.
    """

    request: FollowerFetch
    high_watermark: int
    records: Any = None
    diverging: tuple[int, int] | None = None
    log_start: int = 0
    may_lack: bool = False

    @property
    def is_beginning_anew(self) -> bool:
        """Whether the two logs share no record: the follower begins again at `log_start`."""
        return self.diverging == (NO_EPOCH, self.log_start)


class AlterPartition(NamedTuple):
    """Propose an ISR to the controller, with the registration epoch of each member.

    Attributes:
        version: the version of the state that the leader knows.
    """

    topic: TopicIdentity
    partition: int
    leader: int
    leader_registration_epoch: int
    leader_epoch: int
    version: int
    isr: Mapping[int, int]


class AlterRefused(NamedTuple):
    """Refuse an AlterPartition request that names this version."""

    topic: TopicIdentity
    partition: int
    version: int
