"""Offer the same functions for groups of the classic protocol and of the new protocol.

A `Hosted` has a group of either protocol. The coordinator calls these functions for both protocols.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from broker.consumer_groups import leaving, restoring
from broker.consumer_groups import records as consumer_records
from broker.consumer_groups.exchange import TopicImage
from broker.consumer_groups.group import ConsumerGroup
from broker.groups import records, sessions
from broker.groups.exchange import Now
from broker.groups.group import Group
from broker.groups.subscriptions import topics_of
from broker.wire.error_codes import ErrorCode

AnyGroup = Group | ConsumerGroup
Record = tuple[bytes, bytes | None]
BATCH_BYTES_MAX = 4 << 20  # a change with larger records is written in several batches
ONE_BATCH_BYTES_MAX = 7 << 20  # the largest change that must be written in one batch


def next_deadline(group: AnyGroup) -> float:
    """Return the first deadline of the group. `expire` handles it."""
    if isinstance(group, ConsumerGroup):
        return leaving.next_deadline(group)
    return sessions.next_deadline(group)


def has_new_deadline(group: AnyGroup) -> bool:
    """Report whether the first deadline may be earlier than before, although nothing is written."""
    if not isinstance(group, ConsumerGroup):
        return True
    found, group.has_new_deadline = group.has_new_deadline, False
    return found


def expire(group: AnyGroup, topics: Mapping[str, TopicImage], now: Now) -> None:
    """Handle the deadlines that have passed."""
    if isinstance(group, ConsumerGroup):
        leaving.expire(group, topics, now)
    else:
        sessions.expire(group, now)


def restart_sessions(group: AnyGroup, now: Now) -> None:
    """Let the sessions of all members begin now: the group was loaded, or could not be changed."""
    if isinstance(group, ConsumerGroup):
        restoring.restart_sessions(group, now)
    else:
        sessions.restart(group, now)


def end(group: AnyGroup, code: ErrorCode, now: Now) -> None:
    """Remove a group, and answer the group's waiting requests with an error."""
    if isinstance(group, ConsumerGroup):
        leaving.end(group, now)
    else:
        sessions.end(group, code, now)


def changes_of(group: AnyGroup, now: Now) -> list[Record]:
    """Return the records that are not in the log yet."""
    if not group.is_unsaved:
        return []
    if isinstance(group, ConsumerGroup):
        return consumer_records.changes_of(group, now)
    return [(records.group_key(group.name), records.group_value(group))]


def saved(group: AnyGroup) -> None:
    """Remember that the log has all changes of the group."""
    if isinstance(group, ConsumerGroup):
        group.saved()
    else:
        group.is_unsaved, group.replaced = False, None


def deletion_of(group: AnyGroup) -> list[Record]:
    """Return the records that delete a group, but not the records that delete its offsets."""
    if isinstance(group, ConsumerGroup):
        return consumer_records.deletion_of(group)
    return [(records.group_key(group.name), None)]


def subscribed(group: AnyGroup) -> set[str] | None:
    """Return the topics to which the members have subscribed; None if they are not known."""
    return group.subscribed() if isinstance(group, ConsumerGroup) else topics_of(group)


def is_one_batch(deletions: list[Record], group: AnyGroup, now: Now) -> bool:
    """Report whether the records of a group fit into one batch with records that delete another."""
    rows = [*deletions, *changes_of(group, now)]
    return sum(map(_size, rows)) <= ONE_BATCH_BYTES_MAX


def _size(row: Record) -> int:
    return len(row[0]) + len(row[1] or b"") + 32


def batches(rows: list[Record]) -> Iterator[list[Record]]:
    """Split records into batches that are not too large for the log."""
    batch: list[Record] = []
    size = 0
    for key, value in rows:
        more = _size((key, value))
        if batch and size + more > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append((key, value))
        size += more
    if batch:
        yield batch
