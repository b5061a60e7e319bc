"""Define the events and effects of a replica, besides the requests between brokers."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from cluster.registration import TopicIdentity
from cluster.requests import FollowerFetch

Waiter = Any  # what the caller gave with a produce; the room only hands it back


class LogLife(NamedTuple):
    """One incarnation of a replica's log: an effect on the disk names it, and its result too.

    A result may come late, after the log was deleted and created again. The results of appends
    come in the order of their effects. A flush or a read may end at any time.

    Attributes:
        life: how often the log was created, removed, lost or opened. An append that ends in
            another life is not in this log.
        copy: this number also rises with each cut and move. A flush that ends with another number
            says nothing about this log.
    """

    topic: TopicIdentity
    life: int
    copy: int

    def is_same_life(self, other: LogLife) -> bool:
        """Check that an append to the other log is in this one."""
        return self.topic.is_same(other.topic) and self.life == other.life


class ProduceError(enum.Enum):
    """Why a produce is not acknowledged; the names are Kafka's."""

    NOT_LEADER = "NOT_LEADER_OR_FOLLOWER"
    NOT_ENOUGH_REPLICAS = "NOT_ENOUGH_REPLICAS"
    TIMED_OUT = "REQUEST_TIMED_OUT"


# --- events ---


class Opened(NamedTuple):
    """Event: the log dir was read, at a start or after its return; no role survives this.

    Attributes:
        topic: the topic of the replica, or NO_TOPIC if there is none.
        spans: each leader epoch of the log, and the offset at which it ends.
        start: where the first batch of the log begins, as in StartRose.
        log_start_offset: the first offset that is not deleted, if it is inside that batch.
        own_since: since when the replica itself is whole, from its metadata.
        placed_since: since when its log dir was whole when the replica moved there.
        counts_flushed: whether its metadata says that it counted only flushed records (P24).
        is_incomplete: whether another copy may have more records.
    """

    dir_id: str
    topic: TopicIdentity
    exists: bool
    spans: tuple[tuple[int, int], ...] = ()
    flushed: int = 0
    high_watermark: int = 0
    own_since: int = 0
    is_incomplete: bool = False
    counts_flushed: bool = False
    placed_since: int = 0
    start: int = 0
    log_start_offset: int = 0


class StartRose(NamedTuple):
    """Event: records below an offset were deleted on purpose, all of them below the high watermark.

    Attributes:
        start: where the log begins now. If the first offset that is not deleted is inside a batch,
            this is the offset at which the batch begins: a follower can only copy whole batches.
        log_start_offset: the first offset that is not deleted, if it is inside that batch.
    """

    start: int
    log_start_offset: int = 0


class RoleEnded(NamedTuple):
    """Event: the replica's log dir failed."""


class LeaseEnded(NamedTuple):
    """Event: the broker's session may have ended, because no heartbeat was answered in time."""


class LeaseRenewed(NamedTuple):
    """Event: a heartbeat was answered again, or the broker has a new session."""


class Placed(NamedTuple):
    """Event: a replica that does not exist yet will be created in this log dir."""

    dir_id: str


class Moved(NamedTuple):
    """Event: the mover replaced the replica by its copy in another log dir of this broker.

    Attributes:
        flushed: the copy's records below this offset are flushed. If the replica counts only
            flushed records, these are at least the ones that the old one had flushed.
    """

    dir_id: str
    flushed: int


class Produced(NamedTuple):
    """Event: a client asks for an append. The acks are Kafka's: 0, 1, or -1 for all."""

    waiter: Waiter
    acks: int


class Appended(NamedTuple):
    """Event: an append as leader has ended: its records are in the log, or it failed.

    Each AppendAsLeader has one such result. A replica does not follow before all have come.

    Attributes:
        log: the log that the effect named.
        spans: the leader epochs of the new records, and their ends; empty for duplicates
            of records in the log, and for an append that failed.
        waiter: the produce that waits for all replicas, or None.
        end_offset: the offset after the records of that produce.
        leader_epoch: the epoch for which the leader appended.
    """

    log: LogLife
    spans: tuple[tuple[int, int], ...]
    waiter: Waiter = None
    end_offset: int = 0
    leader_epoch: int = 0


class GaveUp(NamedTuple):
    """Event: a client that waits for all replicas has waited for as long as it wants."""

    waiter: Waiter


class Deleted(NamedTuple):
    """Event: a client has deleted records, and waits until all in-sync replicas have deleted them.

    The log's start has risen already.
    """

    waiter: Waiter


class AppendedAsFollower(NamedTuple):
    """Event: records that the leader sent were appended, or the append failed.

    Attributes:
        log: the log that the effect named.
        spans: the leader epochs of the new records, and their ends.
    """

    log: LogLife
    spans: tuple[tuple[int, int], ...]


class Flushed(NamedTuple):
    """Event: the records below an offset are flushed, in the log that the flush began with."""

    log: LogLife
    offset: int


class FetchDue(NamedTuple):
    """Event: a follower may send its next fetch."""


class Lagged(NamedTuple):
    """Event: members of the ISR did not catch up in time."""

    members: frozenset[int]


class Tick(NamedTuple):
    """Event: time has passed. The leader looks for slow followers, and repeats its proposal."""


# --- effects ---


class SendToController(NamedTuple):
    """Effect: send a request or an answer to the controller."""

    request: Any


class SendToBroker(NamedTuple):
    """Effect: send a request or an answer to a broker."""

    broker: int
    request: Any


class AnswerFetch(NamedTuple):
    """Effect: read records from the fetch's offset on, and send them with the high watermark."""

    request: FollowerFetch
    high_watermark: int


class CreateReplica(NamedTuple):
    """Effect: create an empty replica, and write into its metadata since when it exists."""

    topic: TopicIdentity
    dir_id: str
    own_since: int


class WriteTopic(NamedTuple):
    """Effect: write into the replica's metadata, durably, which topic it belongs to.

    The replica had no topic id. Later, its log must not be taken for the log of a newer topic.
    """

    topic: TopicIdentity


class RemoveReplica(NamedTuple):
    """Effect: delete the replica."""


class WriteOwnSince(NamedTuple):
    """Effect: write into the replica's metadata since when it is whole, durably.

    Attributes:
        counts_flushed: whether since then only flushed records count, so that a loss of power
            takes nothing that counts (P24).
        placed_since: what the log dir lost before this is no loss of the replica.
    """

    own_since: int
    counts_flushed: bool
    placed_since: int


class AppendAsLeader(NamedTuple):
    """Effect: append a client's records, in this leader epoch; Appended reports the end."""

    log: LogLife
    waiter: Waiter
    leader_epoch: int
    acks: int


class AppendAsFollower(NamedTuple):
    """Effect: append records that the leader sent; AppendedAsFollower reports the end.

    Attributes:
        leader_epoch: batches of a later epoch are refused. The leader was replaced before it read
            them, so what it had before them may be different now.
    """

    log: LogLife
    records: Any
    leader_epoch: int


class TruncateTo(NamedTuple):
    """Effect: remove the records from an offset on.

    Attributes:
        keep_below: if larger than the offset, the records below it are kept in a `.lost` file.
    """

    offset: int
    keep_below: int


class BeginAt(NamedTuple):
    """Effect: remove all records, and let the log begin at an offset that is not below its end.

    Attributes:
        keeps_lost: whether the records are kept in a `.lost` file.
    """

    offset: int
    keeps_lost: bool


class DeleteBefore(NamedTuple):
    """Effect: delete the records before an offset, as the leader did; StartRose reports it."""

    offset: int


class Flush(NamedTuple):
    """Effect: flush the log up to this offset; Flushed reports the end."""

    log: LogLife
    offset: int


class AdvanceHighWatermark(NamedTuple):
    """Effect: set the log's high watermark."""

    offset: int


class Acknowledge(NamedTuple):
    """Effect: report to a client that its records are in the log, up to this offset."""

    waiter: Waiter
    end_offset: int


class Refuse(NamedTuple):
    """Effect: report to a client that its records are not known to be replicated."""

    waiter: Waiter
    error: ProduceError


class Alarm(NamedTuple):
    """Effect: report that the replica has stopped, and why; an operator has to look at it."""

    reason: str
