"""Remove members that leave, that send no heartbeats, or that keep partitions for too long."""

from __future__ import annotations

from collections.abc import Iterable

from broker.consumer_groups.exchange import (
    LEAVES_FOR_NOW,
    NOTHING,
    HeartbeatAnswer,
    Refused,
)
from broker.consumer_groups.group import ConsumerGroup
from broker.consumer_groups.member import NEVER, Member, MemberState
from broker.consumer_groups.targets import Topics
from broker.groups.exchange import Now
from broker.wire.error_codes import ErrorCode


def leave(
    group: ConsumerGroup,
    member_id: str,
    member_epoch: int,
    instance_id: str | None,
    topics: Topics,
    now: Now,
) -> HeartbeatAnswer:
    """Remove a leaving member; a static member that may return keeps its partitions."""
    try:
        member = _member_of(group, member_id, instance_id)
    except Refused as error:
        return HeartbeatAnswer(error.code, error.message)
    if member_epoch == LEAVES_FOR_NOW and instance_id is not None:
        group.place(member, member.assigned, NOTHING)
        member.epoch, member.revocation_deadline = LEAVES_FOR_NOW, NEVER
    else:
        fence(group, [member], topics, now)
    return HeartbeatAnswer(ErrorCode.NONE, None, member_id, member_epoch)


def _member_of(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    if group.is_dead:
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group was removed")
    if instance_id is not None:
        holder = group.instances.get(instance_id)
        if holder is None:
            reason = f"the instance id {instance_id!r} is unknown"
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, reason)
        if holder != member_id:
            reason = f"the member {holder!r} has the instance id {instance_id!r}"
            raise Refused(ErrorCode.FENCED_INSTANCE_ID, reason)
    member = group.members.get(member_id)
    if member is None:
        reason = f"{member_id!r} is not a member of the group {group.name!r}"
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, reason)
    return member


def fence(group: ConsumerGroup, members: Iterable[Member], topics: Topics, now: Now) -> None:
    """Remove members, and begin the next group epoch."""
    for member in members:
        group.remove(member)
    if not group.members:
        group.since_ms = now.wall_ms
    group.metadata_hash = group.hash_of(topics)
    group.bump()


def _deadline(member: Member) -> float:
    is_revoking = member.state is MemberState.UNREVOKED
    revocation = member.revocation_deadline if is_revoking else NEVER
    return min(member.deadline, member.rejoin_deadline, revocation)


def next_deadline(group: ConsumerGroup) -> float:
    """Return the next time at which `expire` can remove a member."""
    return min((_deadline(member) for member in group.members.values()), default=NEVER)


def expire(group: ConsumerGroup, topics: Topics, now: Now) -> None:
    """Remove the members whose session has ended, and members that are late.

    A member is late if it did not give up partitions in time, or if it did not join again in time.
    """
    late = [one for one in group.members.values() if _deadline(one) <= now.seconds]
    if late:
        fence(group, late, topics, now)


def end(group: ConsumerGroup, now: Now) -> None:
    """Remove the group."""
    group.is_dead, group.since_ms = True, now.wall_ms
