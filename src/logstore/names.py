"""Build and parse the names of replicas, their directories and their files."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from logstore.arguments import shown, text, whole, wrong

TOPIC_LENGTH_MAX = 249
PARTITION_MAX = 2**31 - 1
NAME_BYTES_MAX = 255
KINDS = ("move", "delete", "stray")
# `logstore bench` makes directories with this prefix in log dirs, and removes them again.
BENCH_PREFIX = "logstore-bench-"

# A pattern is compiled when it is first used, so importing this module is cheap.
_TOPIC = r"[a-zA-Z0-9._-]+"
_LIVE = r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>0|[1-9][0-9]{0,9})"
_OTHER = _LIVE + r"\.(?P<unique_id>[0-9a-f]{32})\.(?P<kind>move|delete|stray)"
_SEGMENT = r"([0-9]{20})(\.[a-z]+)"


class TopicPartition(NamedTuple):
    """Identify one partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def partition_named(topic: str, partition: int) -> TopicPartition:
    """Build a key from topic and partition.

    The partition does not have to exist. An argument of the wrong type gives a TypeError.
    """
    if type(topic) is not str or type(partition) is not int:
        topic, partition = text(topic, "topic"), whole(partition, "partition")
    return TopicPartition(topic, partition)


def topic_id_of(given: Any) -> bytes:
    """Convert a topic id to bytes: from 16 bytes, 32 hex digits, or Kafka's form of 22 characters.

    Raises:
        TypeError, ValueError: the id has none of the accepted forms, or Kafka reserves the id for
            itself.
    """
    if isinstance(given, bytes):
        topic_id = given
    elif not isinstance(given, str):
        raise wrong("topic_id", "16 bytes, or text", given)
    elif re.fullmatch(r"[0-9a-fA-F]{32}", given):
        topic_id = bytes.fromhex(given)
    # The last character has only two bits of the id.
    elif re.fullmatch(r"[A-Za-z0-9_-]{21}[AQgw]", given):
        from binascii import a2b_base64

        topic_id = a2b_base64(given.replace("-", "+").replace("_", "/") + "==")
    else:
        topic_id = b""
    if len(topic_id) != 16:
        reason = "is neither 16 bytes nor 32 hex digits nor Kafka's 22 characters of base64"
        raise ValueError(f"topic_id {shown(given)} {reason}")
    if topic_id[:15] == bytes(15) and topic_id[15] < 2:  # Uuid.ZERO_UUID, Uuid.METADATA_TOPIC_ID
        raise ValueError(f"topic_id {shown(given)} is reserved by Kafka")
    return topic_id


def key_or_none(given: object) -> TopicPartition | None:
    """Convert a key that a caller looks up; return None if no partition can have this key."""
    if not isinstance(given, tuple) or len(given) != 2:
        return None
    try:
        return partition_named(*given)
    except TypeError:
        return None


class ReplicaDirName(NamedTuple):
    """Hold the parts of the name of a replica's directory.

    Attributes:
        kind: "live", "move", "delete" or "stray".
        unique_id: 32 hex digits; empty for a live directory.
    """

    topic: str
    partition: int
    kind: str
    unique_id: str


def validate_topic(topic: str) -> str:
    """Check that a topic's name follows Kafka's rules; raise TypeError or ValueError if not."""
    if text(topic, "topic") in (".", "..") or not re.fullmatch(_TOPIC, topic):
        raise ValueError(
            f"topic {topic!r} is not a legal name: letters a-z and A-Z, digits, '.', '_' and '-', "
            "at least one, and not '.' or '..'"
        )
    if len(topic) > TOPIC_LENGTH_MAX:
        raise ValueError(
            f"a topic's name has {TOPIC_LENGTH_MAX} characters at most, not {len(topic)}"
        )
    return topic


def validate_partition(partition: int) -> int:
    """Check a partition's number; raise TypeError or ValueError with the reason."""
    partition = whole(partition, "partition")
    if not 0 <= partition <= PARTITION_MAX:
        raise ValueError(f"partition {partition} is not in 0..{PARTITION_MAX}")
    return partition


def dir_name(topic: str, partition: int) -> str:
    """Build the name of the directory of a live replica."""
    name = f"{topic}-{partition}"
    if len(name) > NAME_BYTES_MAX:
        raise ValueError(f"the directory name {name!r} has more than {NAME_BYTES_MAX} characters")
    return name


def _suffixed(topic: str, partition: int, unique_id: str, kind: str) -> str:
    """Build a name with a suffix; shorten a long topic (`partition.metadata` has the full name)."""
    tail = f"-{partition}.{unique_id}.{kind}"
    return topic[: NAME_BYTES_MAX - len(tail)] + tail


def move_dir_name(topic: str, partition: int, move_id: str) -> str:
    """Build the name of the directory that a move fills (Kafka: -future)."""
    return _suffixed(topic, partition, move_id, "move")


def delete_dir_name(topic: str, partition: int, unique_id: str) -> str:
    """Build the name of a directory that will be purged (Kafka: -delete)."""
    return _suffixed(topic, partition, unique_id, "delete")


def stray_dir_name(topic: str, partition: int, unique_id: str) -> str:
    """Build the name of a directory that belongs to no replica of the store (Kafka: -stray)."""
    return _suffixed(topic, partition, unique_id, "stray")


def parse_dir_name(name: str) -> ReplicaDirName | None:
    """Parse the name of a replica's directory; return None for any other name.

    The name of a live replica's directory ends with the partition. The name of every other
    directory of a replica ends with the kind of the directory. So each name has only one meaning.
    """
    match = _pattern(_OTHER).fullmatch(name)
    if match is not None:
        kind, unique_id = match["kind"], match["unique_id"]
    else:
        match = _pattern(_LIVE).fullmatch(name)
        kind, unique_id = "live", ""
    if match is None or int(match["partition"]) > PARTITION_MAX:
        return None
    if match["topic"] in (".", "..") or len(match["topic"]) > TOPIC_LENGTH_MAX:
        return None
    return ReplicaDirName(match["topic"], int(match["partition"]), kind, unique_id)


def segment_file_name(base_offset: int, suffix: str) -> str:
    """Build the name of a file of the segment at `base_offset`; the suffix begins with a dot."""
    return f"{base_offset:020d}{suffix}"


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def parse_segment_file_name(name: str) -> tuple[int, str] | None:
    """Parse a segment's file name into base offset and suffix; return None for any other name."""
    match = _pattern(_SEGMENT).fullmatch(name)
    if match is None or int(match[1]) >= 2**63:
        return None
    return int(match[1]), match[2]
