"""What a stream has read, as Spark keeps it in the checkpoint, and how far a batch may go.

    {"orders": {"0": 1200, "1": 980}, "topic ids": {"orders": {"0": "c31959bdd86750e2", ...}}}

The next offset of each partition stands there as Kafka has it. Beside them are the first 8 bytes of
the topic ids: a partition that was deleted and created anew has another one, however long it is by
now. No topic is called "topic ids", for a name has no spaces. Where there is no id nothing is
known of it: in a checkpoint of an earlier version, or of a Kafka broker that has none.

Spark compares offsets as text, so topics and partitions always stand in order.
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
    """Carry what was read up to: the next offset of each partition, and whose it is."""

    offsets: PartitionOffsets
    ids: TopicIds


def short_id(topic_id: bytes) -> str:
    """Give what stands for a topic id in a document; nothing for one that is not known."""
    return topic_id[:ID_BYTES].hex() if any(topic_id) else ""


def to_document(
    offsets: Mapping[TopicPartition, int], ids: Mapping[TopicPartition, str] | None = None
) -> OffsetDocument:
    """Give offsets, and the ids of their topics, as what Spark writes into the checkpoint."""
    document: OffsetDocument = {}
    known: dict[str, dict[str, str]] = {}
    for key in sorted(offsets):
        document.setdefault(key.topic, {})[str(key.partition)] = offsets[key]
        if ids and ids.get(key):
            known.setdefault(key.topic, {})[str(key.partition)] = ids[key]
    return {**document, TOPIC_IDS: known} if known else document


def from_document(document: OffsetDocument) -> Reached:
    """Read offsets back."""
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
    """Give the offsets of those partitions that are not known to be another topic's by now."""
    return {
        key: offset
        for key, offset in begun.offsets.items()
        if key not in begun.ids or begun.ids[key] == ids.get(key, begun.ids[key])
    }


def limited(starts: PartitionOffsets, ends: PartitionOffsets, limit: int) -> PartitionOffsets:
    """Move every start towards its end by its share of `limit` records in all.

    Each partition that is behind moves by one record at least, so that none waits for a long one;
    where the limit is less than their number, they take turns.
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
