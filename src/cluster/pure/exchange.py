"""Define the events and effects of a replica, besides the requests between brokers."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from cluster.registration import TopicIdentity
from cluster.requests import FollowerFetch

Waiter = Any  # an object that the caller passes with a produce; the rules only return it


class LogLife(NamedTuple):
    """One incarnation of a replica's log, named by effects on the disk and by their results.

    A result may come late, after the log was deleted and created again. The results of appends
    come in the order of their effects. A flush or a read may end at any time.

    Attributes:
        life: how often the log was created, removed, lost or opened. If an append ends in another
            life, its records are not in this log.
        copy: this number also rises with each cut and move. If a flush ends with another number, it
            says nothing about this log.
    """

    topic: TopicIdentity
    life: int
    copy: int

    def is_same_life(self, other: LogLife) -> bool:
        """Check that the records of an append to the other log are in this log."""
        return self.topic.is_same(other.topic) and self.life == other.life


class ProduceError(enum.Enum):
    """The reason why a produce is not acknowledged; the names are Kafka's."""

    NOT_LEADER = "NOT_LEADER_OR_FOLLOWER"
    NOT_ENOUGH_REPLICAS = "NOT_ENOUGH_REPLICAS"
    TIMED_OUT = "REQUEST_TIMED_OUT"


# --- events ---


class Opened(NamedTuple):
    """Event: the log dir was read, at a start or after its return; this ends any role.

    Attributes:
        topic: the topic of the replica, or NO_TOPIC if there is none.
        spans: each leader epoch of the log, and the offset at which it ends.
        start: the offset at which the first batch begins, as in StartRose.
        log_start_offset: the first offset that is not deleted, if it is inside the first batch.
            own_since: since when the replica itself is whole, from its metadata.
        placed_since: since when the log dir was whole, at the time when the replica moved there.
        counts_flushed: whether its metadata says that it counted only flushed records (P24).
        is_incomplete: whether another copy of the replica may have more records.
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
    """Event: records below an offset were deleted; all of them were below the high watermark.

    Attributes:
        start: the offset at which the log begins now. If the first offset that is not deleted is
            inside a batch, this is the start of that batch, because a follower can only copy whole
            batches.
        log_start_offset: the first offset that is not deleted, if it is inside that batch.
    """

    start: int
    log_start_offset: int = 0


class RoleEnded(NamedTuple):
    """Event: the replica's log dir failed."""


class LeaseEnded(NamedTuple):
    """Event: no heartbeat was answered in time, so the broker's session may have ended."""


class LeaseRenewed(NamedTuple):
    """Event: a heartbeat was answered again, or the broker has a new session."""


class Placed(NamedTuple):
    """Event: a replica that does not exist yet will be created in this log dir."""

    dir_id: str


class Moved(NamedTuple):
    """Event: the mover replaced the replica by its copy in another log dir of this broker.

    Attributes:
        flushed: the copy's records below this offset are flushed. If the replica counts only
            flushed records, the offset is at least as large as that of the replaced copy.
    """

    dir_id: str
    flushed: int


class Produced(NamedTuple):
    """Event: a client asks for an append. The acks are Kafka's: 0, 1, or -1 for all."""

    waiter: Waiter
    acks: int


class Appended(NamedTuple):
    """Event: an append as leader has ended: its records are in the log, or it failed.

    Each AppendAsLeader has one such result. A replica does not follow before all results have come.

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
    """Event: the timeout of a client that waits for all replicas is over."""

    waiter: Waiter


class Deleted(NamedTuple):
    """Event: a client has deleted records, and waits until all in-sync replicas have deleted them.

    The log's start has already risen.
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
    """Effect: send the records from the fetch's offset on, with the high watermark."""

    request: FollowerFetch
    high_watermark: int


class CreateReplica(NamedTuple):
    """Effect: create an empty replica, and write its registration epoch into its metadata."""

    topic: TopicIdentity
    dir_id: str
    own_since: int


class WriteTopic(NamedTuple):
    """Effect: write the topic of the replica durably into its metadata.

    The replica had no topic id. With the id, its log cannot be mistaken for the log of a newer
    topic.
    """

    topic: TopicIdentity


class RemoveReplica(NamedTuple):
    """Effect: delete the replica."""


class WriteOwnSince(NamedTuple):
    """Effect: write since when the replica is whole durably into its metadata.

    Attributes:
        counts_flushed: whether only flushed records have counted since then, so that a loss of
            power takes no counted record (P24). placed_since: losses of the log dir before this
            epoch are no losses of the replica.
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
            them, so its earlier records may be different now.
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
    """Effect: remove all records, and begin the log at an offset that is not below its end.

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
    """Effect: report to a client that its records may not be replicated."""

    waiter: Waiter
    error: ProduceError


class Alarm(NamedTuple):
    """Effect: report that the replica has stopped, and why; an operator has to check it."""

    reason: str
