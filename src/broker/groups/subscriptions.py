"""Read the topics to which the members of a group have subscribed."""

from __future__ import annotations

import struct

from broker.groups.group import CONSUMERS, Group
from broker.wire import codec
from broker.wire.byte_cursor import Cursor, WireError

VERSION_MAX = 3  # a later version only adds fields at the end
_version = struct.Struct(">h")


def topics_of(group: Group) -> set[str] | None:
    """Return the topics to which the members have subscribed; None if they are not known."""
    if group.protocol_type != CONSUMERS or group.protocol is None:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        found = parse(member.metadata_for(group.protocol))
        if found is None:
            return None
        topics.update(found)
    return topics


def parse(metadata: bytes) -> list[str] | None:
    """Return the topics in the metadata of a consumer; None if the bytes are not valid."""
    if len(metadata) < _version.size:
        return None
    (version,) = _version.unpack_from(metadata)
    if version < 0:
        return None
    try:
        cursor = Cursor(memoryview(metadata), _version.size)
        message = codec.read("ConsumerProtocolSubscription", min(version, VERSION_MAX), cursor)
    except WireError:
        return None
    return [str(topic) for topic in message.topics]
