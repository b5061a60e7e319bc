"""Read and write the bytes that classic consumers exchange inside JoinGroup and SyncGroup.

Kafka calls these bytes the embedded protocol. They begin with their version as int16. A reader of
an earlier version ignores the fields that a later version adds at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from broker.consumer_groups.exchange import Places, TopicImage
from broker.wire import codec
from broker.wire.byte_cursor import Cursor, WireError
from broker.wire.messages import ConsumerProtocolAssignment

VERSION_MAX = 3
NO_GENERATION = -1
_version = struct.Struct(">h")


class Subscription(NamedTuple):
    """The facts that a classic consumer tells the leader of its group.

    Attributes:
        owned: the partitions that the consumer still has, as pairs of a topic's name and a number.
        generation: the generation in which the consumer got these partitions; -1 if not known.
    """

    topics: tuple[str, ...]
    owned: frozenset[tuple[str, int]]
    generation: int
    rack_id: str | None


class Assignment(NamedTuple):
    """The partitions that the leader of a group gave to a member.

    Attributes:
        has_user_data: whether the leader also sent bytes that only its assignor understands.
    """

    places: frozenset[tuple[str, int]]
    has_user_data: bool


def subscription_of(metadata: bytes) -> Subscription | None:
    """Read the metadata of a member; return None if the bytes are not valid."""
    found = _read("ConsumerProtocolSubscription", metadata)
    if found is None:
        return None
    places = _places(found.owned_partitions)
    if places is None:
        return None
    rack_id = found.rack_id or None
    return Subscription(tuple(map(str, found.topics)), places, found.generation_id, rack_id)


def assignment_of(data: bytes) -> Assignment | None:
    """Read the assignment of a member; return None if the bytes are not valid.

    A member without an assignment has no bytes.
    """
    if not data:
        return Assignment(frozenset(), has_user_data=False)
    found = _read("ConsumerProtocolAssignment", data)
    places = None if found is None else _places(found.assigned_partitions)
    return None if places is None else Assignment(places, bool(found.user_data))


def assignment_bytes(places: Places, metadata: bytes, topics: Mapping[str, TopicImage]) -> bytes:
    """Write an assignment in the version of the member's metadata.

    Args:
        topics: the topics by name. Partitions of other topics are left out.
    """
    (version,) = _version.unpack_from(metadata) if len(metadata) >= _version.size else (0,)
    version = min(max(version, 0), VERSION_MAX)
    numbers: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(places):
        numbers.setdefault(topic_id, []).append(number)
    Row = ConsumerProtocolAssignment.TopicPartition  # noqa: N806 - a class
    rows = [Row(name, numbers[topic.id]) for name, topic in topics.items() if topic.id in numbers]
    message = ConsumerProtocolAssignment(assigned_partitions=rows)
    return _version.pack(version) + codec.encode(message, version)


def ids_of(places: Iterable[tuple[str, int]], topics: Mapping[str, TopicImage]) -> Places:
    """Replace the names of topics by their ids. Partitions of unknown topics are left out."""
    return frozenset((topics[name].id, number) for name, number in places if name in topics)


def _places(rows: Iterable[Any]) -> frozenset[tuple[str, int]] | None:
    places = frozenset((str(row.topic), number) for row in rows for number in row.partitions)
    return None if any(number < 0 for _, number in places) else places


def _read(name: str, data: bytes) -> Any:
    if len(data) < _version.size:
        return None
    (version,) = _version.unpack_from(data)
    if version < 0:
        return None
    try:
        cursor = Cursor(memoryview(data), _version.size)
        return codec.read(name, min(version, VERSION_MAX), cursor)
    except WireError:
        return None
