"""Convert the offsets of a stream to Spark's checkpoint and back, and limit the size of a batch.

    {"orders": {"0": 1200, "1": 980}, "topic ids": {"orders": {"0": "c31959bdd86750e2", ...}}}

The document has the next offset of each partition, as in Spark's Kafka source. The document also
has the first 8 bytes of each topic id. If a partition was deleted and created again, its topic has
another id. So the stream notices the new partition, even if the new log is as long as the old log.
No topic can have the name "topic ids", because a topic's name has no spaces. In a checkpoint of an
earlier version, or of a Kafka broker without ids, a partition has no topic id. Without a topic id,
a stream does not notice that the partition was created again.

Spark compares offsets as text, so topics and partitions are always sorted.
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
    """Hold the next offset of each partition of a stream, and the ids of the topics."""

    offsets: PartitionOffsets
    ids: TopicIds


NOTHING = Reached({}, {})


def short_id(topic_id: bytes) -> str:
    """Return the short form of a topic id for a document, or "" if the id is unknown."""
    return topic_id[:ID_BYTES].hex() if any(topic_id) else ""


def to_document(
    offsets: Mapping[TopicPartition, int], ids: Mapping[TopicPartition, str] | None = None
) -> OffsetDocument:
    """Build the document for Spark's checkpoint from offsets and topic ids."""
    document: OffsetDocument = {}
    known: dict[str, dict[str, str]] = {}
    for key in sorted(offsets):
        document.setdefault(key.topic, {})[str(key.partition)] = offsets[key]
        if ids and ids.get(key):
            known.setdefault(key.topic, {})[str(key.partition)] = ids[key]
    return {**document, TOPIC_IDS: known} if known else document


def from_document(document: OffsetDocument) -> Reached:
    """Read the offsets and the topic ids from a document."""
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
    """Return the offsets of the partitions whose topic id is unchanged or unknown."""
    return {
        key: offset
        for key, offset in begun.offsets.items()
        if key not in begun.ids or begun.ids[key] == ids.get(key, begun.ids[key])
    }


def limited(starts: PartitionOffsets, ends: PartitionOffsets, limit: int) -> PartitionOffsets:
    """Return where a batch stops in each partition, so that it has at most `limit` records.

    Each partition gets a share in proportion to its unread records. A partition with unread records
    gets at least one record, so that it does not wait for a partition with many records. If `limit`
    is less than the number of partitions with unread records, these partitions take turns.
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


__all__ = ["NOTHING", "Reached", "from_document", "limited", "same", "short_id", "to_document"]
