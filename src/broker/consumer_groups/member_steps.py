"""Move one member a step towards its part of the target assignment.

assigned    what the member has and keeps    = has ∩ target
revoking    what it must give up             = has - target
new         what it gets now                 = target - has - what others have

If a member is STABLE in the assignment epoch, it has no next step. Otherwise, the first row that
fits applies:

STABLE or UNRELEASED    revoking is not empty              UNREVOKED, in its own epoch
                        others have a part of the target   UNRELEASED, in the assignment epoch
                        otherwise                          STABLE, in the assignment epoch
UNREVOKED               the member gave up all `revoking`  as for STABLE, one epoch later
"""

from __future__ import annotations

from broker.consumer_groups.exchange import NOTHING, Places
from broker.consumer_groups.group import ConsumerGroup
from broker.consumer_groups.member import MS, NEVER, Member, MemberState
from broker.groups.exchange import Now


def reconcile(group: ConsumerGroup, member: Member, owned: Places | None, now: Now) -> None:
    """Do the next step of a member, if this is possible.

    Args:
        owned: the partitions that the member's heartbeat lists; None if it lists none.
    """
    if member.has_reached(group.assignment_epoch):
        return
    if member.state is MemberState.UNREVOKED:
        if owned is None or owned & member.revoking:
            return
        _step(group, member, member.epoch + 1, owned, now)
    else:
        _step(group, member, member.epoch, owned, now)


def _step(group: ConsumerGroup, member: Member, epoch: int, owned: Places | None, now: Now) -> None:
    target = group.targets.get(member.id, NOTHING)
    kept = member.assigned & target
    lost = member.assigned - target
    if lost and (owned is None or owned & lost):
        group.place(member, kept, lost)
        group.enter(member, MemberState.UNREVOKED, epoch)
        member.revocation_deadline = now.seconds + member.rebalance_timeout_ms / MS
        return
    missing = target - kept
    free = {place for place in missing if group.owners.get(place, member.id) == member.id}
    before = member.assigned, member.revoking, member.state, member.epoch
    state = MemberState.UNRELEASED if missing - free else MemberState.STABLE
    after = kept | free, NOTHING, state, group.assignment_epoch
    if before == after:  # the member still waits for the same partitions
        return
    group.place(member, kept | free, NOTHING)
    group.enter(member, state, group.assignment_epoch)
    member.revocation_deadline = NEVER
