"""Ask brokers to put replicas into the log dirs that a reassignment names (KIP-113).

A broker that already has the replica moves the replica to the wanted log dir. A broker that does
not have the replica yet remembers the log dir, and later creates the replica there. So these
requests are sent before the brokers of the partitions are changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from broker.wire.error_codes import ErrorCode
from cluster.tools.asking import Asked, Place, Refusal
from cluster.tools.reassignment_file import Wanted

# This code means that the broker has no replica of the partition yet, and remembers the log dir.
REMEMBERED = ErrorCode.REPLICA_NOT_AVAILABLE


class Copy(NamedTuple):
    """A replica of a partition on one broker, or the copy that a move makes of it."""

    broker: int
    place: Place
    path: str
    is_future: bool


def wishes_of(wanted: Mapping[Place, Wanted]) -> dict[int, dict[Place, str]]:
    """Return for each broker the wanted log dirs of its replicas."""
    found: dict[int, dict[Place, str]] = {}
    for place, one in wanted.items():
        for broker, path in one.dirs.items():
            found.setdefault(broker, {})[place] = path
    return found


def ask_for_dirs(
    asked: Asked, metadata: Any, wishes: Mapping[int, Mapping[Place, str]]
) -> dict[Place, Refusal]:
    """Ask each broker to use the wanted log dirs; return the refusals."""
    brokers = {one.node_id: one for one in metadata.brokers}
    refused: dict[Place, Refusal] = {}
    for broker, paths in wishes.items():
        if broker not in brokers:
            away = Refusal(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is gone")
            refused.update(dict.fromkeys(paths, away))
            continue
        for place, code in asked.move_replicas(brokers[broker], paths).items():
            if code not in (ErrorCode.NONE, REMEMBERED):
                refused[place] = Refusal(code, f"broker {broker}, log dir {paths[place]}")
    return refused


def copies_on(asked: Asked, metadata: Any, brokers: Iterable[int]) -> list[Copy]:
    """List the replicas on some brokers. Leave out brokers that are not live."""
    nodes = {one.node_id: one for one in metadata.brokers}
    return [
        Copy(broker, (topic.name, one.partition_index), row.log_dir, one.is_future_key)
        for broker in brokers
        if broker in nodes
        for row in asked.log_dirs(nodes[broker])
        if not row.error_code
        for topic in row.topics
        for one in topic.partitions
    ]


def state_of_dirs(place: Place, wanted: Wanted, copies: Iterable[Copy]) -> str:
    """Return "complete" if a partition's replicas are in their log dirs; otherwise, the reason."""
    found = {(one.broker, one.path, one.is_future) for one in copies if one.place == place}
    state = "complete"
    for broker, path in wanted.dirs.items():
        if (broker, path, True) in found:
            return "in progress"
        if (broker, path, False) not in found:
            state = "different"
    return state


def cancel_moves(
    asked: Asked, metadata: Any, wanted: Mapping[Place, Wanted]
) -> dict[Place, Refusal]:
    """End the moves to the wanted log dirs: ask each broker to leave its replica where it is.

    Returns:
        The partitions that had such a move, each with the answer.
    """
    wishes = wishes_of(wanted)
    copies = copies_on(asked, metadata, wishes)
    present = {(one.broker, one.place): one.path for one in copies if not one.is_future}
    back: dict[int, dict[Place, str]] = {}
    for one in copies:
        is_asked = wishes.get(one.broker, {}).get(one.place) == one.path
        if one.is_future and is_asked and (one.broker, one.place) in present:
            back.setdefault(one.broker, {})[one.place] = present[one.broker, one.place]
    found = {place: Refusal(ErrorCode.NONE, None) for paths in back.values() for place in paths}
    return found | ask_for_dirs(asked, metadata, back)
