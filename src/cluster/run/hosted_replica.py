"""Carry out the decisions of one replica's rules on its log.

The rules must see the changes of the log in their order. So one lock is held while the rules decide
about an event and the effects are carried out. A flush runs without this lock, and its result comes
back as an event. If a thread hangs in a call to the disk, the other threads do not wait for it:
they raise an error (`patient_lock`), or end the role as soon as the thread returns (`revocation`).

A log can fail during any effect. After a failure of the log, the facts of the rules may differ from
the log. So the replica loses its role and counts as offline, and its log is read again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from cluster.disks.log_spans import start_of
from cluster.disks.patient_lock import PatientLock
from cluster.disks.record_appends import append, append_as_follower
from cluster.disks.revocation import Revocation
from cluster.pure import exchange as x
from cluster.pure import leader, partition
from cluster.pure.attest import Host
from cluster.pure.replica import LAG_SECONDS_MAX, Replica, Role
from cluster.registration import NO_BROKER, NO_TOPIC, TopicIdentity
from cluster.requests import (
    FetchAnswer,
    FollowerFetch,
    LeaderAndIsr,
    RoleAnswer,
    StopAnswer,
    StopReplica,
)
from cluster.run import replica_facts
from cluster.run.replica_exchange import IsrSizes, Outbox, Served
from logstore import Log, LogConfig, LogStore
from logstore.errors import LogDirError, LogStoreError, UnknownPartitionError

LOG = logging.getLogger("cluster")


class HostedReplica:
    """A replica of one partition on this broker.

    Threads: any thread may call any method. A method that gives an event to the rules raises
    LogStoreError if another thread hangs with the replica's lock. Then the event is lost, as a
    request can be lost.

    Attributes:
        lock: guards the rules and the log.
        on_topic: called when the replica gets another topic. This function must not wait.
        unread_reason: why the log cannot be read, although its log dir works; "" if it was read.
    """

    def __init__(
        self,
        name: str,
        number: int,
        host: Host,
        store: LogStore,
        outbox: Outbox,
        clock: Callable[[], float],
        config_of: Callable[[str], LogConfig | None],
        lag_seconds_max: float = LAG_SECONDS_MAX,
        is_leased: Callable[[], bool] = lambda: True,
    ) -> None:
        """Make a replica without a role; `open` reads its log dir.

        Args:
            host: the broker's registration and log dirs. The id of a log dir is its path.
            config_of: the configuration for the log of a new replica of a topic.
            is_leased: returns whether it is certain that the broker's session has not ended (P16).
        """
        self.name, self.number = name, number
        self._store, self._outbox, self._clock = store, outbox, clock
        self._config_of, self._is_leased = config_of, is_leased
        self._has_lease = True
        self._rules = Replica(host, number, lag_seconds_max)
        self.lock = PatientLock(self.check_dir)
        self._revocation = Revocation()
        self._log: Log | None = None
        self.unread_reason = ""
        self._told_start = 0  # the log start that the rules know
        self.on_topic: Callable[[HostedReplica, TopicIdentity], None] = lambda *_: None
        self._told_topic = self._rules.topic  # the last topic that `on_topic` got
        # The results of the present event for the caller.
        self._is_asked = False
        self._answer: RoleAnswer | StopAnswer | None = None
        self._served: Served | None = None
        self._fetch: tuple[int, FollowerFetch] | None = None

    def __repr__(self) -> str:
        return f"<HostedReplica {self.name}-{self.number}, {self.role.value}>"

    @property
    def role(self) -> Role:
        """The replica's present role."""
        return self._rules.role

    @property
    def needs_ticks(self) -> bool:
        """Whether the replica needs events about the time or about the lease."""
        return self._rules.role is Role.LEADER or self._rules.is_suspended

    @property
    def topic(self) -> TopicIdentity:
        """The topic that the replica belongs to."""
        return self._rules.topic

    @property
    def dir_id(self) -> str:
        """The log dir of the replica, even if its log does not exist yet."""
        return self._rules.dir_id

    @property
    def leader(self) -> int:
        """The leader of the partition, as far as this replica knows."""
        state = self._rules.state
        return NO_BROKER if state is None else state.leader

    @property
    def leader_epoch(self) -> int:
        """The leader epoch that the replica knows."""
        return self._rules.leader_epoch

    @property
    def log_start(self) -> int:
        """The log start offset, as the rules know it."""
        return self._rules.log.log_start_offset

    @property
    def log(self) -> Log | None:
        """The log; None if there is no log, or if its log dir does not work."""
        return self._log

    @property
    def isr_sizes(self) -> IsrSizes:
        """The size of the ISR that this replica knows, and its minimum and maximum."""
        return IsrSizes.of(self._rules.state)

    @property
    def is_unread(self) -> bool:
        """Whether the log could not be read, although its log dir counts as good."""
        return self._log is None and self._rules.exists and self._rules.is_dir_good

    @property
    def is_offline(self) -> bool:
        """Whether the replica cannot be used, because of its log dir or of its own files."""
        return not self._rules.is_dir_good or bool(self.unread_reason)

    @property
    def is_end_replicated(self) -> bool:
        """Whether all records of earlier leader epochs are replicated."""
        return self._rules.high_watermark >= self._rules.epoch_start

    def is_followed(self, seconds: float) -> bool:
        """Check that all members fetched in the last `seconds`, so that no other broker led."""
        return leader.is_followed(self._rules, self._clock() - seconds)

    def open(self) -> None:
        """Read the replica from its log dir. After that, the replica has no role.

        If another thread hangs with the lock, the replica is read before its next event.
        """
        try:
            with self.lock:
                self._reopen()
        except LogStoreError:
            self.revoke()

    def revoke(self) -> None:
        """Acknowledge nothing from now on, and end the role before the next event."""
        self._revocation.begin()

    def end_role(self) -> None:
        """End the role, even if another thread hangs with the lock."""
        try:
            self.tell(x.RoleEnded())
        except LogStoreError:
            self.revoke()

    def place(self, dir_id: str) -> None:
        """Choose the log dir of a log that does not exist yet; if the lock is held, do nothing."""
        if self.lock.patient.acquire(blocking=False):
            try:
                self._handle(x.Placed(dir_id))
            finally:
                self.lock.patient.release()

    def look_at_dir(self) -> None:
        """If the mover has moved the log, tell the rules, and fetch for its new log dir."""
        with self.lock.patient:
            log = self._log
            if log is not None and log.log_dir != self._rules.dir_id:
                self._handle(x.Moved(log.log_dir, log.recovery_point))
                self._outbox.may_fetch(self)

    def tell(self, event: Any) -> None:
        """Let the rules decide about an event or a request, and carry out the effects."""
        with self.lock:
            self._handle(event)

    def serve(self, fetch: FollowerFetch) -> Served | None:
        """Count a follower's position; return the answer, or None if the rules refuse."""
        with self.lock:
            self._served = None
            self._handle(fetch)
            served, self._served = self._served, None
            return served

    def next_fetch(self) -> tuple[int, FollowerFetch] | None:
        """Return the leader and the next fetch; None if there is nothing to fetch now."""
        with self.lock:
            self._fetch = None
            self._handle(x.FetchDue())
            return self._fetch

    def obey(self, role: LeaderAndIsr) -> RoleAnswer | None:
        """Take a role from the controller; return the answer, or None.

        None means that the request names another broker epoch, or that the log cannot be read.
        """
        answer = self._ask(role)
        return answer if isinstance(answer, RoleAnswer) else None

    def stop(self, request: StopReplica) -> StopAnswer | None:
        """Delete the replica; return None if a replica of the topic may still exist."""
        answer = self._ask(request)
        return answer if isinstance(answer, StopAnswer) else None

    def _ask(self, request: LeaderAndIsr | StopReplica) -> RoleAnswer | StopAnswer | None:
        """Return the answer and do not send it. First read the log, if it could not be read."""
        with self.lock:
            self._is_asked = True
            try:
                if self.is_unread:
                    self._reopen()
                if self.is_unread and isinstance(request, LeaderAndIsr):
                    return None
                self._answer = None
                self._handle(request)
                return self._answer
            finally:
                self._is_asked = False

    def leads(self, leader_epoch: int) -> bool:
        """Report whether the replica leads this leader epoch."""
        return self._rules.role is Role.LEADER and self._rules.leader_epoch == leader_epoch

    def flush(self) -> None:
        """Flush the log without the lock, and report the flushed offset."""
        if (log := self._log) is None:
            return
        life = self._rules.log_life  # a flush does not count if the life of the log changes
        try:
            flushed = log.flush()
        except LogStoreError as error:
            with self.lock.patient:
                if self._log is log:
                    self._fail(error)
            return
        with self.lock.patient:
            if self._log is log:
                self._handle(x.Flushed(life, flushed))
                if self._rules.role is Role.FOLLOWER:
                    self._outbox.may_fetch(self)

    def check_dir(self) -> None:
        """Raise LogStoreError if the log dir does not work, or was removed."""
        log = self._log
        path = self._rules.dir_id if log is None else log.log_dir
        self._store.host.dir_of(path).check()

    def _handle(self, event: Any) -> None:
        before = self.role, self.leader, self.leader_epoch
        if self._revocation.take():
            self._decide(x.RoleEnded())
            self._reopen()
        if self._is_leased() is not self._has_lease:  # first report the lease to the rules
            self._has_lease = not self._has_lease
            self._decide(x.LeaseRenewed() if self._has_lease else x.LeaseEnded())
        if (log := self._log) is not None and log.log_start_offset > self._told_start:
            self._told_start = log.log_start_offset  # retention or a client raised the start
            self._decide(x.StartRose(start_of(log), self._told_start))
        self._decide(event)
        if self.topic != self._told_topic:
            self._told_topic = self.topic
            self.on_topic(self, self.topic)
        if (self.role, self.leader, self.leader_epoch) != before:
            self._outbox.changed_role(self)

    def _decide(self, event: Any) -> None:
        effects = partition.handle(self._rules, event, self._clock())
        for number, effect in enumerate(effects, 1):
            try:
                self._carry_out(effect)
            except LogStoreError as error:
                # The log is read again: drop the other effects, except answers to waiting clients.
                for left in effects[number:]:
                    if isinstance(left, x.Acknowledge | x.Refuse):
                        left.waiter.refuse(x.ProduceError.TIMED_OUT)
                self._fail(error, is_left=isinstance(effect, x.RemoveReplica))
                return

    def _carry_out(self, effect: Any) -> None:
        match effect:
            case x.SendToController(RoleAnswer() | StopAnswer() as answer) if self._is_asked:
                self._answer = answer
            case x.SendToController(request):
                self._outbox.to_controller(self.name, request)
            case x.SendToBroker(broker, FollowerFetch() as fetch):
                self._fetch = broker, fetch
            case x.SendToBroker(_, FetchAnswer(_, high_watermark, _, diverging, log_start)):
                self._served = Served(self._open_log(), high_watermark, diverging, log_start)
            case x.AnswerFetch(_, high_watermark):
                self._served = Served(self._open_log(), high_watermark)
            case x.Acknowledge():
                self._revocation.acknowledge(effect)
            case x.Refuse(waiter, error):
                waiter.refuse(error)
            case x.Alarm(reason):
                LOG.error("replica %s-%d stopped: %s", self.name, self.number, reason)
                self._outbox.alarm(self.name, self.number, reason)
            case x.Flush():
                self._outbox.flush_soon(self)
            case _:
                self._change_log(effect)

    def _change_log(self, effect: Any) -> None:
        match effect:
            case x.AppendAsLeader():
                log, end = self._open_log(), self._rules.log.end
                self._handle(append(log, effect, end, self._revocation))
            case x.AppendAsFollower():
                log, end, name = self._open_log(), self._rules.log.end, f"{self.name}-{self.number}"
                self._handle(append_as_follower(log, effect, end, name))
            case x.AdvanceHighWatermark(offset):
                self._open_log().advance_high_watermark(offset)
            case x.TruncateTo(offset, keep_below):
                is_loss = keep_below > offset
                replica_facts.truncate(self._open_log(), offset, keep_lost=is_loss)
            case x.BeginAt(offset, keeps_lost):
                replica_facts.begin_at(self._open_log(), offset, keep_lost=keeps_lost)
                self._told_start = offset
            case x.DeleteBefore(offset):
                if offset > self._open_log().log_start_offset:
                    self._open_log().delete_records_before(offset)
            case x.CreateReplica():
                place = self._store, self.name, self.number
                self._log = replica_facts.create(*place, effect, self._config_of)
                self._told_start = self._log.log_start_offset
            case x.WriteOwnSince():
                placed_in = self._rules.placed_in
                replica_facts.write_own_since(self._store, self._open_log(), effect, placed_in)
            case x.WriteTopic(topic):
                replica_facts.write_topic(self._open_log(), topic)
            case x.RemoveReplica():
                self._log = None
                replica_facts.delete(self._store, self.name, self.number)
            case _:
                raise AssertionError(effect)

    def _open_log(self) -> Log:
        if self._log is None:
            raise UnknownPartitionError(topic=self.name, partition=self.number)
        return self._log

    def _fail(self, error: LogStoreError, *, is_left: bool = False) -> None:
        """End the role after an error of the log, and read the log again."""
        LOG.warning("%s-%d cannot be used now: %s", self.name, self.number, error)
        self._handle(x.RoleEnded(is_left))
        self._reopen()

    def _reopen(self) -> None:
        self._log = None
        try:
            found = replica_facts.read(self._store, self.name, self.number)
            opened = x.Opened(self._rules.dir_id, NO_TOPIC, exists=False)
            if found is not None:
                self._log, self._told_start, opened = found
            self._handle(opened)
            self.unread_reason = ""
        except LogDirError as error:
            LOG.info("%s-%d is not present: %s", self.name, self.number, error)
            self.unread_reason = ""
            self._handle(x.RoleEnded())
        except Exception as error:  # noqa: BLE001 - the log dir works: only this replica is offline
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Let the replica count as offline, because its log exists but cannot be read."""
        self._log = None
        self._rules.effects.clear()  # if the rules raised the error, some effects may be left
        self._handle(x.Opened(self._rules.dir_id, self._rules.topic, exists=False))
        self._handle(x.RoleEnded(is_left=True))
        reason = replica_facts.reason_of(error)
        if reason != self.unread_reason:  # each request of the controller reads the log again
            self.unread_reason = reason
            replica_facts.report_unread(self.name, self.number, error, self._outbox)
