"""Change one rule of hosts and replicas: the functions that mutants use instead."""

from __future__ import annotations

from typing import Any

from cluster.pure import attest, flushing, follower, leader, partition, places
from cluster.pure.attest import ClearFailure, DirFound, EndRoles, Host, WriteEntry
from cluster.pure.exchange import Acknowledge, Appended, TruncateTo
from cluster.pure.replica import Replica, Role
from cluster.registration import NO_VERSION, TopicIdentity
from cluster.requests import LeaderAndIsr, StopReplica
from cluster.state import State
from cluster_sim.world import World

_take_role, _is_unusable = partition.take_role, partition.is_unusable
_may_lead, _begins_epoch = partition.may_lead, partition.begins_epoch
_leader_begin, _since_at_start = leader.begin, attest.since_at_start
_on_lai, _on_refusal = partition.on_leader_and_isr, leader.on_refusal


class Settings:
    """What the settings of topics say now, for a leader that does not wait for the state."""

    min_isr = 2


def name_of(topic: TopicIdentity) -> str:
    """Give the name of a topic: in the simulator, its id begins with it."""
    return topic.topic_id.split(" ")[0]


def is_same_name(one: TopicIdentity, other: TopicIdentity) -> bool:
    """Compare two topics by their names."""
    return name_of(one) == name_of(other)


def truncate_to_high_watermark(replica: Replica, request: LeaderAndIsr, now: float) -> None:
    is_new, was_leader = _begins_epoch(replica, request.state), replica.role is Role.LEADER
    _take_role(replica, request, now)
    if replica.role is not Role.LEADER and (is_new or was_leader):
        replica.emit(TruncateTo(replica.high_watermark, replica.high_watermark))
        replica.log.truncate(replica.high_watermark)


TRUNCATE_TO_HIGH_WATERMARK = [(partition, "take_role", truncate_to_high_watermark)]


def begin_at_log_end(replica: Replica, state: State, now: float) -> None:
    _leader_begin(replica, state, now)
    replica.set_high_watermark(replica.log.end)


HW_IS_LEO = [(leader, "begin", begin_at_log_end)]


def divergence_of_known_epochs(replica: Replica, fetch: Any) -> tuple[int, int] | None:
    epoch, _ = replica.log.end_of(fetch.last_epoch)
    if epoch < fetch.last_epoch and replica.log.start <= fetch.offset <= replica.log.end:
        return None
    return _divergence(replica, fetch)


_divergence = leader.divergence
KIP101_ONLY = [(leader, "divergence", divergence_of_known_epochs)]


def since_last_start(found: DirFound, epoch: int) -> tuple[int, int]:
    whole, flushed = _since_at_start(found, epoch)
    return (whole if whole == epoch else 0), (flushed if flushed == epoch else 0)


LAST_START_ONLY = [(attest, "since_at_start", since_last_start)]


def propose_at_once(replica: Replica, isr: Any, now: float) -> None:
    _propose(replica, isr, now)
    replica.proposed = set(isr)


_propose = leader.propose


def only_proposed(replica: Replica) -> set[int]:
    assert replica.state is not None
    return set(replica.proposed) or set(replica.state.isr)


ACK_BEFORE_PERSIST = [
    (leader, "propose", propose_at_once),
    (leader, "maximal_isr", only_proposed),
]


def only_isr(replica: Replica) -> set[int]:
    assert replica.state is not None
    return set(replica.state.isr)


NO_MAXIMAL_ISR = [(leader, "maximal_isr", only_isr)]


def forget_refused(replica: Replica, version: int) -> None:
    if version == replica.version:
        replica.proposed = set()


def forget_unanswered(replica: Replica, now: float) -> None:
    replica.proposed = set()


FORGET_PROPOSAL = [
    (leader, "on_refusal", forget_refused),
    (leader, "withdraw", forget_unanswered),
]
LOOSE_MIN_ISR = [(leader, "is_isr_large_enough", lambda replica: True)]
NO_LESO = [(leader, "is_past_epoch_start", lambda replica, follower: True)]
RESUME_EPOCH = [
    (
        partition,
        "begins_epoch",
        lambda replica, state: _begins_epoch(replica, state) or replica.role is Role.NONE,
    ),
    (partition, "may_lead", lambda replica, state: True),
]
NO_BROKER_EPOCH = [
    (partition, "is_addressed", lambda replica, epoch: True),
    (partition, "may_lead", lambda replica, state: True),
]


def return_at_once(self: Host, dir_id: str) -> list[Any]:
    log_dir = self.dirs[dir_id]
    log_dir.is_good = True
    log_dir.whole_since = log_dir.flushed_since = log_dir.epoch
    return [EndRoles(dir_id), WriteEntry(dir_id, log_dir.entry()), ClearFailure(dir_id)]


IMAGE_IS_WHOLE: list[Any] = [(attest, "present_entry", lambda entry, *, is_old_copy: entry)]
FAILURE_UNNOTED: list[Any] = [(Host, "note", lambda self, dir_id: [])]
RETURN_SAME_EPOCH = [(Host, "on_return", return_at_once)]
FAILURE_UNRECORDED = [(Host, "on_failure", lambda self, dir_id: [EndRoles(dir_id)])]


def clear_first(self: Host, dir_id: str, epoch: int) -> list[Any]:
    end, write, *clear = _enter(self, dir_id, epoch)
    return [end, *clear, write]


_enter = Host._enter
CLEAR_FIRST = [(Host, "_enter", clear_first)]
RECREATED_IS_WHOLE = [(Replica, "created_since", property(lambda replica: 0))]


def create_elsewhere(replica: Replica, request: LeaderAndIsr) -> bool:
    good = [dir_id for dir_id, one in replica.host.dirs.items() if one.is_good]
    if not replica.is_dir_good:
        if not good:
            return True
        replica.dir_id, replica.exists = good[0], False
    return False


CREATE_WHILE_BAD = [(partition, "is_unusable", create_elsewhere)]


def acknowledge_in_any_epoch(replica: Replica) -> None:
    if replica.role is not Role.LEADER:
        return
    reached = [w for w, (end, _) in replica.waiting.items() if end <= replica.high_watermark]
    for waiter in reached:
        replica.emit(Acknowledge(waiter, replica.waiting.pop(waiter)[0]))


ACK_ANY_EPOCH = [
    (Replica, "fail_waiting", lambda self: None),
    (Replica, "check", lambda self: None),
    (leader, "acknowledge_waiting", acknowledge_in_any_epoch),
]


def is_in_leaders_log(replica: Replica, appended: Appended) -> bool:
    return not appended.spans or appended.end_offset <= replica.high_watermark


ACK_DUPLICATE = [(leader, "is_replicated", is_in_leaders_log)]


def set_and_show(world: World, min_isr: int) -> None:
    _set_min_isr(world, min_isr)
    Settings.min_isr = min_isr


_set_min_isr = World.set_min_isr
MIN_ISR_AT_ONCE = [
    (Replica, "min_isr", property(lambda self: Settings.min_isr)),
    (World, "set_min_isr", set_and_show),
]


def stop_any(replica: Replica, request: StopReplica) -> bool:
    return True


STOP_UNFENCED = [(partition, "may_stop", stop_any)]
NO_LEASE = [(partition, "on_lease_end", lambda replica: None)]


def forget_the_lead(replica: Replica) -> None:
    if replica.is_suspended:
        replica.is_suspended, replica.proposed = False, set()


NO_RENEWAL = [(partition, "resume", forget_the_lead)]
FLUSH_LATE = [
    (leader, "own_position", lambda replica: replica.log.end),
    (leader, "flush", lambda replica: None),
    (follower, "needs_flush", lambda replica: False),
]
FLUSH_AT_ONCE = [
    (
        Replica,
        "whole_since",
        property(lambda self: self.whole_since_if(flushes=self.flushes)),
    )
]


def since_of_dir(self: Host, dir_id: str, own_since: int, *, flushes: bool, **_: int) -> int:
    return _whole_since(self, dir_id, own_since, flushes=flushes)


_whole_since = Host.whole_since
MOVED_IS_LOSSY = [(Host, "whole_since", since_of_dir)]
APPEND_OF_ANY_LOG = [(Replica, "is_of_this_life", lambda self, log: True)]
FLUSH_OF_ANY_LOG = [(Replica, "is_of_this_copy", Replica.is_of_this_life)]
DIVERGE_WHILE_APPENDING = [(leader, "is_end_known", lambda replica, epoch: True)]
FETCH_WHILE_APPENDING = [(follower, "is_appending", lambda replica: False)]

READ_OF_ANY_LOG = [(follower, "epoch_bound", lambda replica: 1 << 31)]
MARK_STAYS = [(flushing, "unmark", lambda replica: None)]


def enter_with_new_session(self: Host, dir_id: str, epoch: int) -> list[Any]:
    effects = _enter(self, dir_id, epoch)
    self.broker_epoch = epoch
    for log_dir in self.dirs.values():
        log_dir.epoch = epoch
    return [*(EndRoles(other) for other in self.dirs), *effects]


BROKER_EPOCH_FOR_DIR = [(Host, "_enter", enter_with_new_session)]
MEMBER_BY_DIR_EPOCH = [
    (Replica, "member_epoch", property(lambda self: self.host.dirs[self.dir_id].epoch))
]
CREATED_AT_DIR_EPOCH = [
    (
        Replica,
        "created_since",
        property(lambda replica: replica.host.dirs[replica.dir_id].epoch),
    )
]
LEAD_BY_DIR_EPOCH = [
    (Replica, "held_since", property(lambda self: self.host.dirs[self.dir_id].epoch))
]
MOVE_FORGETS = [(places, "moved_since", lambda replica: replica.own_since)]


def obey_by_name(replica: Replica, request: LeaderAndIsr, now: float) -> None:
    if replica.topic.topic_id and is_same_name(request.topic, replica.topic):
        newest = max(request.topic, replica.topic, key=lambda topic: topic.created)
        replica.topic = newest
        request = request._replace(topic=newest)
    _on_lai(replica, request, now)


def stop_by_name(replica: Replica, request: StopReplica) -> None:
    _on_stop(replica, request._replace(topic=replica.topic))


_on_stop = partition.on_stop
ROLES_BY_NAME = [
    (partition, "on_leader_and_isr", obey_by_name),
    (partition, "on_stop", stop_by_name),
]
REQUESTS_BY_NAME = [
    (
        partition,
        "is_known_topic",
        lambda replica, topic: is_same_name(topic, replica.topic),
    )
]


def keep_older(replica: Replica, topic: TopicIdentity) -> bool:
    if topic.created < replica.topic.created or replica.exists:
        return False
    replica.version, replica.leader_epoch = NO_VERSION, 0
    return True


ADOPT_UNWRITTEN = [(partition, "adopt", lambda replica, topic: None)]
OTHER_ID_IGNORED = [(partition, "accept_topic", keep_older)]
LEAVING_JOINS = [(leader, "may_be_proposed", lambda fetch: True)]
