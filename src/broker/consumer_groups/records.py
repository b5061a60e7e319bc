"""Write groups of the new protocol as records of `__consumer_offsets`, and read these records.

    key   record                     one for each
    3     epoch and metadata hash    group
    4     partitions of topics       group; only Kafka before 4.1 writes it; read and deleted
    5     facts about a member       member
    6     assignment epoch           group
    7     target assignment          member
    8     epochs, state, partitions  member
    16    topics of a pattern        pattern

Keys and values have Kafka's format: the number of the key or the version of the value as int16,
then a message. If a record has no value, it deletes the earlier record with the same key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from broker.consumer_groups.exchange import NOTHING, Classic, Places
from broker.consumer_groups.group import ConsumerGroup
from broker.consumer_groups.member import Member
from broker.groups.exchange import Now
from broker.wire import codec
from broker.wire.byte_cursor import WireError
from broker.wire.messages import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    classes_of,
)

EPOCH, PARTITIONS, FACTS, ASSIGNMENT_EPOCH, TARGET, CURRENT, PATTERN = 3, 4, 5, 6, 7, 8, 16
NAMES = {
    EPOCH: "ConsumerGroupMetadata",
    PARTITIONS: "ConsumerGroupPartitionMetadata",
    FACTS: "ConsumerGroupMemberMetadata",
    ASSIGNMENT_EPOCH: "ConsumerGroupTargetAssignmentMetadata",
    TARGET: "ConsumerGroupTargetAssignmentMember",
    CURRENT: "ConsumerGroupCurrentMemberAssignment",
    PATTERN: "ConsumerGroupRegularExpression",
}
Record = tuple[bytes, bytes | None]  # the key and the value of a record
_int16 = struct.Struct(">h")


class ConsumerRecord(NamedTuple):
    """One record of a group.

    Attributes:
        kind: one of the numbers in `NAMES`.
        name: the member id or the pattern; "" if the record is about the whole group.
        value: None deletes the earlier record with the same key.
    """

    group: str
    kind: int
    name: str
    value: Any


def key_of(kind: int, group: str, *name: str) -> bytes:
    """Return the key of a record."""
    message = classes_of(NAMES[kind] + "Key")[NAMES[kind] + "Key"](group, *name)
    return _int16.pack(kind) + codec.encode(message, 0)


def _value(message: Any) -> bytes:
    return _int16.pack(0) + codec.encode(message, 0)


def changes_of(group: ConsumerGroup, now: Now) -> list[Record]:
    """Return the records that the log lacks, in Kafka's order.

    Deletions come first, so that a partition can change its owner within one batch. The assignment
    epoch comes after the targets. So if only the targets were written, the targets are computed
    again.
    """
    name, members = group.name, group.members
    kinds = ((CURRENT, group.unsaved_places), (TARGET, group.unsaved_targets),
             (FACTS, group.unsaved_facts))  # fmt: skip
    found: list[Record] = [
        (key_of(kind, name, one), None) for kind, ids in kinds for one in ids if one not in members
    ]
    for pattern in group.unsaved_patterns:
        topics = group.resolved.get(pattern) if group.has_pattern(pattern) else None
        found.append((key_of(PATTERN, name, pattern), _pattern_value(topics, now)))
    found += [
        (key_of(FACTS, name, one), _facts_value(members[one]))
        for one in group.unsaved_facts
        if one in members
    ]
    if group.is_epoch_unsaved:
        value = ConsumerGroupMetadataValue(epoch=group.epoch, metadata_hash=group.metadata_hash)
        found.append((key_of(EPOCH, name), _value(value)))
    found += [
        (key_of(TARGET, name, one), _target_value(group.targets.get(one, NOTHING)))
        for one in group.unsaved_targets
        if one in members
    ]
    if group.is_assignment_epoch_unsaved:
        epoch = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=group.assignment_epoch)
        found.append((key_of(ASSIGNMENT_EPOCH, name), _value(epoch)))
    found += [
        (key_of(CURRENT, name, one), _current_value(members[one]))
        for one in group.unsaved_places
        if one in members
    ]
    return found


def deletion_of(group: ConsumerGroup) -> list[Record]:
    """Return the records that delete a group, in Kafka's order."""
    name = group.name
    keys = [key_of(kind, name, one) for kind in (CURRENT, TARGET, FACTS) for one in group.members]
    keys += [key_of(PATTERN, name, pattern) for pattern in group.resolved]
    keys += [key_of(kind, name) for kind in (ASSIGNMENT_EPOCH, PARTITIONS, EPOCH)]
    return [(key, None) for key in keys]


def _rows(places: Places, kind: Any) -> list[Any]:
    topics: dict[bytes, list[int]] = {}
    for topic, number in sorted(places):
        topics.setdefault(topic, []).append(number)
    return [kind(topic, numbers) for topic, numbers in topics.items()]


def _pattern_value(topics: Iterable[str] | None, now: Now) -> bytes | None:
    if topics is None:
        return None
    return _value(
        ConsumerGroupRegularExpressionValue(
            topics=sorted(topics), version=now.wall_ms, timestamp=now.wall_ms
        )
    )


def _facts_value(member: Member) -> bytes:
    return _value(
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
            subscribed_topic_regex=member.pattern,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=None if member.classic is None else _classic(member.classic),
        )
    )


def _classic(classic: Classic) -> Any:
    kinds = classes_of("ConsumerGroupMemberMetadataValue")
    protocols = [kinds["ClassicProtocol"](*one) for one in classic.protocols]
    return kinds["ClassicMemberMetadata"](classic.session_ms, protocols)


def _target_value(places: Places) -> bytes:
    kind = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
    return _value(ConsumerGroupTargetAssignmentMemberValue(_rows(places, kind)))


def _current_value(member: Member) -> bytes:
    kind = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
    return _value(
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_rows(member.assigned, kind),
            partitions_pending_revocation=_rows(member.revoking, kind),
        )
    )


# --- reading --------------------------------------------------------------------------------------


def parse(key: bytes | None, value: bytes | None) -> ConsumerRecord | None:
    """Read a record; return None if it is of another kind.

    Raises:
        WireError: the record is of a known kind, but its bytes are not valid.
    """
    if key is None or len(key) < _int16.size:
        raise WireError(0, "the key has no version")
    (kind,) = _int16.unpack_from(key)
    if kind not in NAMES:
        return None
    found = codec.decode(NAMES[kind] + "Key", 0, key[_int16.size :])
    body = None
    if value is not None:
        name = NAMES[kind] + "Value"
        if value[: _int16.size] != _int16.pack(0):
            raise WireError(0, f"{name} has an unknown version")
        body = codec.decode(name, 0, value[_int16.size :])
    return ConsumerRecord(found.group_id, kind, found[1] if len(found) > 1 else "", body)


def places_of(rows: Iterable[Any]) -> Iterator[tuple[bytes, int]]:
    """Yield the partitions in rows of a record.

    Raises:
        WireError: the number of a partition is negative.
    """
    for row in rows:
        for number in row.partitions:
            if number < 0:
                raise WireError(0, f"the partition is {number}")
            yield bytes(row.topic_id), number
