"""Make the bytes of the small files in a log dir of Kafka. No I/O.

*-checkpoint               lines of text: version 0, count, then topic, partition and offset
leader-epoch-checkpoint    lines of text: version 0, count, then an epoch and its first offset
partition.metadata         lines of text: version 0, then the topic id
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.hands.kraft_image import text_of
from logstore import TopicPartition


def checkpoint_of(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Write a checkpoint of offsets."""
    return _lines(f"{topic} {number} {at}" for (topic, number), at in sorted(offsets.items()))


def epochs_of(epochs: Iterable[tuple[int, int]]) -> bytes:
    """Write the leader epochs of a log. The file does not list records without an epoch."""
    return _lines(f"{epoch} {start}" for epoch, start in epochs if epoch >= 0)


def partition_metadata(topic_id: bytes) -> bytes:
    """Write the topic id of a partition."""
    return f"version: 0\ntopic_id: {text_of(topic_id)}\n".encode()


def _lines(rows: Iterable[str]) -> bytes:
    lines = list(rows)
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()
