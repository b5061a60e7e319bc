"""Answer the classic requests of members of a group of the new protocol (KIP-848).

    JoinGroup    the next step of the member, as after a heartbeat; nobody waits for other members
    SyncGroup    the partitions that the member has now, in the classic format
    Heartbeat    REBALANCE_IN_PROGRESS if the member must join again
    LeaveGroup   the member is removed

A member must join again if the group has a later epoch, if the member must give up partitions, or
if partitions that it lacks have become free. The generation of a classic member is its epoch. No
member is the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.consumer_groups import heartbeats, leaving
from broker.consumer_groups.exchange import JOINS, NOTHING, Classic, Heartbeat, Refused
from broker.consumer_groups.group import PROTOCOL_TYPE, ConsumerGroup
from broker.consumer_groups.member import MS, NEVER, Member, MemberState
from broker.consumer_groups.targets import Topics, refresh
from broker.groups.exchange import JoinAnswer, Joining, Now, SyncAnswer, Syncing
from broker.mixed_groups import consumer_bytes
from broker.wire.error_codes import ErrorCode

Leaving = Iterable[tuple[str, str | None]]  # the member id and the instance id of each member


# --- JoinGroup ------------------------------------------------------------------------------------


def join(
    group: ConsumerGroup, asked: Joining, topics: Topics, draw_id: Callable[[str], str], now: Now
) -> JoinAnswer:
    """Let a classic member join, or join again.

    Args:
        topics: all topics by name.
        draw_id: returns a new member id that begins with a given prefix.
    """
    try:
        return _join(group, asked, topics, draw_id, now)
    except Refused as error:
        return JoinAnswer(error.code, asked.member_id)


def _join(
    group: ConsumerGroup, asked: Joining, topics: Topics, draw_id: Callable[[str], str], now: Now
) -> JoinAnswer:
    if group.is_dead:
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group was removed")
    subscription = _subscription(group, asked)
    member_id = asked.member_id or draw_id(asked.instance_id or asked.client_id)
    if asked.member_id and asked.instance_id is not None:
        fault = _fault_of(group, asked.member_id, asked.instance_id)
        if fault:
            raise Refused(fault, "another member has the instance id, or no member has it")
    elif asked.member_id and subscription.owned and asked.member_id not in group.members:
        # The member was removed, so others may have its partitions. It must give them up first.
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "a member that was removed still has partitions")
    if not asked.member_id and asked.instance_id is None and asked.needs_known_id:
        return JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    joining = Heartbeat(
        member_id=member_id,
        member_epoch=JOINS,
        client_id=asked.client_id,
        client_host=asked.client_host,
        instance_id=asked.instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=round(asked.rebalance_timeout * MS),
        topics=subscription.topics,
        pattern="",
        owned=consumer_bytes.ids_of(subscription.owned, topics),
        classic=Classic(round(asked.session_timeout * MS), asked.protocols),
    )
    answer = heartbeats.admit(group, joining, topics, lambda: member_id, now)
    protocol = common_protocol(group)
    return JoinAnswer(ErrorCode.NONE, member_id, answer.member_epoch, PROTOCOL_TYPE, protocol)


def _subscription(group: ConsumerGroup, asked: Joining) -> consumer_bytes.Subscription:
    """Return the subscription of a joining member.

    Raises:
        Refused: the member supports no protocol of all classic members, or its bytes are not valid.
    """
    size = sum(len(name) + len(data) for name, data in asked.protocols)
    if size > group.settings.member_bytes_max:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "the data of the member is too large")
    names = {name for name, _ in asked.protocols}
    others = [one for one in group.classic_members if one.id != asked.member_id]
    common = names.intersection(*map(_names, others))
    subscription = consumer_bytes.subscription_of(asked.protocols[0][1]) if common else None
    if asked.protocol_type != PROTOCOL_TYPE or subscription is None:
        reason = f"the protocols of the member do not suit the group {group.name!r}"
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reason)
    return subscription


def _names(member: Member) -> set[str]:
    return set() if member.classic is None else {name for name, _ in member.classic.protocols}


def common_protocol(group: ConsumerGroup) -> str | None:
    """Return the first protocol of the first classic member that all classic members support.

    The group does not use the protocol. But if the group becomes classic, its members must have
    received one protocol.
    """
    members = group.classic_members
    common = set[str].intersection(*map(_names, members)) if members else set()
    listed = members[0].classic.protocols if members and members[0].classic is not None else ()
    return next((name for name, _ in listed if name in common), None)


# --- SyncGroup and Heartbeat ----------------------------------------------------------------------


def sync(group: ConsumerGroup, asked: Syncing, topics: Topics, now: Now) -> SyncAnswer:
    """Return the partitions that a member has now."""
    member, fault = _present(group, asked.member_id, asked.instance_id, asked.generation)
    if member is None or member.classic is None:
        return SyncAnswer(fault)
    is_other_type = asked.protocol_type not in (None, PROTOCOL_TYPE)
    if is_other_type or not (asked.protocol is None or asked.protocol in _names(member)):
        return SyncAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    member.hear(now.seconds, group.settings.session)
    if member.epoch < group.epoch and member.state is not MemberState.UNREVOKED:
        _expect(group, member, now)
        return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
    member.rejoin_deadline = NEVER
    subscribed = {name: topics[name] for name in member.topics if name in topics}
    metadata = next((data for _, data in member.classic.protocols), b"")
    assignment = consumer_bytes.assignment_bytes(member.assigned, metadata, subscribed)
    return SyncAnswer(ErrorCode.NONE, asked.protocol_type, asked.protocol, assignment)


def heartbeat(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    generation: int,
    topics: Topics,
    now: Now,
) -> ErrorCode:
    """Record that a member is alive. The answer says whether it must join again."""
    member, fault = _present(group, member_id, instance_id, generation)
    if member is None:
        return fault
    member.hear(now.seconds, group.settings.session)
    refresh(group, topics, now, has_changed=False)
    if not _must_join_again(group, member):
        return ErrorCode.NONE
    _expect(group, member, now)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _must_join_again(group: ConsumerGroup, member: Member) -> bool:
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED:
        return True
    missing = group.targets.get(member.id, NOTHING) - member.assigned
    is_free = missing.isdisjoint(group.owners.keys())
    return member.state is MemberState.UNRELEASED and is_free


def _expect(group: ConsumerGroup, member: Member, now: Now) -> None:
    """Begin to wait until the member joins again, unless the group waits already."""
    if member.rejoin_deadline == NEVER:
        member.rejoin_deadline = now.seconds + member.rebalance_timeout_ms / MS
        group.has_new_deadline = True


def _present(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[Member | None, ErrorCode]:
    """Return the classic member that sent a request, or None and an error."""
    if group.is_dead:
        return None, ErrorCode.COORDINATOR_NOT_AVAILABLE
    fault, member = _fault_of(group, member_id, instance_id), group.members.get(member_id)
    if fault or member is None or member.classic is None:
        return None, fault or ErrorCode.UNKNOWN_MEMBER_ID
    if generation != member.epoch:
        return None, ErrorCode.ILLEGAL_GENERATION
    return member, ErrorCode.NONE


def _fault_of(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    holder = member_id if instance_id is None else group.instances.get(instance_id)
    if holder is None or (holder == member_id and member_id not in group.members):
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if holder == member_id else ErrorCode.FENCED_INSTANCE_ID


# --- LeaveGroup -----------------------------------------------------------------------------------


def leave(group: ConsumerGroup, members: Leaving, topics: Topics, now: Now) -> list[ErrorCode]:
    """Remove members that leave, or that an administrator names by their instance ids."""
    codes, gone = [], dict[str, Member]()
    for member_id, instance_id in members:
        if group.is_dead:
            codes.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            continue
        if not member_id and instance_id is not None:
            member_id = group.instances.get(instance_id, "")
        fault, member = _fault_of(group, member_id, instance_id), group.members.get(member_id)
        is_named = instance_id is not None
        if not fault and (member_id in gone or (member and not member.classic and not is_named)):
            fault = ErrorCode.UNKNOWN_MEMBER_ID
        if not fault and member is not None:
            gone[member_id] = member
        codes.append(fault)
    if gone:
        leaving.fence(group, gone.values(), topics, now)
    return codes
