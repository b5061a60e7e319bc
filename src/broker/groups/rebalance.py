"""Begin and complete rebalances of a group."""

from __future__ import annotations

from broker.groups.exchange import JoinAnswer, Now, SyncAnswer
from broker.groups.group import NEVER, Group, State
from broker.groups.member import Member
from broker.wire.error_codes import ErrorCode

GENERATION_MAX = 2**31 - 1
RETRY_SECONDS = 1.0  # the shortest time between two checks of a rebalance without members


def begin(group: Group, now: Now) -> None:
    """Begin a rebalance, unless a rebalance is running; complete it if no member is missing."""
    if group.state is not State.PREPARING:
        if group.state is State.COMPLETING:  # the members of the last generation must join again
            answer_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        group.unsynced.clear()
        group.sync_deadline = NEVER
        seconds, group.delay_left = group.rebalance_timeout, None
        if group.state is State.EMPTY:
            delay = min(group.settings.initial_delay, seconds)
            group.delay_left, seconds = seconds - delay, delay
        group.join_deadline = now.seconds + seconds
        group.has_grown = False
        group.enter(State.PREPARING, now)
    complete_if_all_joined(group, now)


def complete_if_all_joined(group: Group, now: Now) -> None:
    """If no member is missing, complete a rebalance.

    The first rebalance of an empty group is not completed before its delay is over.
    """
    if group.state is not State.PREPARING:
        return
    if group.delay_left is not None:
        is_complete = group.join_deadline <= now.seconds
    else:
        has_all = all(member.joining is not None for member in group.members.values())
        is_complete = has_all and not (group.pending and group.members)
    if is_complete:
        complete(group, now)


def complete(group: Group, now: Now) -> None:
    """Begin the next generation with the members that have joined."""
    if group.delay_left and group.has_grown:  # the rebalance waits for more members
        more = min(group.settings.initial_delay, group.delay_left)
        group.delay_left -= more
        group.has_grown = False
        group.join_deadline = now.seconds + more
        return
    for member in list(group.members.values()):
        if member.joining is None and member.instance_id is None:
            drop(group, member)
    joined = [member for member in group.members.values() if member.joining is not None]
    if group.members and not joined:  # only static members are left, which stay until they expire
        group.join_deadline = now.seconds + max(group.rebalance_timeout, RETRY_SECONDS)
        return
    if joined and group.members[group.leader_id or ""].joining is None:
        group.leader_id = joined[0].id
    group.join_deadline, group.delay_left = NEVER, None
    group.generation = group.generation % GENERATION_MAX + 1
    if not group.members:
        group.protocol = None
        group.enter(State.EMPTY, now)
        group.is_unsaved = True
        return
    group.protocol = group.vote()
    group.enter(State.COMPLETING, now)
    group.sync_deadline = now.seconds + group.rebalance_timeout
    group.unsynced = set(group.members)
    for member in group.members.values():
        waiter, member.joining = member.joining, None
        member.is_new = False
        member.hear(now.seconds)
        if waiter is not None:
            group.reply(waiter, group.join_answer(member))


def answer_syncs(group: Group, error: ErrorCode, now: Now) -> None:
    """Refuse the requests that wait for assignments, and forget the assignments."""
    for member in group.members.values():
        member.assignment = b""
        waiter, member.syncing = member.syncing, None
        if waiter is not None:
            member.hear(now.seconds)  # without this, the session could end at once
            group.reply(waiter, SyncAnswer(error))


def drop(group: Group, member: Member) -> None:
    """Remove a member from the group, and answer the member's waiting requests with an error."""
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    if member.joining is not None:
        group.reply(member.joining, JoinAnswer(unknown, member.id))
    if member.syncing is not None:
        group.reply(member.syncing, SyncAnswer(unknown))
    del group.members[member.id]
    group.unsynced.discard(member.id)
    if group.instances.get(member.instance_id or "") == member.id:
        del group.instances[member.instance_id or ""]
    if group.leader_id == member.id:
        group.leader_id = next(iter(group.members), None)


def go_on_without(group: Group, now: Now) -> None:
    """Begin or complete a rebalance after members were removed."""
    if group.state in (State.COMPLETING, State.STABLE):
        begin(group, now)
    else:
        complete_if_all_joined(group, now)


def undo(group: Group, now: Now) -> bool:
    """Undo a change that the log has refused; return whether its requests must be refused.

    If the log has not taken the assignments, no member gets its assignment, and all members join
    again. The record of a group that has become empty is not written again, as in Kafka: a later
    coordinator finds the earlier members, and removes them when their sessions end.
    """
    is_told = group.is_unsaved and group.state is State.STABLE
    group.is_unsaved = False
    if not is_told:
        return False
    if group.replaced is not None:
        group.members, group.instances, group.leader_id = group.replaced
        group.replaced = None
    else:
        answer_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        begin(group, now)
    return True
