"""Record in each log dir the current step of a change between a Kafka broker and this library.

    change-of-hands    {"version": 1, "kind", "step", "change_id", "member", "members",
                        "cluster_id", "node_id", "partitions", "created", "deleted", "left"}

The steps of each log dir, in their order:

    BUILDING        the store is built in `.logstore.new`; Kafka's files are unchanged
    MOVING_OUT      Kafka's files move into `.kafka`
    MOVING_IN       the store's files move from `.logstore.new` into the log dir
    TAKEN           the log dir belongs to the store; `.kafka` keeps what Kafka needs later
    RETURNING       Kafka's directories are built in `.kafka.new`; the store is unchanged
    PUTTING_AWAY    the store's files move into `.logstore.old`
    PUTTING_BACK    Kafka's files move from `.kafka.new` and `.kafka` into the log dir
    CLEARING        `.logstore.old` is removed, and then this file

If a log dir has no such file, it belongs to Kafka, or to a store that never belonged to Kafka. No
log dir leaves BUILDING or RETURNING before all log dirs are built durably. So after a crash, the
step shows whether to build again or to continue. Kafka refuses to start while its log dir
contains a directory whose name begins with a dot.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from logstore.disk import files
from logstore.disk.dir_lock import LOCK_NAME
from logstore.disk.documents import checkpoint, fields
from logstore.errors import (
    CorruptCheckpointError,
    LogDirIdentityError,
    UnsupportedFormatError,
)
from logstore.names import TopicPartition

DOCUMENT_NAME = "change-of-hands"
KEPT, STORE_NEW, STORE_OLD, KAFKA_NEW = ".kafka", ".logstore.new", ".logstore.old", ".kafka.new"
WORK_DIRS = frozenset({KEPT, STORE_NEW, STORE_OLD, KAFKA_NEW})
# These entries stay in the log dir when its owner changes.
STAYING = WORK_DIRS | {DOCUMENT_NAME, LOCK_NAME, "lost+found"}

BUILDING, MOVING_OUT, MOVING_IN, TAKEN = "building", "moving out", "moving in", "taken"
RETURNING, PUTTING_AWAY, PUTTING_BACK = "returning", "putting away", "putting back"
CLEARING = "clearing"
TAKE_OVER = (BUILDING, MOVING_OUT, MOVING_IN, TAKEN)
HAND_BACK = (RETURNING, PUTTING_AWAY, PUTTING_BACK, CLEARING)
OWNED = (TAKEN, RETURNING)  # in these steps, the store can be opened


class UnfinishedChangeError(LogDirIdentityError):
    """Report that a log dir is between Kafka and a store; the change must be finished first."""


class Change(NamedTuple):
    """The content of the file in one log dir.

    Attributes:
        change_id: a random id that all log dirs of the change have.
        member, members: the id of this log dir, and the ids of all log dirs of the change.
        cluster_id, node_id: as in Kafka's `meta.properties`.
        partitions: the partitions that Kafka knows, in all log dirs, with their topic ids.
        created, deleted: after RETURNING, the partitions that only the store has, and those that
            only Kafka knows.
        left: after RETURNING, the paths in all log dirs that belong to neither owner.
    """

    step: str
    change_id: str
    member: str
    members: tuple[str, ...]
    cluster_id: str
    node_id: str
    partitions: dict[TopicPartition, bytes]
    created: tuple[TopicPartition, ...] = ()
    deleted: tuple[TopicPartition, ...] = ()
    left: tuple[str, ...] = ()


def read_change(path: str) -> Change | None:
    """Read the file of a log dir; return None if the log dir has no such file.

    Raises:
        CorruptCheckpointError: the file is damaged.
        UnsupportedFormatError: a later version of this library wrote the file.
        OSError: the disk failed.
    """
    name = os.path.join(path, DOCUMENT_NAME)
    document = checkpoint.read_document(name, files.LIST_BYTES_MAX)
    if document is None:
        return None
    try:
        return _change_of(document)
    except fields.WRONG as error:
        raise CorruptCheckpointError(path=name, position=0, reason=fields.told(error)) from error


def _change_of(document: dict[str, Any]) -> Change:
    """Check each field. Raises an error of `fields.WRONG`."""
    fields.check_kind(document, DOCUMENT_NAME)
    step = fields.text(document["step"], "the step")
    if step not in TAKE_OVER + HAND_BACK:
        raise ValueError(f"there is no step {step[:40]!r}")
    change_id, member, *members = (
        fields.id_bytes(one, "an id").hex()
        for one in (document["change_id"], document["member"], *document["members"])
    )
    return Change(
        step,
        change_id,
        member,
        tuple(members),
        fields.text(document["cluster_id"], "the cluster id"),
        fields.text(document["node_id"], "the node id"),
        {
            fields.partition_key(topic, partition): fields.id_bytes(topic_id, "a topic id")
            for topic, partition, topic_id in fields.rows(document["partitions"], "partitions", 3)
        },
        _keys(document, "created"),
        _keys(document, "deleted"),
        tuple(
            fields.text(row[0], "a path")
            for row in fields.rows(document.get("left", []), "left", 1)
        ),
    )


def _keys(document: dict[str, Any], what: str) -> tuple[TopicPartition, ...]:
    """Read a list of partitions that may be missing. Raises an error of `fields.WRONG`."""
    return tuple(fields.partition_key(*row) for row in fields.rows(document.get(what, []), what, 2))


def write_change(path: str, change: Change) -> None:
    """Write the file of a log dir durably. Raises OSError."""
    document = {
        "version": checkpoint.VERSION,
        "kind": DOCUMENT_NAME,
        **change._asdict(),
        "members": list(change.members),
        "partitions": [[*key, id_.hex()] for key, id_ in sorted(change.partitions.items())],
        "created": [list(key) for key in change.created],
        "deleted": [list(key) for key in change.deleted],
        "left": [[path] for path in change.left],
    }
    checkpoint.write_document(os.path.join(path, DOCUMENT_NAME), document)


def refuse_unfinished(path: str) -> None:
    """Refuse to open a log dir whose change is not finished. Raises OSError.

    Raises:
        UnfinishedChangeError: the log dir is between Kafka and a store.
    """
    try:
        change = read_change(path)
    except (CorruptCheckpointError, UnsupportedFormatError) as error:
        raise UnfinishedChangeError(path=path, reason=str(error)) from error
    if change is not None and change.step not in OWNED:
        verb = "take-over" if change.step in TAKE_OVER else "hand-back"
        reason = f"its {verb} was interrupted; run `logstore {verb}` again with all log dirs"
        raise UnfinishedChangeError(path=path, reason=reason)


def kafka_cluster_id(paths: Iterable[str]) -> str:
    """Return the cluster id of the Kafka broker that had the log dirs before, or ""."""
    for path in paths:
        with suppress(OSError, CorruptCheckpointError, UnsupportedFormatError):
            change = read_change(path)
            if change is not None and change.step in OWNED:
                return change.cluster_id
    return ""
