"""Convert what a stream has read to Spark's checkpoint, and limit how far a batch may go.

    {"orders": {"0": 1200, "1": 980}, "topic ids": {"orders": {"0": "c31959bdd86750e2", ...}}}

The document holds the next offset of each partition, as Kafka's does. Beside the offsets are the
first 8 bytes of the topic ids. If a partition was deleted and created again, it has another id,
however long it is by now. No topic is called "topic ids", because a name has no spaces. A partition
may have no id: in a checkpoint of an earlier version, or of a Kafka broker without ids. Then such a
change is not noticed.

Spark compares offsets as text, so topics and partitions are always in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from logstore.names import TopicPartition
from logstore.spark.options import PartitionOffsets

TOPIC_IDS = "topic ids"
ID_BYTES = 8

OffsetDocument = dict[str, Any]
TopicIds = dict[TopicPartition, str]


class Reached(NamedTuple):
    """Hold the next offset of each partition of a stream, and the ids of their topics."""

    offsets: PartitionOffsets
    ids: TopicIds


def short_id(topic_id: bytes) -> str:
    """Return the short form of a topic id for a document; empty if the id is unknown."""
    return topic_id[:ID_BYTES].hex() if any(topic_id) else ""


def to_document(
    offsets: Mapping[TopicPartition, int], ids: Mapping[TopicPartition, str] | None = None
) -> OffsetDocument:
    """Build the document for Spark's checkpoint from offsets and the ids of their topics."""
    document: OffsetDocument = {}
    known: dict[str, dict[str, str]] = {}
    for key in sorted(offsets):
        document.setdefault(key.topic, {})[str(key.partition)] = offsets[key]
        if ids and ids.get(key):
            known.setdefault(key.topic, {})[str(key.partition)] = ids[key]
    return {**document, TOPIC_IDS: known} if known else document


def from_document(document: OffsetDocument) -> Reached:
    """Read offsets from a document."""
    ids = document.get(TOPIC_IDS, {})
    return Reached(
        {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, of_topic in document.items()
            if topic != TOPIC_IDS
            for partition, offset in of_topic.items()
        },
        {
            TopicPartition(topic, int(partition)): topic_id
            for topic, of_topic in ids.items()
            for partition, topic_id in of_topic.items()
        },
    )


def same(begun: Reached, ids: TopicIds) -> PartitionOffsets:
    """Return the offsets of the partitions that still have, or may have, the same topic id."""
    return {
        key: offset
        for key, offset in begun.offsets.items()
        if key not in begun.ids or begun.ids[key] == ids.get(key, begun.ids[key])
    }


def limited(starts: PartitionOffsets, ends: PartitionOffsets, limit: int) -> PartitionOffsets:
    """Move every start towards its end by its share of `limit` records in total.

    Each partition with unread records moves by at least one record, so that none waits for a long
    one. If `limit` is less than the number of such partitions, they take turns.
    """
    behind = {key: ends[key] - starts[key] for key in sorted(ends) if ends[key] > starts[key]}
    if sum(behind.values()) <= limit:
        return dict(ends)
    keys = list(behind)
    turn = sum(starts[key] for key in ends) % len(keys)
    first = set((keys[turn:] + keys[:turn])[:limit])
    limit -= len(first)
    total = sum(behind.values()) - len(first)
    reached, done, given = dict(ends), 0, 0
    for key in keys:
        own = int(key in first)
        done += behind[key] - own
        share = limit * done // total - given
        given += share
        reached[key] = starts[key] + own + share
    return reached


__all__ = ["Reached", "from_document", "limited", "same", "short_id", "to_document"]
