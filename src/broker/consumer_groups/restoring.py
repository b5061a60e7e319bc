"""Make a group of the new protocol from its records.

The records may come from a damaged log, so the group gets only consistent records. If the first
record of a member is missing, the member is left out. If two members have the same partition, the
member with the later epoch keeps it. If a member was left out, it gets UNKNOWN_MEMBER_ID as the
answer to its next heartbeat. After this error, the member gives up its partitions and joins again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from broker.consumer_groups import records
from broker.consumer_groups.exchange import (
    LEAVES_FOR_NOW,
    Classic,
    ConsumerSettings,
    Heartbeat,
)
from broker.consumer_groups.group import ConsumerGroup
from broker.consumer_groups.member import MS, NEVER, Member, MemberState
from broker.consumer_groups.records import ConsumerRecord, places_of
from broker.groups.exchange import Now
from broker.wire.byte_cursor import WireError

EPOCH_MAX = 2**30  # a larger epoch is damage, because no group exists for so long


def restored(
    name: str, found: Iterable[ConsumerRecord], settings: ConsumerSettings, now: Now
) -> tuple[ConsumerGroup, list[str]] | None:
    """Make a group from its last records, and list their faults; None if the group was deleted.

    All sessions begin again, so the members can continue.
    """
    by_kind: dict[int, dict[str, Any]] = {kind: {} for kind in records.NAMES}
    for record in found:
        if record.value is not None:
            by_kind[record.kind][record.name] = record.value
    if not any(by_kind.values()):
        return None
    group, faults = ConsumerGroup(name, settings, now), list[str]()
    for record in by_kind[records.EPOCH].values():
        group.metadata_hash = record.metadata_hash
        if 0 <= record.epoch <= EPOCH_MAX:
            group.epoch = record.epoch
        else:
            faults.append(f"the epoch {record.epoch} is not valid")
    for record in by_kind[records.ASSIGNMENT_EPOCH].values():
        group.assignment_epoch = min(max(0, record.assignment_epoch), group.epoch)
    _add_members(group, by_kind, faults)
    lost = [
        group.members[member_id]
        for member_id, value in _latest_first(by_kind[records.CURRENT])
        if member_id in group.members and not _place(group, group.members[member_id], value)
    ]
    highest = max((member.epoch for member in group.members.values()), default=0)
    group.assignment_epoch = max(group.assignment_epoch, highest)
    group.saved()
    for member in lost:
        faults.append(f"the assignment of the member {member.id!r} is not valid")
        group.remove(member)
    if lost:
        group.bump()
    restart_sessions(group, now)
    return group, faults


def restart_sessions(group: ConsumerGroup, now: Now) -> None:
    """Let the sessions of all members, and their times to give up partitions, begin now."""
    for member in group.members.values():
        member.hear(now.seconds, group.settings.session)
        member.rejoin_deadline = NEVER
        if member.state is MemberState.UNREVOKED:
            member.revocation_deadline = now.seconds + member.rebalance_timeout_ms / MS


def _add_members(
    group: ConsumerGroup, by_kind: dict[int, dict[str, Any]], faults: list[str]
) -> None:
    for member_id, value in by_kind[records.FACTS].items():
        group.add(_member(member_id, value, group.settings))
    for member_id, value in by_kind[records.TARGET].items():
        if member_id in group.members:
            try:
                group.targets[member_id] = frozenset(places_of(value.topic_partitions))
            except WireError as error:
                faults.append(f"the target of the member {member_id!r} is not valid: {error}")
    for pattern, value in by_kind[records.PATTERN].items():
        if group.has_pattern(pattern):
            group.resolved[pattern] = frozenset(map(str, value.topics))


def _latest_first(current: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(current.items(), key=lambda item: -item[1].member_epoch)


def _member(member_id: str, value: Any, settings: ConsumerSettings) -> Member:
    timeout_ms = value.rebalance_timeout_ms
    if timeout_ms < 0:
        timeout_ms = round(settings.session * MS)
    member = Member(member_id)
    member.update(
        Heartbeat(
            member_id, 0, value.client_id, value.client_host, value.instance_id, value.rack_id,
            timeout_ms, tuple(map(str, value.subscribed_topic_names)),
            value.subscribed_topic_regex or "", value.server_assignor,
            classic=_classic(value.classic_member_metadata, settings),
        )
    )  # fmt: skip
    member.is_unheard = True
    return member


def _classic(value: Any, settings: ConsumerSettings) -> Classic | None:
    if value is None:
        return None
    session_ms = value.session_timeout_ms
    if session_ms < 0:
        session_ms = round(settings.session * MS)
    protocols = tuple((str(one.name), bytes(one.metadata)) for one in value.supported_protocols)
    return Classic(session_ms, protocols)


def _place(group: ConsumerGroup, member: Member, value: Any) -> bool:
    """Restore the partitions of a member; return False if they are not valid."""
    try:
        assigned = frozenset(places_of(value.assigned_partitions))
        revoking = frozenset(places_of(value.partitions_pending_revocation))
        state = MemberState(value.state)
    except (WireError, ValueError):
        return False
    if not LEAVES_FOR_NOW <= value.member_epoch <= group.epoch:
        return False
    if assigned & revoking or (assigned | revoking) & group.owners.keys():
        return False
    if bool(revoking) != (state is MemberState.UNREVOKED) and value.member_epoch >= 0:
        return False
    member.epoch, member.previous_epoch = value.member_epoch, value.previous_member_epoch
    member.state = state
    group.place(member, assigned, revoking)
    return True
