"""Keep the offsets that a group has committed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from broker.groups.group import State

Key = tuple[str, int]  # topic and partition
NO_ID = bytes(16)


class Committed(NamedTuple):
    """One committed offset.

    Attributes:
        leader_epoch: the epoch of the last record that the consumer read; -1 if it is not known.
        expires_ms: the time when the offset expires, if the client chose a time; -1 if the
            retention of the broker applies.
        topic_id: the id of the topic that was read; NO_ID if it is not known.
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int = -1
    topic_id: bytes = NO_ID

    def is_of(self, topic_id: bytes) -> bool:
        """Report whether the offset belongs to this topic, not to an older topic of this name."""
        return NO_ID in (topic_id, self.topic_id) or topic_id == self.topic_id


class Owner(Protocol):
    """The facts about a group that the retention needs, for both protocols."""

    since_ms: int

    @property
    def state(self) -> State:
        """The state of the group."""

    @property
    def protocol_type(self) -> str | None:
        """The protocol type of the members; None if no member has ever joined."""


def expired(
    group: Owner,
    offsets: dict[Key, Committed],
    subscribed: Iterable[str] | None,
    retention_ms: int,
    now_ms: int,
) -> list[Key]:
    """Return the keys of the offsets that are no longer needed (KIP-211).

    The retention begins when the group becomes empty. There are two cases in which it begins with
    the commit: a program only commits and never joins the group, or no member has subscribed to the
    topic.

    Args:
        subscribed: the topics to which the members have subscribed; None if they are not known.
    """
    is_simple = group.protocol_type is None
    if group.state is not State.EMPTY and subscribed is None:
        return []
    wanted = frozenset(subscribed or ())
    since_ms = -1 if is_simple or group.state is not State.EMPTY else group.since_ms
    return [
        key
        for key, one in offsets.items()
        if (group.state is State.EMPTY or key[0] not in wanted)
        and now_ms >= _end_of(one, max(since_ms, one.committed_ms), retention_ms)
    ]


def _end_of(one: Committed, since_ms: int, retention_ms: int) -> int:
    return one.expires_ms if one.expires_ms >= 0 else since_ms + retention_ms
