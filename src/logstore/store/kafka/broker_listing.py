"""List a log dir of a Kafka broker: its identity, replicas, offsets, and files that are not read.

meta.properties    version 0 or 1, cluster.id, broker.id or node.id, and from 3.7 on directory.id
t-0                a replica                      t-0.<id>-future    the unfinished copy of a move
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
RECOVERY_POINTS, HIGH_WATERMARKS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)
CLEANER_OFFSETS, STOPPED = "cleaner-offset-checkpoint", ".kafka_cleanshutdown"
KNOWN_FILES = frozenset({
    META, START_OFFSETS, RECOVERY_POINTS, HIGH_WATERMARKS, CLEANER_OFFSETS, STOPPED,
    ".lock", "bootstrap.checkpoint",
})  # fmt: skip
KNOWN_DIRS = frozenset({"remote-log-index-cache", "lost+found"})
_OTHER = r"(?P<live>.+)\.(?P<unique_id>[0-9a-f]{32})-(?P<kind>future|delete|stray)"

WHAT = {
    "future": "the unfinished copy of a move; it is not read",
    "delete": "a deleted replica; it is not read",
    "stray": "a replica that the broker found to belong to no topic; it is not read",
}


class KafkaMeta(NamedTuple):
    """The values in `meta.properties`; the value of a missing key is empty."""

    cluster_id: str
    node_id: str
    directory_id: str


class KafkaReplica(NamedTuple):
    """A replica's directory: its kind is "live", "future", "delete" or "stray"."""

    key: TopicPartition
    kind: str
    path: str


class KafkaListing(NamedTuple):
    """The contents of one log dir.

    Attributes:
        known_ends: for each log, the highest offset in a checkpoint for the log, and the path of
            this checkpoint.
        was_stopped: whether the broker was stopped cleanly, and was not started after that.
        damage: the damaged files, each with a description of the damage.
    """

    replicas: list[KafkaReplica]
    start_offsets: dict[TopicPartition, int]
    known_ends: dict[TopicPartition, tuple[int, str]]
    was_stopped: bool
    damage: list[tuple[str, str]]
    warnings: list[str]


def read_meta(path: str) -> KafkaMeta | None:
    """Read a log dir's identity; return None if the log dir has no identity.

    Raises:
        LogDirIdentityError: the directory is a log dir of this library.
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
        reason = "it belongs to a store of this library: LogStore.open and `logstore cat` read it"
        raise LogDirIdentityError(path=path, reason=reason)
    node_id = pairs.get("node.id", pairs.get("broker.id", ""))
    return KafkaMeta(pairs.get("cluster.id", ""), node_id, pairs.get("directory.id", ""))


def parse_replica(name: str) -> tuple[TopicPartition, str] | None:
    """Parse the name of a replica's directory; return None for any other name."""
    match = re.fullmatch(_OTHER, name)
    parsed = parse_dir_name(match["live"] if match else name)
    if parsed is None or parsed.kind != "live":
        return None
    return TopicPartition(parsed.topic, parsed.partition), match["kind"] if match else "live"


def read_offsets(path: str, damage: list[tuple[str, str]]) -> dict[TopicPartition, int]:
    """Read the offsets in a checkpoint; if it is damaged, report this and return no offsets."""
    try:
        data = files.read_file(path, files.LIST_BYTES_MAX)
    except FileNotFoundError:
        return {}
    except files.UnfitError as error:
        damage.append((path, f"not a checkpoint of offsets: {error.reason}; it is not used"))
        return {}
    lines = data.decode("utf-8", "replace").splitlines()
    if not lines and path.endswith(CLEANER_OFFSETS):  # the broker creates this file empty
        return {}
    try:
        rows = [line.rsplit(" ", 2) for line in lines[2:] if line]
        if lines[0] != "0" or len(rows) != int(lines[1]):
            raise ValueError("the end of the file is missing")
        found = {TopicPartition(row[0], int(row[1])): int(row[2]) for row in rows}
        if len(found) < len(rows) or any(min(key[1], at) < 0 for key, at in found.items()):
            raise ValueError("it has a partition twice, or an offset below 0")
    except (ValueError, IndexError) as error:
        damage.append((path, f"not a checkpoint of offsets ({error}); it is not used"))
        return {}
    return found


def _known_names(entry: files.Entry) -> frozenset[str]:
    """Give the names that an entry of this kind may have in a broker's log dir."""
    if entry.is_dir:
        return KNOWN_DIRS
    return KNOWN_FILES if entry.is_file else frozenset()


def list_kafka_dir(path: str) -> KafkaListing:
    """List a log dir. Raises OSError."""
    listing = KafkaListing([], {}, {}, files.exists(os.path.join(path, STOPPED)), [], [])
    for entry in files.entries(path):
        full = os.path.join(path, entry.name)
        parsed = parse_replica(entry.name) if entry.is_dir else None
        if parsed is not None:
            key, kind = parsed
            listing.replicas.append(KafkaReplica(key, kind, full))
            if kind != "live":
                listing.warnings.append(f"{full}: {WHAT[kind]}")
        elif entry.name not in _known_names(entry):
            what = f"a {entry.kind} that does not belong to a broker"
            listing.warnings.append(f"{full}: {what}; it is not read")
    for name in (START_OFFSETS, RECOVERY_POINTS, HIGH_WATERMARKS, CLEANER_OFFSETS):
        full = os.path.join(path, name)
        offsets = read_offsets(full, listing.damage)
        if name == START_OFFSETS:
            listing.start_offsets.update(offsets)
        if listing.was_stopped and name in (RECOVERY_POINTS, HIGH_WATERMARKS):
            here = {replica.key for replica in listing.replicas}
            strange = ", ".join(str(key) for key in sorted(offsets.keys() - here))
            if strange:
                reason = f"it lists {strange}, but the log dir has no such replicas"
                listing.damage.append((full, reason))
        for key, offset in offsets.items():
            if offset > listing.known_ends.get(key, (0, ""))[0]:
                listing.known_ends[key] = (offset, full)
    listing.warnings.extend(f"{full}: {reason}" for full, reason in listing.damage)
    return listing
