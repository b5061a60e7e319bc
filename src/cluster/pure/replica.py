"""Keep the state of one replica: its log dir, the ends of its log, and its role.

The following invariants are checked after each event. The high watermark is neither before the log
start nor after the log end. Only a leader has waiting appends. Only a leader has proposals. When
the lease of the leader ends, the leader keeps its proposals. A replica without a state has no role.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from cluster.pure.attest import Host
from cluster.pure.exchange import (
    AdvanceHighWatermark,
    CreateReplica,
    LogLife,
    ProduceError,
    Refuse,
    SendToController,
    Waiter,
    WriteOwnSince,
)
from cluster.pure.log_ends import LogEnds
from cluster.registration import NO_TOPIC, NO_VERSION, TopicIdentity
from cluster.requests import NEVER, LeaderAndIsr, RoleAnswer
from cluster.state import State

LAG_SECONDS_MAX = 30.0  # replica.lag.time.max.ms
RETRY_SECONDS = 1.0
WAITING_MAX = 1000  # the appends of one partition that wait or are running


class Role(enum.Enum):
    """The role of a replica in its present leader epoch."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"


class Follower(NamedTuple):
    """The leader's facts about a follower in this leader epoch.

    Attributes:
        offset: the offset of the last fetch. The follower has all records before this offset.
        caught_up_at: the last time when the follower had all records of the leader.
        leader_end: the leader's log end at the time of the last fetch.
        log_start: the log start offset of the follower.
    """

    offset: int
    registration_epoch: int
    caught_up_at: float
    fetched_at: float
    leader_end: int
    log_start: int = 0


class Replica:
    """One replica of a partition on one broker; `partition.handle` changes it.

    Attributes:
        topic: the latest topic of this name that the broker knows.
        dir_id: the log dir of the replica. If the replica does not exist yet, it is created in this
            log dir.
        own_since: the replica may lack records that were written before this registration epoch.
        placed_since: the `whole_since` of the log dir at the time when the replica moved there.
        placed_in: the log dir for which `own_since` and `placed_since` were written. It differs
            from `dir_id` if the replica was moved, and the numbers were not written again yet.
        counts_flushed: whether the metadata says that only flushed records are acknowledged (P24).
        unflushed_end: the log end at the time when flushes before acknowledgements were turned on.
        life: the number of the log's incarnation. `copy` also counts cuts and moves (see LogLife).
        appending: the number of running appends of this life.
        version: the version of the last state that the replica obeyed; -1 if there is none.
        state: the last state that the replica obeyed; None while the replica has no role.
        elected_at: the leader's registration epoch when it was elected.
        ended_epoch: the last leader epoch in which this replica led when its log failed. The
            replica does not lead in this epoch again, because it has forgotten its proposals (P7).
        epoch_start: the log end at the start of this leader epoch.
        leader_high_watermark: the last known high watermark of the present leader; 0 if none is
            known.
            leader_start: the start of the leader's log; 0 if it is not known yet.
        has_lease: whether it is certain that the broker's session has not ended.
        is_suspended: whether this leader has lost its role only because its lease has ended.
        proposed: the members of all ISRs that this leader proposed for this version.
        waiting_max: the largest number of waiting appends; further appends are refused.
        waiting: the appends that wait for the high watermark, each with its end offset and leader
            epoch.
        deletions: the deletions that wait, each with an offset. A deletion ends when the logs of
            all in-sync replicas begin at this offset or later.
    """

    def __init__(self, host: Host, partition: int, lag_seconds_max: float = LAG_SECONDS_MAX):
        self.host = host
        self.partition = partition
        self.lag_seconds_max = lag_seconds_max
        self.waiting_max = WAITING_MAX
        self.effects: list[Any] = []
        self.topic: TopicIdentity = NO_TOPIC
        self.dir_id = self.placed_in = host.dir_for_new
        self.exists = self.is_incomplete = False
        self.own_since = self.placed_since = self.unflushed_end = 0
        self.counts_flushed = False
        self.log = LogEnds()
        self.life = self.copy = self.appending = 0
        self.high_watermark = self.leader_high_watermark = self.leader_start = 0
        self.has_lease, self.is_suspended = True, False
        self.role = Role.NONE
        self.version = NO_VERSION
        self.leader_epoch = self.elected_at = self.epoch_start = self.ended_epoch = 0
        self.state: State | None = None
        self.led_since = self.proposed_at = 0.0
        self.proposed: set[int] = set()
        self.followers: dict[int, Follower] = {}
        self.waiting: dict[Waiter, tuple[int, int]] = {}
        self.deletions: dict[Waiter, int] = {}

    @property
    def broker_id(self) -> int:
        """The broker that has this replica."""
        return self.host.broker_id

    @property
    def is_dir_good(self) -> bool:
        """Whether the replica's log dir works."""
        return self.host.dirs[self.dir_id].is_good

    @property
    def min_isr(self) -> int:
        """The size of the smallest ISR that may advance the high watermark, as the state says."""
        assert self.state is not None
        return self.state.min_isr

    @property
    def log_life(self) -> LogLife:
        """The present incarnation of the log."""
        return LogLife(self.topic, self.life, self.copy)

    @property
    def flushes(self) -> bool:
        """Whether the state says that only flushed records may be acknowledged."""
        return self.state is not None and self.state.flushes

    @property
    def member_epoch(self) -> int:
        """The registration epoch at which this replica can be admitted to an ISR."""
        return self.host.registration_epoch

    @property
    def held_since(self) -> int:
        """The larger of two epochs: that of the log dir, and that of the replica.

        Roles of earlier epochs have ended.
        """
        return max(self.host.dirs[self.dir_id].epoch, self.own_since)

    @property
    def whole_since(self) -> int:
        """The registration epoch since which no record was lost; NEVER for an incomplete log."""
        if self.is_incomplete:
            return NEVER
        return self.whole_since_if(flushes=self.counts_flushed)

    def whole_since_if(self, *, flushes: bool) -> int:
        """Return `whole_since`. If `flushes`, ignore losses of unflushed records.

        If the replica was moved, and its numbers were not written again, the losses of both log
        dirs count.
        """
        since = self.host.whole_since(
            self.placed_in, self.own_since, flushes=flushes, placed_since=self.placed_since
        )
        if not self.is_displaced:
            return since
        if since == NEVER:  # the earlier log dir is gone, so nobody knows what it has lost
            since = self.host.registration_epoch
        return self.host.whole_since(self.dir_id, since, flushes=flushes)

    @property
    def is_displaced(self) -> bool:
        """Whether the replica's numbers were written for another log dir than its present one."""
        return self.placed_in != self.dir_id

    @property
    def created_since(self) -> int:
        """The registration epoch at which a replica would be created now."""
        return self.host.registration_epoch

    def create(self) -> None:
        """Create an empty replica, which is whole since the present registration epoch (P4)."""
        self.remove_facts()
        self.exists = True
        self.own_since, self.placed_in = self.created_since, self.dir_id
        self.emit(CreateReplica(self.topic, self.dir_id, self.own_since))

    def remove_facts(self) -> None:
        """Forget the log."""
        self.exists = self.is_incomplete = self.counts_flushed = False
        self.begin_life()
        self.log = LogEnds()
        self.high_watermark = self.own_since = self.placed_since = self.ended_epoch = 0
        self.placed_in = self.dir_id

    def forget_leaders_log(self) -> None:
        """Forget the facts about the leader's log."""
        self.leader_high_watermark = self.leader_start = 0

    def begin_life(self) -> None:
        """Begin another life of the log. Results of running appends and flushes are ignored."""
        self.life, self.copy, self.appending = self.life + 1, self.copy + 1, 0

    def write_own_since(self) -> None:
        """Write the replica's numbers into its metadata."""
        self.emit(WriteOwnSince(self.own_since, self.counts_flushed, self.placed_since))

    def end_append(self) -> None:
        """Remember that an append of this life has ended."""
        self.appending = max(self.appending - 1, 0)

    def is_of_this_life(self, log: LogLife) -> bool:
        """Check that an append or a read belongs to this log, not to an earlier log."""
        return log.is_same_life(self.log_life)

    def is_of_this_copy(self, log: LogLife) -> bool:
        """Check that the log was neither cut nor moved after a flush began."""
        return self.is_of_this_life(log) and log.copy == self.copy

    def emit(self, effect: Any) -> None:
        """Add an effect of the event that is being handled."""
        self.effects.append(effect)

    def set_high_watermark(self, offset: int) -> None:
        """Change the high watermark, and report it to the log."""
        if offset != self.high_watermark:
            self.high_watermark = offset
            self.emit(AdvanceHighWatermark(offset))

    def answer(self, *, is_offline: bool = False, topic: TopicIdentity | None = None) -> None:
        """Send to the controller the facts that elections need."""
        epoch, topic = self.host.registration_epoch, topic or self.topic
        if is_offline:
            answer = RoleAnswer(topic, self.partition, self.broker_id, epoch, is_offline=True)
        else:
            answer = RoleAnswer(
                topic,
                self.partition,
                self.broker_id,
                epoch,
                is_offline=False,
                whole_since=self.whole_since,
                last_epoch=self.log.last_epoch,
                log_end_offset=self.log.end,
                version=self.version,
                held_since=self.held_since,
            )
        self.emit(SendToController(answer))

    def fail_waiting(self) -> None:
        """Fail all waiting requests. From the error it is not known whether the log has changed."""
        for waiter in (*self.waiting, *self.deletions):
            self.emit(Refuse(waiter, ProduceError.TIMED_OUT))
        self.waiting, self.deletions = {}, {}

    def end_role(self) -> None:
        """Forget the role and its state, but keep the topic and the log."""
        self.fail_waiting()
        is_leader = self.role is Role.LEADER or self.is_suspended
        if is_leader and self.is_dir_good:  # after a failure, a new epoch begins in any case (P11)
            self.ended_epoch = self.leader_epoch
        self.role, self.is_suspended = Role.NONE, False
        self.state = None
        self.version = NO_VERSION if self.exists else self.version
        self.leader_epoch = self.elected_at = 0
        self.forget_leaders_log()
        self.proposed = set()
        self.followers = {}

    def obey(self, request: LeaderAndIsr) -> None:
        """Take over the facts of a request, except the role itself."""
        self.state, self.version = request.state, request.version
        self.proposed = set()
        self.forget_leaders_log()
        self.leader_epoch = max(request.state.leader_epoch, self.leader_epoch)

    def check(self) -> None:
        """Assert the invariants."""
        start, end = self.log.start, self.log.end
        assert start <= self.high_watermark <= end, "the high watermark is not in the log"
        assert self.role is Role.NONE or (self.state is not None and self.exists)
        assert self.role is Role.LEADER or not (self.waiting or self.deletions)
        assert self.role is Role.LEADER or self.is_suspended or not self.proposed
