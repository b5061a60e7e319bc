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
    group.since_ms, group.epoch, group.assignment_epoch, group.metadata_hash = before[:4]
    group.instances, group.targets, group.resolved = before[5:8]
    group.members = {key: before.copies.get(key, one) for key, one in before.members.items()}
    group.owners = {
        place: one.id for one in group.members.values() for place in one.assigned | one.revoking
    }
    group.matched, group.looked_at = {}, float("-inf")
    group.saved()
    restart_sessions(group, now)
