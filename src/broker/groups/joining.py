"""Add members to a group."""

from __future__ import annotations

from typing import Any

from broker.groups import rebalance
from broker.groups.exchange import JoinAnswer, Joining, Now, SyncAnswer
from broker.groups.group import Group, State
from broker.groups.member import Member
from broker.wire.error_codes import ErrorCode

NEW_MEMBER_SECONDS = 300.0  # a silent new member is removed after this time


def join(group: Group, asked: Joining, waiter: Any, now: Now) -> None:
    """Add a new member, or let a known member join again. The join may begin a rebalance."""
    error = _join(group, asked, waiter, now)
    if error:
        group.reply(waiter, JoinAnswer(error, asked.member_id))


def _join(group: Group, asked: Joining, waiter: Any, now: Now) -> ErrorCode:
    if group.state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not _supports(group, asked):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    is_pending = asked.member_id in group.pending and asked.instance_id is None
    if asked.member_id and not is_pending:
        fault = group.fault_of_member(asked.member_id, asked.instance_id)
        if fault:
            return fault
    if not _fits(group, asked):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not asked.member_id:
        return _join_first(group, asked, waiter, now)
    if is_pending:
        del group.pending[asked.member_id]
        _add(group, asked.member_id, asked, waiter, now)
    else:
        _join_again(group, group.members[asked.member_id], asked, waiter, now)
    return ErrorCode.NONE


def _supports(group: Group, asked: Joining) -> bool:
    """Report whether a member supports a protocol that all other members support."""
    if not asked.protocols or not asked.protocol_type:
        return False
    if not group.members:
        return True
    names = {name for name, _ in asked.protocols}
    return asked.protocol_type == group.protocol_type and bool(names & group.common_protocols())


def _fits(group: Group, asked: Joining) -> bool:
    """Report whether the group's record would still be small enough for the log after a join."""
    old_id = asked.member_id or group.instances.get(asked.instance_id or "", "")
    member, old = Member(old_id, asked), group.members.get(old_id)
    if old is not None:
        member.assignment = old.assignment
    before = 0 if old is None else old.size_bytes
    return group.size_bytes - before + member.size_bytes <= group.settings.bytes_max


def _join_first(group: Group, asked: Joining, waiter: Any, now: Now) -> ErrorCode:
    if asked.instance_id is not None and asked.instance_id in group.instances:
        _replace(group, asked, waiter, now)
        return ErrorCode.NONE
    if len(group.members) + len(group.pending) >= group.settings.size_max:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    member_id = group.draw_id(asked.instance_id or asked.client_id)
    if asked.needs_known_id and asked.instance_id is None:
        group.pending[member_id] = now.seconds + asked.session_timeout
        group.reply(waiter, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(group, member_id, asked, waiter, now)
    return ErrorCode.NONE


def _add(group: Group, member_id: str, asked: Joining, waiter: Any, now: Now) -> None:
    member = Member(member_id, asked)
    member.is_new, member.joining = True, waiter
    member.deadline = now.seconds + NEW_MEMBER_SECONDS
    if not group.members:
        group.protocol_type = asked.protocol_type
    group.members[member_id] = member
    if asked.instance_id is not None:
        group.instances[asked.instance_id] = member_id
    group.leader_id = group.leader_id or member_id
    group.has_grown = True
    rebalance.begin(group, now)


def _join_again(group: Group, member: Member, asked: Joining, waiter: Any, now: Now) -> None:
    is_leader = member.id == group.leader_id and group.state is State.STABLE
    is_change = group.state is State.PREPARING or member.protocols != asked.protocols
    if not is_change and not is_leader:  # the answer to an earlier request was lost
        member.hear(now.seconds)
        group.reply(waiter, group.join_answer(member))
        return
    if member.joining is not None:  # the client no longer waits for its earlier request
        group.reply(member.joining, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, member.id))
    member.update(asked)
    member.joining = waiter
    member.hear(now.seconds)
    rebalance.begin(group, now)


def _replace(group: Group, asked: Joining, waiter: Any, now: Now) -> None:
    """Replace a static member after the restart of its process. Keep its assignment."""
    instance_id = asked.instance_id or ""
    old_id, member_id = group.instances[instance_id], group.draw_id(instance_id)
    old, member = group.members[old_id], Member(member_id, asked)
    if old.joining is not None:
        group.reply(old.joining, JoinAnswer(ErrorCode.FENCED_INSTANCE_ID, old_id))
    if old.syncing is not None:
        group.reply(old.syncing, SyncAnswer(ErrorCode.FENCED_INSTANCE_ID))
    member.assignment = old.assignment
    member.hear(now.seconds)
    before = group.members, dict(group.instances), group.leader_id
    places = [
        (member_id, member) if key == old_id else (key, other)
        for key, other in group.members.items()
    ]
    group.members = dict(places)
    group.instances[instance_id] = member_id
    if old_id in group.unsynced:
        group.unsynced.remove(old_id)
        group.unsynced.add(member_id)
    was_leader = group.leader_id == old_id
    if was_leader:
        group.leader_id = member_id
    if group.state is not State.STABLE or group.vote() != group.protocol:
        member.joining = waiter
        rebalance.begin(group, now)
        return
    group.is_unsaved = True
    group.replaced = before
    answer = group.join_answer(member)
    if was_leader and asked.may_skip_assignment:
        answer = answer._replace(members=group.all_metadata(), skips_assignment=True)
    elif was_leader:  # as the leader, the client would make new assignments
        answer = answer._replace(leader_id=old_id)
    group.reply(waiter, answer)
