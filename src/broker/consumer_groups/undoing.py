"""Undo the changes of a group that the log has refused."""

from __future__ import annotations

from broker.consumer_groups.group import ConsumerGroup
from broker.consumer_groups.restoring import restart_sessions
from broker.groups.exchange import Now


def undo(group: ConsumerGroup, now: Now) -> None:
    """Return to the state that the log has. The sessions of all members begin again."""
    before = group.before
    if before is None:
        return
    group.since_ms, group.metadata_hash = before.since_ms, before.metadata_hash
    group.epoch, group.assignment_epoch = before.epoch, before.assignment_epoch
    if before.lists is not None:
        group.members, group.instances, group.targets, group.resolved = before.lists
    group.members |= before.copies
    group.owners = {
        place: one.id for one in group.members.values() for place in one.assigned | one.revoking
    }
    group.matched, group.looked_at = {}, float("-inf")
    group.saved()
    restart_sessions(group, now)
