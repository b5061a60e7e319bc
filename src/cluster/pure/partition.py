"""Handle the events of one replica, such as its roles from the controller.

| event | effect |
|---|---|
| LeaderAndIsr with another broker epoch, or an older topic or version | none (P6) |
| LeaderAndIsr of a newer topic | the old replica is removed, and a new replica is created (P6) |
| LeaderAndIsr if the replica is, or may be, on a bad log dir | answer: offline (P17) |
| LeaderAndIsr that names this replica as leader | the replica leads; see `may_lead` (P11) |
| LeaderAndIsr for a leader whose log failed in the same leader epoch | answer: offline (P7) |
| LeaderAndIsr that names another leader | the replica follows |
| LeaderAndIsr that comes after a StopReplica of the same or a later version | none (P19) |
| StopReplica for this topic and broker epoch, with a later version | the replica is removed (P19) |
| StopReplica for this broker epoch, and a topic without a replica here | answer (P19) |
| RoleEnded, Opened | no role (P6) |
| LeaseEnded | a leader that may be replaced by an unclean election stops (P16) |
| LeaseRenewed | this leader leads again, if it still has the same session (P16) |
| StartRose | the log begins later |
| all others | see `leader` and `follower` |
"""

from __future__ import annotations

from typing import Any

from cluster.pure import flushing, follower, leader, places
from cluster.pure.exchange import (
    Appended,
    AppendedAsFollower,
    Deleted,
    FetchDue,
    Flushed,
    GaveUp,
    Lagged,
    LeaseEnded,
    LeaseRenewed,
    Moved,
    Opened,
    Placed,
    Produced,
    RemoveReplica,
    RoleEnded,
    SendToController,
    StartRose,
    Tick,
    WriteTopic,
)
from cluster.pure.log_ends import LogEnds
from cluster.pure.replica import Replica, Role
from cluster.registration import NO_BROKER, NO_TOPIC, NO_VERSION, TopicIdentity
from cluster.requests import (
    AlterRefused,
    FetchAnswer,
    FollowerFetch,
    LeaderAndIsr,
    StopAnswer,
    StopReplica,
)
from cluster.state import State


def handle(replica: Replica, event: Any, now: float) -> list[Any]:
    """Handle an event or a request; return the effects, in their order."""
    match event:
        case FollowerFetch() if is_known_topic(replica, event.topic):
            leader.on_fetch(replica, event, now)
        case FetchAnswer() if is_known_topic(replica, event.request.topic):
            follower.on_answer(replica, event)
        case FetchDue():
            follower.fetch(replica)
        case AppendedAsFollower():
            follower.on_append(replica, event)
            leader.catch_up(replica)
        case Appended():
            _on_append(replica, event)
        case Produced():
            leader.on_produce(replica, event, now)
        case LeaderAndIsr():
            on_leader_and_isr(replica, event, now)
        case Flushed():
            _on_flush(replica, event)
        case AlterRefused() if is_known_topic(replica, event.topic):
            leader.on_refusal(replica, event.version)
        case Lagged(members):
            leader.shrink(replica, members, now)
        case Tick():
            leader.on_tick(replica, now)
        case _:
            _on_rare(replica, event)
    replica.check()
    effects, replica.effects = replica.effects, []
    return effects


def _on_rare(replica: Replica, event: Any) -> None:
    match event:
        case StopReplica():
            on_stop(replica, event)
        case Opened():
            _open(replica, event)
        case StartRose():
            on_start(replica, event)
        case RoleEnded(is_left):
            replica.exists |= is_left  # the next request to delete the replica tries again
            replica.end_role()
            replica.begin_life()
            replica.answer(is_offline=True)
        case GaveUp(waiter):
            leader.on_give_up(replica, waiter)
        case Deleted(waiter):
            leader.on_deletion(replica, waiter)
        case LeaseEnded():
            on_lease_end(replica)
        case LeaseRenewed():
            on_lease_renewal(replica)
        case Placed(dir_id):
            _place(replica, dir_id)
        case Moved(dir_id, flushed):
            places.move(replica, dir_id, flushed)
        case FollowerFetch() | FetchAnswer() | AlterRefused():
            pass  # the request is about another topic
        case _:
            raise TypeError(f"a replica does not know the event {event!r}")


def is_known_topic(replica: Replica, topic: TopicIdentity) -> bool:
    """Check that a request is about the topic that this replica belongs to."""
    return topic.is_same(replica.topic)


def is_addressed(replica: Replica, broker_epoch: int) -> bool:
    """Check that a request of a controller names the present broker epoch (P6)."""
    return broker_epoch == replica.host.broker_epoch


def on_leader_and_isr(replica: Replica, request: LeaderAndIsr, now: float) -> None:
    """Take a role, create the replica if it is new, and answer with the facts of the replica."""
    if not is_addressed(replica, request.broker_epoch):
        return
    if replica.broker_id not in request.state.replicas:
        return
    if not request.topic.is_same(replica.topic) and not accept_topic(replica, request.topic):
        return
    if not (replica.exists or replica.is_dir_good):
        choose_dir(replica, request)
    if is_unusable(replica, request):
        replica.answer(is_offline=True, topic=request.topic)
        return
    belong(replica, request.topic)
    if was_deleted(replica, request):
        return
    if not replica.exists:
        replica.create()
    places.settle(replica)
    if request.version > replica.version:
        if has_ended(replica, request.state):  # in this case, the controller begins a new epoch
            replica.answer(is_offline=True)
            return
        take_role(replica, request, now)
    replica.answer()


def accept_topic(replica: Replica, topic: TopicIdentity) -> bool:
    """Remove the replica of an older topic. Refuse a request for an older topic (P6).

    If the topic id of the replica is not known, the replica belongs to the topic of the request.
    """
    if replica.topic.is_same(NO_TOPIC):
        return True
    if topic.created < replica.topic.created:
        return False
    if replica.is_dir_good:
        remove(replica)
        replica.version, replica.leader_epoch = NO_VERSION, 0
    return True


def belong(replica: Replica, topic: TopicIdentity) -> None:
    """Assign the replica to a topic. If the replica had no topic id, store the id durably (P6)."""
    if replica.exists and replica.topic.is_same(NO_TOPIC):
        adopt(replica, topic)
    if not (replica.exists or topic.is_same(replica.topic)):  # an older topic was deleted
        replica.version, replica.leader_epoch = NO_VERSION, 0
    replica.topic = topic


def adopt(replica: Replica, topic: TopicIdentity) -> None:
    """Remember the topic of a replica that has no topic id."""
    replica.emit(WriteTopic(topic))


def _place(replica: Replica, dir_id: str) -> None:
    """Choose the log dir of a replica that does not exist yet."""
    if not replica.exists:
        replica.dir_id = replica.placed_in = dir_id


def choose_dir(replica: Replica, request: LeaderAndIsr) -> None:
    """Place the replica of a new topic on a log dir that works (P17)."""
    if request.is_new:
        good = [dir_id for dir_id, log_dir in replica.host.dirs.items() if log_dir.is_good]
        if good:
            _place(replica, good[0])


def is_unusable(replica: Replica, request: LeaderAndIsr) -> bool:
    """Check that the replica is, or may be, on a bad log dir (P17)."""
    if not replica.is_dir_good:
        return True
    return not replica.exists and not request.is_new and not replica.host.are_all_good


def was_deleted(replica: Replica, request: LeaderAndIsr) -> bool:
    """Check that a request is late, because a later StopReplica has removed the replica (P19)."""
    return not replica.exists and request.version <= replica.version


def has_ended(replica: Replica, state: State) -> bool:
    """Check that a state names this replica as leader of an epoch in which its log failed.

    A replica whose log failed must not lead. In this epoch, the replica has sent proposals for the
    ISR, and has forgotten them. The controller may still accept the forgotten proposals (P7).
    """
    return state.leader == replica.broker_id and state.leader_epoch <= replica.ended_epoch


def take_role(replica: Replica, request: LeaderAndIsr, now: float) -> None:
    """Obey a later version of the state: lead, follow, or have no role."""
    state = request.state
    resume(replica)
    is_new_epoch = begins_epoch(replica, state)
    was_leader = replica.role is Role.LEADER
    is_leader = state.leader == replica.broker_id and may_lead(replica, state)
    replica.obey(request)
    flushing.obey(replica)
    if is_leader:
        if is_new_epoch:
            leader.begin(replica, state, now)
        suspend(replica)
        if replica.role is Role.LEADER:
            leader.advance(replica)
        return
    replica.role = Role.NONE
    if state.leader not in (NO_BROKER, replica.broker_id):
        follower.begin(replica)
    if is_new_epoch or was_leader:
        replica.fail_waiting()


def begins_epoch(replica: Replica, state: State) -> bool:
    """Check that the leader epoch of a state is later than the leader epoch of the replica."""
    return state.leader_epoch > replica.leader_epoch


def may_lead(replica: Replica, state: State) -> bool:
    """Check that broker, log dir and replica have not returned since the election (P11).

    If the mover moves a leader to another log dir, the leader keeps its role.
    """
    elected_at = state.leader_registration_epoch
    if replica.held_since <= elected_at:
        return True
    is_leader_still = replica.role is Role.LEADER and replica.elected_at == elected_at
    return is_leader_still and replica.host.broker_epoch <= elected_at


def on_stop(replica: Replica, request: StopReplica) -> None:
    """Delete the replica, unless a later version has assigned it again (P19).

    If the request is repeated, the answer is the same: no replica is left.
    """
    is_here = is_addressed(replica, request.broker_epoch)
    if is_here and not replica.exists and request.topic.created > replica.topic.created:
        # Record the topic, so that an earlier request that arrives late creates no replica.
        replica.topic, replica.version, replica.leader_epoch = request.topic, NO_VERSION, 0
    is_known = is_known_topic(replica, request.topic)
    if is_known and replica.is_dir_good and may_stop(replica, request):
        version = max(replica.version, request.version)
        remove(replica)
        replica.version = version
    if is_here and is_stopped(replica, request):
        answer = StopAnswer(request.topic, replica.partition, replica.broker_id, request.version)
        replica.emit(SendToController(answer))


def is_stopped(replica: Replica, request: StopReplica) -> bool:
    """Check that this broker has no replica of a topic, and will never create such a replica.

    If a log dir is bad, it may have a replica of the topic, so the check is false. A replica
    without a topic id may also belong to the topic.
    """
    if is_known_topic(replica, request.topic):
        is_gone = not replica.exists and request.version <= replica.version
    else:
        is_gone = request.topic.created < replica.topic.created
    return is_gone and replica.host.are_all_good


def may_stop(replica: Replica, request: StopReplica) -> bool:
    """Check that a deletion names the present broker epoch and a later version."""
    return is_addressed(replica, request.broker_epoch) and request.version > replica.version


def remove(replica: Replica) -> None:
    """Remove the replica and its role, but keep the last version that the replica obeyed."""
    version, leader_epoch = replica.version, replica.leader_epoch
    replica.end_role()
    replica.version, replica.leader_epoch = version, leader_epoch
    if replica.exists:
        replica.emit(RemoveReplica())
    replica.remove_facts()


def _open(replica: Replica, opened: Opened) -> None:
    replica.end_role()
    replica.begin_life()
    if replica.exists or opened.exists:
        # If no log exists, keep the known topic.
        # A late request must not create the replica again (P19).
        replica.topic = opened.topic
    replica.dir_id, replica.exists = opened.dir_id, opened.exists
    replica.placed_in = opened.placed_in or opened.dir_id
    replica.log = LogEnds(opened.spans, opened.flushed, opened.start, opened.log_start_offset)
    mark = max(opened.high_watermark, replica.log.log_start_offset)
    replica.high_watermark = min(mark, replica.log.end)
    replica.own_since, replica.is_incomplete = opened.own_since, opened.is_incomplete
    replica.counts_flushed, replica.placed_since = opened.counts_flushed, opened.placed_since


def on_start(replica: Replica, rose: StartRose) -> None:
    """Use the new log start, and raise the high watermark to it.

    The raise is correct, because the deleted records were replicated.
    """
    replica.log.raise_start(*rose)
    replica.high_watermark = max(replica.high_watermark, replica.log.log_start_offset)


def on_lease_end(replica: Replica) -> None:
    """Stop leading, if the topic may elect another leader uncleanly (P16)."""
    replica.has_lease = False
    suspend(replica)


def suspend(replica: Replica) -> None:
    """Stop leading if there is no lease; keep proposals, which may still be accepted (P7)."""
    is_bound = replica.state is not None and replica.state.is_unclean_allowed
    if replica.role is Role.LEADER and is_bound and not replica.has_lease:
        replica.fail_waiting()
        replica.role, replica.is_suspended = Role.NONE, True


def on_lease_renewal(replica: Replica) -> None:
    """Lead again, if the end of the lease was the only reason to stop."""
    replica.has_lease = True
    resume(replica)
    if replica.role is Role.LEADER:
        leader.advance(replica)


def resume(replica: Replica) -> None:
    """Lead again, unless the session in which this leader was elected has ended (P11)."""
    if replica.is_suspended:
        replica.is_suspended = False
        if replica.host.broker_epoch <= replica.elected_at:
            replica.role = Role.LEADER
        else:
            replica.proposed = set()


def _on_append(replica: Replica, appended: Appended) -> None:
    if replica.is_of_this_life(appended.log):
        replica.end_append()
        replica.log.append_all(appended.spans)
    leader.on_append(replica, appended)


def _on_flush(replica: Replica, flushed: Flushed) -> None:
    if not replica.is_of_this_copy(flushed.log):
        return
    replica.log.flushed = max(replica.log.flushed, min(flushed.offset, replica.log.end))
    flushing.mark(replica)
    if replica.role is Role.LEADER:
        leader.advance(replica)
