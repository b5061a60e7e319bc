"""Give each member of a group its assignment. The leader of the group makes the assignments."""

from __future__ import annotations

from typing import Any

from broker.groups import rebalance
from broker.groups.exchange import Now, SyncAnswer, Syncing
from broker.groups.group import NEVER, Group, State
from broker.wire.error_codes import ErrorCode


def sync(group: Group, asked: Syncing, waiter: Any, now: Now) -> None:
    """Take the leader's assignments, or let a member wait for its assignment."""
    error = _sync(group, asked, waiter, now)
    if error:
        group.reply(waiter, SyncAnswer(error))


def _sync(group: Group, asked: Syncing, waiter: Any, now: Now) -> ErrorCode:
    fault = group.fault_of(asked.member_id, asked.instance_id, asked.generation)
    if fault:
        return fault
    is_other_type = asked.protocol_type not in (None, group.protocol_type)
    if is_other_type or asked.protocol not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is State.PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    member = group.members[asked.member_id]
    member.hear(now.seconds)
    group.unsynced.discard(member.id)
    if not group.unsynced:
        group.sync_deadline = NEVER
    if group.state is State.STABLE:
        group.reply(waiter, group.sync_answer(member))
        return ErrorCode.NONE
    if member.syncing is not None:  # the client no longer waits for its earlier request
        group.reply(member.syncing, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
    member.syncing = waiter
    if member.id == group.leader_id:
        _assign(group, asked.assignments, now)
    return ErrorCode.NONE


def _assign(group: Group, assignments: dict[str, bytes], now: Now) -> None:
    for member in group.members.values():
        member.assignment = assignments.get(member.id, b"")
    if group.size_bytes > group.settings.bytes_max:
        rebalance.answer_syncs(group, ErrorCode.UNKNOWN_SERVER_ERROR, now)
        rebalance.begin(group, now)
        return
    group.enter(State.STABLE, now)
    group.is_converted = False
    group.is_unsaved = True
    for member in group.members.values():
        waiter, member.syncing = member.syncing, None
        if waiter is not None:
            member.hear(now.seconds)
            group.reply(waiter, group.sync_answer(member))
