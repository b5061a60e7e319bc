"""Answer the heartbeats of members that join or continue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.consumer_groups import patterns
from broker.consumer_groups.exchange import JOINS, NOTHING, Heartbeat, HeartbeatAnswer, Refused
from broker.consumer_groups.group import ConsumerGroup
from broker.consumer_groups.member import MS, NEVER, Member
from broker.consumer_groups.member_steps import reconcile
from broker.consumer_groups.targets import Topics, refresh
from broker.groups.exchange import Now
from broker.wire.error_codes import ErrorCode

Draw = Callable[[], str]


def heartbeat(
    group: ConsumerGroup, asked: Heartbeat, topics: Topics, draw_id: Draw, waiter: Any, now: Now
) -> None:
    """Let a member join or continue. The answer says which partitions the member may read.

    Args:
        topics: all topics by name.
        draw_id: returns an id for a member that has none.
    """
    try:
        answer = admit(group, asked, topics, draw_id, now)
    except Refused as error:
        answer = HeartbeatAnswer(error.code, error.message)
    group.reply(waiter, answer)


def admit(
    group: ConsumerGroup, asked: Heartbeat, topics: Topics, draw_id: Draw, now: Now
) -> HeartbeatAnswer:
    """Let a member join or continue, and return the answer.

    Raises:
        Refused: the group has not changed.
    """
    _check_room(group, asked)
    old = _member_of(group, asked)
    if asked.pattern and not group.has_pattern(asked.pattern):
        try:
            patterns.check(asked.pattern)
        except patterns.PatternError as error:
            reason = f"SubscribedTopicRegex `{asked.pattern}` is not valid: {error}"
            raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, reason) from error
    assigned = NOTHING if old is None else old.assigned
    member, has_changed = _update(group, old, asked, draw_id)
    refresh(group, topics, now, has_changed=has_changed or not group.epoch)
    reconcile(group, member, asked.owned, now)
    member.hear(now.seconds, group.settings.session)
    member.rejoin_deadline = NEVER
    if member.classic is not None:
        member.rejoin_deadline = now.seconds + member.rebalance_timeout_ms / MS
    says_all = asked.is_full or member.assigned != assigned
    return HeartbeatAnswer(
        ErrorCode.NONE, None, member.id, member.epoch, member.assigned if says_all else None
    )


def _check_room(group: ConsumerGroup, asked: Heartbeat) -> None:
    """Refuse a new member if the group is full, or a member if its subscription is too large."""
    size_max, bytes_max = group.settings.size_max, group.settings.bytes_max
    is_new = asked.member_id not in group.members
    if is_new and len(group.members) >= size_max:
        reason = f"the group has {size_max} members, which is the maximum"
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)
    if not is_new and asked.topics is None and asked.pattern is None:
        return
    trial = Member("")
    trial.update(asked)
    others = sum(one.size_bytes for one in group.members.values())
    if trial.size_bytes > group.settings.member_bytes_max or others + trial.size_bytes > bytes_max:
        reason = "the subscriptions of the members are too large for one group"
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)


def _member_of(group: ConsumerGroup, asked: Heartbeat) -> Member | None:
    """Find the member that sent a heartbeat, or that the sender replaces; None for a new member.

    Raises:
        Refused: the member is unknown, or another member has taken its place.
    """
    is_joining, member = asked.member_epoch == JOINS, group.members.get(asked.member_id)
    if asked.instance_id is not None:
        holder = group.members.get(group.instances.get(asked.instance_id, ""))
        name = f"the static member {asked.member_id!r} with the instance id {asked.instance_id!r}"
        if holder is None and not is_joining:
            reason = f"the instance id {asked.instance_id!r} is unknown"
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, reason)
        if holder is not None and is_joining and _gives_way(holder, asked):
            return holder
        if holder is not None and holder.id != asked.member_id:
            if is_joining:
                reason = f"{name} cannot join: the member {holder.id!r} has this instance id"
                raise Refused(ErrorCode.UNRELEASED_INSTANCE_ID, reason)
            reason = f"{name} was replaced by the member {holder.id!r}"
            raise Refused(ErrorCode.FENCED_INSTANCE_ID, reason)
        member = holder or member
    if member is None:
        if not is_joining:
            reason = f"{asked.member_id!r} is not a member of the group {group.name!r}"
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, reason)
        return None
    _check_epoch(member, asked)
    return member


def _gives_way(holder: Member, asked: Heartbeat) -> bool:
    """Report whether a joining process takes the place of a static member.

    As in the classic protocol, a classic member does not have to leave before that.
    """
    is_other = holder.id != asked.member_id
    is_mixed = holder.classic is not None or asked.classic is not None
    return holder.is_away or (is_other and is_mixed)


def _check_epoch(member: Member, asked: Heartbeat) -> None:
    """Refuse a heartbeat of a wrong epoch.

    If an answer was lost, the member sends its previous epoch. If a member joins again, it has
    given up all its partitions, so it is always accepted.
    """
    epoch = asked.member_epoch
    if epoch in (JOINS, member.epoch):
        return
    is_late = epoch == member.previous_epoch and epoch < member.epoch
    if is_late and asked.owned is not None and asked.owned <= member.assigned:
        return
    size = "greater" if epoch > member.epoch else "smaller"
    reason = (
        f"the member has the epoch {epoch}, which is {size} than its epoch {member.epoch} in the "
        "group; the member must give up all its partitions and join again"
    )
    raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, reason)


def _update(
    group: ConsumerGroup, old: Member | None, asked: Heartbeat, draw_id: Draw
) -> tuple[Member, bool]:
    """Add, replace or update a member; report whether a member or its subscription has changed."""
    has_fewer = False
    if old is None:
        member = Member(asked.member_id or draw_id())
        group.add(member)
    elif old.is_away or old.id != asked.member_id:
        earlier = group.members.get(asked.member_id, old)
        if earlier is not old:  # a member joins again, and now replaces a static member
            group.remove(earlier)
            has_fewer = True
        member = _replace(group, old, asked.member_id or draw_id())
    else:
        member = old
    facts, subscription = member.facts(), (member.topics, member.pattern)
    if member.is_changed_by(asked):
        group.changing(member)
    if asked.instance_id not in (None, member.instance_id):
        group.instances.pop(member.instance_id or "", None)
    if asked.classic is None:
        _note_viewer(group, member, asked)
    member.update(asked)
    if member.instance_id is not None:
        group.instances[member.instance_id] = member.id
    if old is not member or facts != member.facts():
        group.unsaved_facts[member.id] = None
    pattern = subscription[1]
    if pattern != member.pattern and pattern and not group.has_pattern(pattern):
        group.resolved.pop(pattern, None)
        group.unsaved_patterns[pattern] = None
    return member, has_fewer or subscription != (member.topics, member.pattern)


def _note_viewer(group: ConsumerGroup, member: Member, asked: Heartbeat) -> None:
    """If the topics that the member may see have changed, look for topics at once."""
    version = None if asked.viewer is None else asked.viewer.version
    if member.viewer != asked.viewer or version is not group.viewed_version:
        group.looked_at, group.viewed_version = float("-inf"), version


def _replace(group: ConsumerGroup, old: Member, member_id: str) -> Member:
    """Give all partitions and facts of a static member to the process that replaces it."""
    member = old.heir(member_id)
    places, target = member.assigned, group.targets.get(old.id)
    member.assigned = member.revoking = NOTHING
    resolved = group.resolved.get(old.pattern)
    group.remove(old)
    if resolved is not None:
        group.resolved[old.pattern] = resolved
    group.add(member)
    group.place(member, places, NOTHING)
    if target is not None:
        group.targets[member_id] = target
        group.unsaved_targets[member_id] = None
    return member
