"""Remember which members of a group are alive. Remove members that leave or do not respond."""

from __future__ import annotations

from broker.groups import rebalance
from broker.groups.exchange import JoinAnswer, Now, SyncAnswer
from broker.groups.group import NEVER, Group, State
from broker.wire.error_codes import ErrorCode


def heartbeat(
    group: Group, member_id: str, instance_id: str | None, generation: int, now: Now
) -> ErrorCode:
    """Remember that a member is alive. In a rebalance, answer that the member must join again."""
    fault = group.fault_of(member_id, instance_id, generation)
    if fault:
        return fault
    group.members[member_id].hear(now.seconds)
    is_rebalancing = group.state is State.PREPARING
    return ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE


def leave(group: Group, member_id: str, instance_id: str | None, now: Now) -> ErrorCode:
    """Remove a leaving member, or a static member that an administrator names."""
    if group.state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if group.pending.pop(member_id, None) is not None:
        rebalance.complete_if_all_joined(group, now)
        return ErrorCode.NONE
    if not member_id and instance_id is not None:
        member_id = group.instances.get(instance_id, "")
    fault = group.fault_of_member(member_id, instance_id)
    if not fault:
        rebalance.drop(group, group.members[member_id])
        rebalance.go_on_without(group, now)
    return fault


def restart(group: Group, now: Now) -> None:
    """Let the sessions of all members begin now."""
    for member in group.members.values():
        member.hear(now.seconds)


def next_deadline(group: Group) -> float:
    """Return the first deadline of the group. `expire` handles it."""
    sessions = [
        member.deadline
        for member in group.members.values()
        if member.is_new or (member.joining is None and member.syncing is None)
    ]
    return min(
        group.join_deadline,
        group.sync_deadline,
        min(group.pending.values(), default=NEVER),
        min(sessions, default=NEVER),
    )


def expire(group: Group, now: Now) -> None:
    """Handle the deadlines that have passed.

    If the session of a member has ended, the member is removed. If a rebalance took too long, it
    continues without the missing members.
    """
    group.pending = {key: until for key, until in group.pending.items() if until > now.seconds}
    lost = [member for member in group.members.values() if member.has_expired(now.seconds)]
    if group.sync_deadline <= now.seconds:
        group.sync_deadline = NEVER
        late = [group.members[member_id] for member_id in group.unsynced]
        lost += [member for member in late if member not in lost]
    for member in lost:
        rebalance.drop(group, member)
    if group.join_deadline <= now.seconds:
        rebalance.complete(group, now)
    elif lost:
        rebalance.go_on_without(group, now)
    else:  # the rebalance may have waited only for an id that has expired
        rebalance.complete_if_all_joined(group, now)


def end(group: Group, error: ErrorCode, now: Now) -> None:
    """Remove the group, and answer the group's waiting requests with an error."""
    for member in group.members.values():
        if member.joining is not None:
            group.reply(member.joining, JoinAnswer(error, member.id))
        if member.syncing is not None:
            group.reply(member.syncing, SyncAnswer(error))
        member.joining = member.syncing = None
    group.enter(State.DEAD, now)
