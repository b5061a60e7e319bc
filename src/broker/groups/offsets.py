"""Keep the offsets that a group has committed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from broker.groups.group import Group, State

Key = tuple[str, int]  # topic and partition


class Committed(NamedTuple):
    """One committed offset.

    Attributes:
        leader_epoch: of the last record that the consumer read; -1 if it did not say.
        expires_ms: when it ends, for a client that said so; -1: after the broker's retention.
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int = -1


def expired(
    group: Group,
    offsets: dict[Key, Committed],
    subscribed: Iterable[str] | None,
    retention_ms: int,
    now_ms: int,
) -> list[Key]:
    """Return the offsets that nobody needs any more (KIP-211).

    The retention begins when the group becomes empty. For a program that only commits, without
    membership, it begins with the commit; so it does for topics that no member has subscribed to.

    Args:
        subscribed: the topics of the members; None if they cannot be known.
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
