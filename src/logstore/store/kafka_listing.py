"""List a log dir of a Kafka broker: whose it is, which replicas are in it, what is not read.

meta.properties    version 0 or 1, cluster.id, broker.id or node.id, and from 3.7 on directory.id
t-0                a replica                      t-0.<id>-future    a move's unfinished copy
t-0.<id>-delete    a deleted replica              t-0.<id>-stray     a replica of no topic
*-checkpoint       text: version, count, then lines of topic, partition, offset
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from logstore.disk import files
from logstore.errors import LogDirIdentityError
from logstore.names import TopicPartition, parse_dir_name

META, START_OFFSETS = "meta.properties", "log-start-offset-checkpoint"
KNOWN_FILES = frozenset({
    META, START_OFFSETS, "recovery-point-offset-checkpoint", "replication-offset-checkpoint",
    "cleaner-offset-checkpoint", ".lock", ".kafka_cleanshutdown", "bootstrap.checkpoint",
})  # fmt: skip
KNOWN_DIRS = frozenset({"remote-log-index-cache", "lost+found"})
_OTHER = r"(?P<live>.+)\.(?P<unique_id>[0-9a-f]{32})-(?P<kind>future|delete|stray)"

WHAT = {
    "future": "the unfinished copy of a move; it is not read",
    "delete": "a deleted replica; it is not read",
    "stray": "a replica that the broker found to be of no topic; it is not read",
}


class KafkaMeta(NamedTuple):
    """Carry what `meta.properties` says; empty where it does not."""

    cluster_id: str
    node_id: str
    directory_id: str


class KafkaReplica(NamedTuple):
    """A replica's directory: its kind is "live", "future", "delete" or "stray"."""

    key: TopicPartition
    kind: str
    path: str


class KafkaListing(NamedTuple):
    """What is in one log dir."""

    replicas: list[KafkaReplica]
    start_offsets: dict[TopicPartition, int]
    warnings: list[str]


def read_meta(path: str) -> KafkaMeta | None:
    """Read a log dir's identity; None when it has none.

    Raises:
        LogDirIdentityError: it is a directory of this library's own stores.
        OSError: the disk failed, or there is no such directory.
    """
    try:
        text = files.read_file(os.path.join(path, META)).decode("utf-8", "replace")
    except FileNotFoundError:
        files.stat(path)
        return None
    pairs = dict(
        line.strip().split("=", 1)
        for line in text.splitlines()
        if "=" in line and not line.startswith("#")
    )
    if "roster" in pairs:
        reason = "it is of a store of this library: open it with LogStore.open"
        raise LogDirIdentityError(path=path, reason=reason)
    node_id = pairs.get("node.id", pairs.get("broker.id", ""))
    return KafkaMeta(pairs.get("cluster.id", ""), node_id, pairs.get("directory.id", ""))


def parse_replica(name: str) -> tuple[TopicPartition, str] | None:
    """Read the name of a replica's directory; None when it is none."""
    match = re.fullmatch(_OTHER, name)
    parsed = parse_dir_name(match["live"] if match else name)
    if parsed is None or parsed.kind != "live":
        return None
    return TopicPartition(parsed.topic, parsed.partition), match["kind"] if match else "live"


def read_offsets(path: str, warnings: list[str]) -> dict[TopicPartition, int]:
    """Read a checkpoint; one that is not whole says nothing and is warned of."""
    try:
        lines = files.read_file(path).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return {}
    try:
        rows = [line.rsplit(" ", 2) for line in lines[2:] if line]
        if lines[0] != "0" or len(rows) != int(lines[1]):
            raise ValueError("it is cut off")
        return {TopicPartition(row[0], int(row[1])): int(row[2]) for row in rows}
    except (ValueError, IndexError) as error:
        warnings.append(f"{path}: no checkpoint of offsets ({error}); it is not believed")
        return {}


def list_kafka_dir(path: str) -> KafkaListing:
    """List a log dir; raises OSError."""
    listing = KafkaListing([], {}, [])
    for entry in files.entries(path):
        full = os.path.join(path, entry.name)
        parsed = parse_replica(entry.name) if entry.is_dir else None
        if parsed is not None:
            key, kind = parsed
            listing.replicas.append(KafkaReplica(key, kind, full))
            if kind != "live":
                listing.warnings.append(f"{full}: {WHAT[kind]}")
        elif entry.name not in (KNOWN_DIRS if entry.is_dir else KNOWN_FILES):
            kind = "directory" if entry.is_dir else "file"
            listing.warnings.append(f"{full}: a {kind} that is not a broker's; it is not read")
    listing.start_offsets.update(read_offsets(os.path.join(path, START_OFFSETS), listing.warnings))
    return listing
