"""Write groups and offsets as records of `__consumer_offsets`, and read such records.

Keys and values have Kafka's format: the version as int16, then a message of this version. Kafka can
read these records, and this module can read the records of every version of Kafka. This module
ignores records of other kinds. `broker.consumer_groups.records` reads the records of the new group
protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from broker.groups import rebalance
from broker.groups.exchange import Joining, Now
from broker.groups.group import Group, GroupSettings, State
from broker.groups.member import Member
from broker.groups.offsets import NO_ID, Committed
from broker.wire import codec
from broker.wire.byte_cursor import WireError
from broker.wire.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

OFFSET_KEYS, GROUP_KEY = (0, 1), 2  # the versions of keys of offsets and of groups
VALUE_VERSION = 3  # the version of values, for Kafka 2.3 and later
VALUE_VERSION_MAX = 4
TOPIC_ID_VERSION = 4  # only this version of an offset's value has a topic id (Kafka 4.1)
ENDING_VERSION = 1  # only this version of an offset's value has an expiry time
MS = 1000
_version = struct.Struct(">h")


class OffsetRecord(NamedTuple):
    """An offset of a group. If the offset was deleted, `value` is None."""

    group: str
    topic: str
    partition: int
    value: Committed | None


class GroupRecord(NamedTuple):
    """A group. If the group was deleted, `value` is None."""

    group: str
    value: GroupMetadataValue | None


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """Return the key of an offset's record."""
    return _version.pack(OFFSET_KEYS[1]) + codec.encode(
        OffsetCommitKey(group=group, topic=topic, partition=partition), 0
    )


def offset_value(committed: Committed) -> bytes:
    """Return the value of an offset's record."""
    version = VALUE_VERSION if committed.topic_id == NO_ID else TOPIC_ID_VERSION
    if committed.expires_ms >= 0:
        version = ENDING_VERSION
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.committed_ms,
        expire_timestamp=committed.expires_ms,
        topic_id=committed.topic_id,
    )
    return _version.pack(version) + codec.encode(value, version)


def group_key(group: str) -> bytes:
    """Return the key of a group's record."""
    return _version.pack(GROUP_KEY) + codec.encode(GroupMetadataKey(group=group), 0)


def group_value(group: Group) -> bytes:
    """Return the value of a group's record: its members and their assignments.

    If the group has just become a classic group, the record names no leader. So a rebalance also
    begins after a restart.
    """
    members = [
        GroupMetadataValue.MemberMetadata(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=round(member.rebalance_timeout * MS),
            session_timeout=round(member.session_timeout * MS),
            subscription=member.metadata_for(group.protocol),
            assignment=member.assignment,
        )
        for member in group.members.values()
    ]
    return _version.pack(VALUE_VERSION) + codec.encode(
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol,
            leader=None if group.is_converted else group.leader_id,
            current_state_timestamp=group.since_ms,
            members=members,
        ),
        VALUE_VERSION,
    )


def parse(key: bytes | None, value: bytes | None) -> OffsetRecord | GroupRecord | None:
    """Read a record; return None if it is of another kind.

    Raises:
        WireError: the record is of a known kind, but its bytes are not valid.
    """
    if key is None or len(key) < _version.size:
        raise WireError(0, "the key has no version")
    (kind,) = _version.unpack_from(key)
    if kind == GROUP_KEY:
        name = codec.decode("GroupMetadataKey", 0, key[_version.size :]).group
        return GroupRecord(name, None if value is None else _body("GroupMetadataValue", value))
    if kind not in OFFSET_KEYS:
        return None
    found = codec.decode("OffsetCommitKey", 0, key[_version.size :])
    if found.partition < 0:
        raise WireError(0, f"the partition is {found.partition}")
    committed = None
    if value is not None:
        body = _body("OffsetCommitValue", value)
        committed = Committed(
            body.offset, body.leader_epoch, body.metadata, body.commit_timestamp,
            body.expire_timestamp, bytes(body.topic_id),
        )  # fmt: skip
    return OffsetRecord(found.group, found.topic, found.partition, committed)


def _body(name: str, value: bytes) -> Any:
    if len(value) < _version.size:
        raise WireError(0, f"{name} has no version")
    (version,) = _version.unpack_from(value)
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise WireError(0, f"{name} has the version {version}")
    return codec.decode(name, version, value[_version.size :])


def restored(
    name: str,
    value: GroupMetadataValue,
    settings: GroupSettings,
    draw_id: Callable[[str], str],
    now: Now,
) -> Group:
    """Make a group from its record. All sessions begin again, so the members can continue.

    If the record names no leader, the members have no valid assignments. So a rebalance begins.
    """
    group = Group(name, settings, draw_id, now)
    group.generation = max(0, value.generation)
    group.protocol_type = value.protocol_type or None
    group.protocol = value.protocol
    for row in value.members:
        session = max(0, row.session_timeout) / MS
        timeout = row.rebalance_timeout / MS if row.rebalance_timeout >= 0 else session
        protocols = ((value.protocol or "", bytes(row.subscription)),)
        member = Member(
            row.member_id,
            Joining(
                row.member_id, row.group_instance_id, row.client_id, row.client_host,
                timeout, session, value.protocol_type, protocols,
            ),
        )  # fmt: skip
        member.assignment = bytes(row.assignment)
        member.hear(now.seconds)
        group.members[member.id] = member
        if member.instance_id is not None:
            group.instances[member.instance_id] = member.id
    first = next(iter(group.members), None)
    group.leader_id = value.leader if value.leader in group.members else first
    group.state = State.STABLE if group.members else State.EMPTY
    if value.current_state_timestamp >= 0:
        group.since_ms = value.current_state_timestamp
    if group.members and value.leader is None:
        group.is_converted = True
        rebalance.begin(group, now)
    return group
