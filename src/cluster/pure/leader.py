"""Lead a partition: track followers, move the high watermark, propose ISRs, answer produces."""

from __future__ import annotations

from collections.abc import Mapping

from cluster.pure.exchange import (
    Acknowledge,
    AnswerFetch,
    AppendAsLeader,
    Appended,
    Produced,
    ProduceError,
    Refuse,
    SendToBroker,
    SendToController,
    Waiter,
)
from cluster.pure.flushing import flush
from cluster.pure.log_ends import NO_EPOCH
from cluster.pure.replica import RETRY_SECONDS, Follower, Replica, Role
from cluster.requests import AlterPartition, FetchAnswer, FollowerFetch
from cluster.state import State

ACKS_ALL = -1
SILENCE_SECONDS_MAX = 2.0  # a follower fetches at least every half second


def begin(replica: Replica, state: State, now: float) -> None:
    """Begin to lead a new leader epoch."""
    replica.role = Role.LEADER
    replica.followers = {}
    replica.epoch_start = replica.log.end
    replica.elected_at = state.leader_registration_epoch
    replica.led_since = now
    replica.fail_waiting()
    flush(replica)


def maximal_isr(replica: Replica) -> set[int]:
    """Return the members of the ISR and of every ISR that was proposed for this version (P7).

    The controller may accept a proposal although its answer was lost, or after it has refused
    another copy of the proposal. So a record is replicated only if all members of this maximal ISR
    have the record.
    """
    assert replica.state is not None
    return replica.proposed.union(replica.state.isr)


def is_followed(replica: Replica, since: float) -> bool:
    """Check that each member has fetched at or after `since`.

    So no other broker led at the time `since` (P7).

    Each broker that can be elected is a member of the maximal ISR. A member that leads stops
    fetching from this leader. So the fetches of the members prove that this replica leads, even
    while the coordination store does not answer.
    """
    if replica.role is not Role.LEADER or replica.state is None:
        return False
    fetched = [
        replica.followers.get(member)
        for member in replica.proposed.union(replica.state.isr)
        if member != replica.broker_id
    ]
    return all(one is not None and one.fetched_at >= since for one in fetched)


def is_isr_large_enough(replica: Replica) -> bool:
    """Check that the ISR in the state has min members (P8)."""
    return replica.state is not None and len(replica.state.isr) >= replica.min_isr


def own_position(replica: Replica) -> int:
    """Return the leader's own position: the end of its log, or of its flushed records (P24)."""
    return replica.log.flushed if replica.flushes else replica.log.end


def advance(replica: Replica) -> None:
    """Move the high watermark to the smallest position in the maximal ISR (P7, P8)."""
    if not is_isr_large_enough(replica):
        return
    end = own_position(replica)
    followers = replica.followers
    for member in maximal_isr(replica):
        if member != replica.broker_id:
            follower = followers.get(member)
            if follower is None:
                return
            end = min(end, follower.offset)
    if end <= replica.high_watermark:
        return
    replica.set_high_watermark(end)
    acknowledge_waiting(replica)


def acknowledge_waiting(replica: Replica) -> None:
    """Acknowledge the waiting appends of clients whose records the high watermark has reached."""
    reached = [w for w, (end, _) in replica.waiting.items() if end <= replica.high_watermark]
    for waiter in reached:
        end, epoch = replica.waiting.pop(waiter)
        assert epoch == replica.leader_epoch, "a change of the epoch fails all waiting produces"
        replica.emit(Acknowledge(waiter, end))


def on_fetch(replica: Replica, fetch: FollowerFetch, now: float) -> None:
    """Count the position of a follower, and answer with records or with a divergence (P9, P26).

    If the follower's log has records that this log lacks, the position is ignored, and the follower
    does not join the ISR.
    """
    state = replica.state
    if replica.role is not Role.LEADER or state is None or fetch.follower not in state.replicas:
        return
    if fetch.leader_epoch != replica.leader_epoch:
        return
    diverging = divergence(replica, fetch)
    if diverging is not None:
        if not is_end_known(replica, fetch.last_epoch):
            return
        mark, start = replica.high_watermark, replica.log.start
        answer = FetchAnswer(fetch, mark, None, diverging, start)
        replica.emit(SendToBroker(fetch.follower, answer))
        return
    _count(replica, fetch, now)
    advance(replica)
    end_deletions(replica)
    if may_be_proposed(fetch):
        expand(replica, fetch.follower, now)
    replica.emit(AnswerFetch(fetch, replica.high_watermark))


def may_be_proposed(fetch: FollowerFetch) -> bool:
    """Check that the follower's broker does not leave, so that it may join the ISR (P10, P21).

    A leaving broker must not be proposed, because the high watermark waits for each proposed
    member, even if the controller refuses the proposal (P7).
    """
    return not fetch.is_leaving


def is_end_known(replica: Replica, epoch: int) -> bool:
    """Check that the end of an epoch is known: no running append can extend the epoch (P25).

    If a follower has already fetched records of a running append, the log of the follower is longer
    than the known end, but does not diverge.
    """
    return not replica.appending or epoch < replica.log.last_epoch


def divergence(replica: Replica, fetch: FollowerFetch) -> tuple[int, int] | None:
    """Return where a follower must truncate: an epoch and its end; None if it need not truncate.

    The follower need not truncate if its log is a part of this log. If the result is NO_EPOCH and
    the start of this log, this log has no record of the follower. A follower with this result
    removes its log, and begins at the start of the leader's log. The result NO_EPOCH has two
    reasons. First, the follower may fetch from an offset before the start of this log. Second, the
    follower may fetch from the start of this log, and this log does not know the epoch of the
    follower's last record. That record may differ from the record that was deleted here. A log
    without records is a part of every log.
    """
    log = replica.log
    if fetch.offset < log.start:
        return NO_EPOCH, log.start
    epoch, end = log.end_of(fetch.last_epoch)
    if fetch.is_empty:
        is_part = fetch.offset <= log.end
    else:
        is_part = epoch >= fetch.last_epoch and end >= fetch.offset
    return None if is_part else (epoch, end)


def _count(replica: Replica, fetch: FollowerFetch, now: float) -> None:
    end = replica.log.end
    before = replica.followers.get(fetch.follower)
    caught_up_at = replica.led_since if before is None else before.caught_up_at
    if fetch.offset >= end:
        caught_up_at = now
    elif before is not None and fetch.offset >= before.leader_end:
        caught_up_at = max(caught_up_at, before.fetched_at)
    replica.followers[fetch.follower] = Follower(
        fetch.offset, fetch.registration_epoch, caught_up_at, now, end, fetch.log_start
    )


def may_join(replica: Replica, follower: Follower) -> bool:
    """Check that a follower may join the ISR (P10).

    The follower must have all records below the high watermark, and all records of earlier leader
    epochs. The high watermark alone is not enough: a new leader does not know all positions yet, so
    its high watermark may be too low.
    """
    return follower.offset >= replica.high_watermark and is_past_epoch_start(replica, follower)


def is_past_epoch_start(replica: Replica, follower: Follower) -> bool:
    """Check that a follower has all records of earlier leader epochs."""
    return follower.offset >= replica.epoch_start


def expand(replica: Replica, broker: int, now: float) -> None:
    """Propose an ISR with a follower that has caught up (P10)."""
    state, follower = replica.state, replica.followers[broker]
    assert state is not None
    if broker not in state.isr and broker not in replica.proposed and may_join(replica, follower):
        propose(replica, {**state.isr, broker: follower.registration_epoch}, now)


def shrink(replica: Replica, members: frozenset[int], now: float) -> None:
    """Propose an ISR without members that did not catch up."""
    state = replica.state
    if replica.role is not Role.LEADER or state is None:
        return
    members = members & state.isr.keys() - {replica.broker_id}
    if members:
        propose(replica, {m: a for m, a in state.isr.items() if m not in members}, now)


def propose(replica: Replica, isr: Mapping[int, int], now: float) -> None:
    """Send a proposal. From now on, the high watermark waits for the proposed members (P7)."""
    replica.proposed |= isr.keys()
    replica.proposed_at = now
    proposal = AlterPartition(
        replica.topic,
        replica.partition,
        replica.broker_id,
        replica.elected_at,
        replica.leader_epoch,
        replica.version,
        isr,
    )
    replica.emit(SendToController(proposal))


def on_refusal(replica: Replica, version: int) -> None:
    """Keep a refused proposal, because another copy of the request may still be accepted (P7)."""


def withdraw(replica: Replica, now: float) -> None:
    """Propose the present ISR again. When this proposal is accepted, no proposal is unanswered."""
    assert replica.state is not None
    if replica.proposed:
        propose(replica, dict(replica.state.isr), now)


def lagging(replica: Replica, now: float) -> frozenset[int]:
    """Return the members of the ISR that have not caught up for too long."""
    state = replica.state
    assert state is not None
    late = set()
    for member in state.isr.keys() - {replica.broker_id}:
        follower = replica.followers.get(member)
        caught_up_at = replica.led_since if follower is None else follower.caught_up_at
        if now - caught_up_at > replica.lag_seconds_max:
            late.add(member)
    return frozenset(late)


def on_tick(replica: Replica, now: float) -> None:
    """Repeat an unanswered proposal. If all proposals were answered, look for members that lag."""
    if replica.role is not Role.LEADER:
        return
    if is_cut_off(replica, now):
        replica.fail_waiting()
    end_deletions(replica)
    if replica.proposed:
        if now - replica.proposed_at >= RETRY_SECONDS:
            withdraw(replica, now)
    else:
        shrink(replica, lagging(replica, now), now)


def is_cut_off(replica: Replica, now: float) -> bool:
    """Check that the lease has ended, and that a member of the ISR has not fetched for too long.

    A leader in this situation was most likely replaced, and can acknowledge nothing. So the clients
    should ask other brokers for the leader. If the store is the only part that does not answer, the
    members of the ISR still fetch, and this check is false.
    """
    if replica.has_lease or replica.state is None:
        return False
    for member in replica.state.isr.keys() - {replica.broker_id}:
        follower = replica.followers.get(member)
        heard_at = replica.led_since if follower is None else follower.fetched_at
        if now - heard_at > SILENCE_SECONDS_MAX:
            return True
    return False


def on_produce(replica: Replica, produce: Produced, now: float) -> None:
    """Let a client's records be appended, or refuse them (P20)."""
    is_waiting = produce.acks == ACKS_ALL
    if replica.role is not Role.LEADER or (is_waiting and is_cut_off(replica, now)):
        replica.emit(Refuse(produce.waiter, ProduceError.NOT_LEADER))
    elif is_waiting and not may_wait(replica):
        replica.emit(Refuse(produce.waiter, ProduceError.NOT_ENOUGH_REPLICAS))
    else:
        replica.appending += 1
        epoch, acks = replica.leader_epoch, produce.acks
        replica.emit(AppendAsLeader(replica.log_life, produce.waiter, epoch, acks))


def may_wait(replica: Replica) -> bool:
    """Check that a produce with acks=all may wait: the ISR has min members, and the queue is short.

    The queue of waiting appends is limited for this reason: while there is no controller, a slow
    member stays in the ISR, and the high watermark does not move.
    """
    is_crowded = len(replica.waiting) + replica.appending >= replica.waiting_max
    return is_isr_large_enough(replica) and not is_crowded


def on_give_up(replica: Replica, waiter: Waiter) -> None:
    """End the wait of a client. The change of the client may still be replicated later."""
    is_waiting = waiter in replica.waiting or waiter in replica.deletions
    replica.waiting.pop(waiter, None)
    replica.deletions.pop(waiter, None)
    if is_waiting:
        replica.emit(Refuse(waiter, ProduceError.TIMED_OUT))


def on_append(replica: Replica, appended: Appended) -> None:
    """Let a produce wait for the other replicas, even if its records are duplicates (P20)."""
    is_leader = replica.role is Role.LEADER and appended.leader_epoch == replica.leader_epoch
    is_leader = is_leader and replica.is_of_this_life(appended.log)
    if appended.waiter is not None:
        if not is_leader:
            replica.emit(Refuse(appended.waiter, ProduceError.TIMED_OUT))
        elif is_replicated(replica, appended):
            replica.emit(Acknowledge(appended.waiter, appended.end_offset))
        else:
            replica.waiting[appended.waiter] = appended.end_offset, appended.leader_epoch
    catch_up(replica)


def on_deletion(replica: Replica, waiter: Waiter) -> None:
    """Let a client wait until all in-sync replicas have deleted the same records.

    Without this wait, the records would come back if this leader failed.
    """
    if replica.role is not Role.LEADER:
        replica.emit(Refuse(waiter, ProduceError.NOT_LEADER))
    elif len(replica.deletions) >= replica.waiting_max:
        replica.emit(Refuse(waiter, ProduceError.TIMED_OUT))
    else:
        replica.deletions[waiter] = replica.log.log_start_offset
        end_deletions(replica)


def end_deletions(replica: Replica) -> None:
    """Acknowledge the deletions that all members of the maximal ISR have carried out.

    The check compares the log start offsets. The check does not compare the offsets of the first
    batches, because these offsets differ if only some replicas are compacted.
    """
    if not replica.deletions:
        return
    start = replica.log.log_start_offset
    for member in maximal_isr(replica) - {replica.broker_id}:
        follower = replica.followers.get(member)
        start = min(start, -1 if follower is None else follower.log_start)
    for waiter, offset in [*replica.deletions.items()]:
        if offset <= start:
            del replica.deletions[waiter]
            replica.emit(Acknowledge(waiter, offset))


def catch_up(replica: Replica) -> None:
    """Count appended records, even if the append began before this replica led."""
    if replica.role is Role.LEADER:
        flush(replica)
        advance(replica)


def is_replicated(replica: Replica, appended: Appended) -> bool:
    """Check that the high watermark has passed the records of a produce."""
    return appended.end_offset <= replica.high_watermark
