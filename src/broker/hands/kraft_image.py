"""Read topics and brokers from the metadata log of a Kafka cluster (KRaft). No I/O.

The value of a record is: frame version 1, number and version of the message, each an unsigned
varint, and then the message (KIP-482). These messages are read:

    0 RegisterBroker    2 Topic    3 Partition    4 Config    5 PartitionChange    9 RemoveTopic

All other messages are skipped. Kafka only appends fields to its messages, so the first fields of a
message are the same in every version.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import NamedTuple

from broker.wire.byte_cursor import Cursor, WireError
from logstore import TopicPartition

FRAME_VERSION = 1
TOPIC, PARTITION, CONFIG, PARTITION_CHANGE, REMOVE_TOPIC, REGISTER_BROKER = 2, 3, 4, 5, 9, 0
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
REPLICAS_TAG, LOG_DIRS_TAG = 2, 0
LOG_DIRS_VERSION = 3
RESERVED_IDS_MAX = 100  # smaller ids of log dirs have a special meaning
ID_BYTES = 16


class KnownTopic(NamedTuple):
    """A topic, and the brokers that have a replica of each of its partitions."""

    name: str
    topic_id: bytes
    replicas: dict[int, tuple[int, ...]]


class Image:
    """The state after the records that were read so far.

    Attributes:
        topics: the topics; the key is the topic id.
        configs: the settings of each topic; the key is its name.
        broker_configs: the settings of each broker; the key is its id as text. The key "" has the
            settings that all brokers share.
        brokers: for each broker that has ever registered, the ids of its log dirs.
    """

    def __init__(self) -> None:
        self.topics: dict[bytes, KnownTopic] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.brokers: dict[int, tuple[str, ...]] = {}

    def partitions(self) -> dict[TopicPartition, bytes]:
        """Return the partitions of all topics, each with its topic id."""
        return {
            TopicPartition(topic.name, number): topic.topic_id
            for topic in self.topics.values()
            for number in topic.replicas
        }

    def take(self, value: bytes) -> None:
        """Apply one record.

        Raises:
            WireError: the bytes are not a record of a metadata log.
        """
        cursor = Cursor(memoryview(value))
        try:
            frame = cursor.uvarint()
            if frame != FRAME_VERSION:
                cursor.refuse(f"the frame has the version {frame}")
            kind, version = cursor.uvarint(), cursor.uvarint()
            read = _READERS.get(kind)
            if read is not None:
                read(self, cursor, version)
        except IndexError:
            raise WireError(cursor.at, "the record ends within a field") from None

    def _topic(self, cursor: Cursor, version: int) -> None:
        name = _text(cursor)
        topic_id = bytes(cursor.take(ID_BYTES))
        self.topics[topic_id] = KnownTopic(name or "", topic_id, {})

    def _partition(self, cursor: Cursor, version: int) -> None:
        number = _int32(cursor)
        topic = self._known(cursor)
        topic.replicas[number] = _int32s(cursor)

    def _partition_change(self, cursor: Cursor, version: int) -> None:
        number = _int32(cursor)
        topic = self._known(cursor)
        for tag, size in cursor.tags():
            end = cursor.at + size
            if tag == REPLICAS_TAG:
                topic.replicas[number] = _int32s(cursor)
            cursor.at = end

    def _known(self, cursor: Cursor) -> KnownTopic:
        topic = self.topics.get(bytes(cursor.take(ID_BYTES)))
        if topic is None:
            cursor.refuse("a partition belongs to no topic")
        return topic

    def _remove_topic(self, cursor: Cursor, version: int) -> None:
        topic = self.topics.pop(bytes(cursor.take(ID_BYTES)), None)
        if topic is not None:
            self.configs.pop(topic.name, None)

    def _config(self, cursor: Cursor, version: int) -> None:
        kind = cursor.take(1)[0]
        resource, key, value = _text(cursor), _text(cursor), _text(cursor)
        if kind not in (TOPIC_RESOURCE, BROKER_RESOURCE) or resource is None or key is None:
            return
        configs = self.configs if kind == TOPIC_RESOURCE else self.broker_configs
        settings = configs.setdefault(resource, {})
        settings.pop(key, None)
        if value is not None:
            settings[key] = value

    def _register_broker(self, cursor: Cursor, version: int) -> None:
        broker = _int32(cursor)
        ids: tuple[str, ...] = ()
        if version >= LOG_DIRS_VERSION:
            # skips the migration flag, the incarnation id and the epoch
            cursor.take(1 + ID_BYTES + 8)
            _skip_rows(cursor, texts=2, size=2 + 2)  # end points
            _skip_rows(cursor, texts=1, size=2 + 2)  # features
            _text(cursor)  # the rack
            cursor.take(1 + 1)  # skips the flags for "fenced" and "in shutdown"
            for tag, size in cursor.tags():
                end = cursor.at + size
                if tag == LOG_DIRS_TAG:
                    ids = _log_dirs(cursor)
                cursor.at = end
        self.brokers[broker] = ids


_READERS: dict[int, Callable[[Image, Cursor, int], None]] = {
    TOPIC: Image._topic,
    PARTITION: Image._partition,
    CONFIG: Image._config,
    PARTITION_CHANGE: Image._partition_change,
    REMOVE_TOPIC: Image._remove_topic,
    REGISTER_BROKER: Image._register_broker,
}


def _int32(cursor: Cursor) -> int:
    return int.from_bytes(cursor.take(4), "big", signed=True)


def _int32s(cursor: Cursor) -> tuple[int, ...]:
    count = max(cursor.uvarint() - 1, 0)
    cursor.reserve(count, 4, 32)
    return tuple(_int32(cursor) for _ in range(count))


def _text(cursor: Cursor) -> str | None:
    size = cursor.uvarint()
    return None if size == 0 else str(cursor.take(size - 1), "utf-8", "replace")


def _skip_rows(cursor: Cursor, texts: int, size: int) -> None:
    count = max(cursor.uvarint() - 1, 0)
    cursor.reserve(count, size, 0)
    for _ in range(count):
        for _ in range(texts):
            _text(cursor)
        cursor.take(size)
        cursor.skip_tags()


def _log_dirs(cursor: Cursor) -> tuple[str, ...]:
    count = max(cursor.uvarint() - 1, 0)
    cursor.reserve(count, ID_BYTES, 64)
    ids = [bytes(cursor.take(ID_BYTES)) for _ in range(count)]
    return tuple(text_of(one) for one in ids if int.from_bytes(one, "big") >= RESERVED_IDS_MAX)


def text_of(id_: bytes) -> str:
    """Write an id as Kafka does: 22 characters of base64."""
    return base64.urlsafe_b64encode(id_).decode().rstrip("=")
