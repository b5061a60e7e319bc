"""Define the events and effects of a replica, besides the requests between brokers."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from cluster.registration import TopicIdentity
from cluster.requests import FollowerFetch

Waiter = Any  # the caller passes this object with a produce; the rules only return it


class LogLife(NamedTuple):
    """One incarnation of a log. Each effect on the disk and each result of an effect names a life.

    A result may come late, after the log was deleted and created again. The results of appends come
    in the order in which the appends have begun. The result of a flush or a read may come at any
    time.

    Attributes:
        life: how often the log was created, removed, lost or opened. If this number has changed
            when an append ends, the appended records are not in this log.
        copy: this number rises together with `life`, and at each cut and each move. If `copy` has
            changed when a flush ends, the flush does not count for this log.
    """

    topic: TopicIdentity
    life: int
    copy: int

    def is_same_life(self, other: LogLife) -> bool:
        """Check that `other` names the same life of the log, and so the same appended records."""
        return self.topic.is_same(other.topic) and self.life == other.life


class ProduceError(enum.Enum):
    """The reason why a produce is not acknowledged; the names are Kafka's."""

    NOT_LEADER = "NOT_LEADER_OR_FOLLOWER"
    NOT_ENOUGH_REPLICAS = "NOT_ENOUGH_REPLICAS"
    TIMED_OUT = "REQUEST_TIMED_OUT"


# --- events ---


class Opened(NamedTuple):
    """Event: the log dir was read, at a start or after its return. The replica has no role yet.

    Attributes:
        topic: the topic of the replica, or NO_TOPIC if there is none.
        spans: each leader epoch of the log, and the offset at which it ends.
        start: the offset at which the first batch begins (see StartRose).
        log_start_offset: the first offset that is not deleted, if it is inside the first batch.
        own_since: the replica's own `whole_since`, as its metadata says.
        placed_since: the `whole_since` of the log dir at the time when the replica moved there.
        placed_in: the log dir for which these two numbers were written. If this is another log dir
            than `dir_id`, the replica was moved, and the broker was killed before it wrote the
            numbers again. "" means `dir_id`.
        counts_flushed: whether the metadata says that the replica acknowledged only flushed records
            (P24).
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
    placed_in: str = ""


class StartRose(NamedTuple):
    """Event: records below an offset were deleted.

    All deleted records were below the high watermark.

    Attributes:
        start: the offset at which the log begins now. If the first offset that is not deleted is
            inside a batch, this is the start of that batch, because a follower copies only whole
            batches.
        log_start_offset: the first offset that is not deleted, if it is inside that batch.
    """

    start: int
    log_start_offset: int = 0


class RoleEnded(NamedTuple):
    """Event: the replica's log dir failed.

    Attributes:
        is_left: the log dir failed during `RemoveReplica`, so it may still have the replica.
    """

    is_left: bool = False


class LeaseEnded(NamedTuple):
    """Event: the store answered no heartbeat in time, so the broker's session may have ended."""


class LeaseRenewed(NamedTuple):
    """Event: the store answered a heartbeat again, or the broker has a new session."""


class Placed(NamedTuple):
    """Event: a replica that does not exist yet will be created in this log dir."""

    dir_id: str


class Moved(NamedTuple):
    """Event: the mover replaced the replica by its copy in another log dir of this broker.

    Attributes:
        flushed: in the new copy, the records below this offset are flushed. If the replica
            acknowledges only flushed records, at least as many records must be flushed in the new
            copy as in the replaced copy.
    """

    dir_id: str
    flushed: int


class Produced(NamedTuple):
    """Event: a client asks for an append. The acks are Kafka's: 0, 1, or -1 for all."""

    waiter: Waiter
    acks: int


class Appended(NamedTuple):
    """Event: an append as leader has ended; the records are in the log, or the append failed.

    Each AppendAsLeader has one such result. A replica does not fetch as a follower until it has the
    results of all its appends.

    Attributes:
        log: the log that the effect named.
        spans: the leader epochs of the new records, each with the offset at which it ends. There
            are no spans if the append failed, or if the log already had these records.
        waiter: the append of the client, if it waits for all in-sync replicas; otherwise None.
        end_offset: the offset after the records of that produce.
        leader_epoch: the epoch for which the leader appended.
    """

    log: LogLife
    spans: tuple[tuple[int, int], ...]
    waiter: Waiter = None
    end_offset: int = 0
    leader_epoch: int = 0


class GaveUp(NamedTuple):
    """Event: the timeout of a client has passed while the client waits for all in-sync replicas."""

    waiter: Waiter


class Deleted(NamedTuple):
    """Event: a client waits until all in-sync replicas have deleted records.

    Before this event, the caller must report with StartRose that this log begins later.
    """

    waiter: Waiter


class AppendedAsFollower(NamedTuple):
    """Event: records that the leader sent were appended, or the append failed.

    Attributes:
        log: the log that the effect named.
        spans: the leader epochs of the new records, each with the offset at which it ends.
    """

    log: LogLife
    spans: tuple[tuple[int, int], ...]


class Flushed(NamedTuple):
    """Event: a flush has ended. The records of the named log below this offset are flushed."""

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
    """Effect: send the records that begin at the offset of the fetch, and the high watermark."""

    request: FollowerFetch
    high_watermark: int


class CreateReplica(NamedTuple):
    """Effect: create an empty replica, and write its registration epoch into its metadata."""

    topic: TopicIdentity
    dir_id: str
    own_since: int


class WriteTopic(NamedTuple):
    """Effect: write the topic of the replica durably into its metadata.

    The metadata had no topic id. The id shows that the log does not belong to a newer topic of the
    same name.
    """

    topic: TopicIdentity


class RemoveReplica(NamedTuple):
    """Effect: delete the replica."""


class WriteOwnSince(NamedTuple):
    """Effect: durably store the replica's own `whole_since` in its metadata.

    Attributes:
        counts_flushed: whether only flushed records are acknowledged from now on. If this is True,
            a loss of power destroys no acknowledged record (P24).
        placed_since: if the log dir lost records only before this epoch, the replica lost nothing.
    """

    own_since: int
    counts_flushed: bool
    placed_since: int


class AppendAsLeader(NamedTuple):
    """Effect: append the records of a client, in this leader epoch; Appended reports the result."""

    log: LogLife
    waiter: Waiter
    leader_epoch: int
    acks: int


class AppendAsFollower(NamedTuple):
    """Effect: append records that the leader sent; AppendedAsFollower reports the result.

    Attributes:
        leader_epoch: the leader epoch of the leader that sent the batches. Batches of a later epoch
            are refused. A batch of a later epoch shows that another leader had replaced this leader
            before the batch was read. So earlier records in the log of the replaced leader may have
            changed, too.
        may_lack: whether compaction may have removed offsets from the leader's log.
    """

    log: LogLife
    records: Any
    leader_epoch: int
    may_lack: bool = False


class TruncateTo(NamedTuple):
    """Effect: remove the records from an offset on.

    Attributes:
        keep_below: if this is larger than the offset, the removed records below `keep_below` are
            kept in a `.lost` file.
    """

    offset: int
    keep_below: int


class BeginAt(NamedTuple):
    """Effect: remove all records. The empty log begins at or after its old end.

    Attributes:
        keeps_lost: whether the removed records are kept in a `.lost` file.
    """

    offset: int
    keeps_lost: bool


class DeleteBefore(NamedTuple):
    """Effect: delete records before an offset, as the leader did; StartRose reports the result."""

    offset: int


class Flush(NamedTuple):
    """Effect: flush the log up to this offset; Flushed reports the result."""

    log: LogLife
    offset: int


class AdvanceHighWatermark(NamedTuple):
    """Effect: set the log's high watermark."""

    offset: int


class Acknowledge(NamedTuple):
    """Effect: report to a client that its records are replicated, up to this offset."""

    waiter: Waiter
    end_offset: int


class Refuse(NamedTuple):
    """Effect: report to a client that perhaps some replicas lack its records."""

    waiter: Waiter
    error: ProduceError


class Alarm(NamedTuple):
    """Effect: report that the replica has stopped, and why; an operator has to check it."""

    reason: str
