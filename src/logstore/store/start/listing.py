"""List a log dir: replicas, leftovers of a crash, and files that do not belong to the store.

A file that does not belong to the store is not changed. A foreign file causes a warning in the
recovery report, not an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from logstore.disk import bulk, files
from logstore.disk.ballast import BALLAST_NAME
from logstore.disk.dir_lock import LOCK_NAME, MARKER_NAME
from logstore.disk.documents import fields
from logstore.disk.documents.catalog_file import CATALOG_NAME
from logstore.disk.documents.checkpoint import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_document,
)
from logstore.disk.documents.facts import FACTS_NAME
from logstore.disk.documents.generations import GENERATION_NAME, WITNESS_NAME
from logstore.disk.documents.meta_properties import FILE_NAME
from logstore.disk.documents.settings import SETTINGS_NAME
from logstore.disk.log_dir import PROBE_PREFIX, LogDir
from logstore.errors import CorruptionError, UnsupportedFormatError
from logstore.format import producer_file
from logstore.log.metadata import (
    DELETED_BY_USER,
    DELETION,
    MoveRecord,
    Moving,
    Superseded,
    read_mark,
)
from logstore.log.removal.lost_records import is_lost_file
from logstore.log.segments.listing import SMALL_FILES
from logstore.names import parse_dir_name, parse_segment_file_name
from logstore.store.kafka.hands import DOCUMENT_NAME, WORK_DIRS
from logstore.store.start.nesting import PARTITION_METADATA
from logstore.store.start.startup_table import ReplicaFacts

# The copy of a broker's coordination store, which only the broker reads and writes.
COORDINATION_NAME = "coordination-journal"

OUR_FILES = frozenset(
    {
        BALLAST_NAME,
        CATALOG_NAME,
        COORDINATION_NAME,
        DOCUMENT_NAME,
        FACTS_NAME,
        FILE_NAME,
        GENERATION_NAME,
        HIGH_WATERMARKS,
        LOCK_NAME,
        MARKER_NAME,
        RECOVERY_POINTS,
        LOG_START_OFFSETS,
        SETTINGS_NAME,
        WITNESS_NAME,
    }
)
# The largest number of listings.
# If replicas come or go during a listing, the log dirs are listed again.
# The last listing is used.
LISTINGS_MAX = 5

Found = TypeVar("Found")

NO_LOG = "a directory that holds no log; it was not changed"

# Spark's writers stage and commit in the first directory (logstore.spark.write.commits).
# A change of hands between a store and a broker uses the other directories.
OUR_DIRS = frozenset({".spark"}) | WORK_DIRS


class Listing(NamedTuple):
    """The contents of one log dir."""

    replicas: list[ReplicaFacts]
    leftovers: list[str]
    unfinished: list[str]
    warnings: list[str]


def list_log_dir(
    log_dir: LogDir,
    beat: Callable[[], object] = lambda: None,
    known: Container[str] = (),
) -> Listing:
    """List a log dir without changing it.

    Args:
        beat: a function that is called before each entry is read. The calls of `beat` show that a
            slow disk with many replicas does not hang.
        known: the names of entries that are left out of the listing, and are not read.

    Raises:
        OSError: the disk failed.
    """
    listing = Listing([], [], [], [])
    for name in files.names(log_dir.path):
        if name in known:
            continue
        beat()
        entry = files.entry_of(log_dir.path, name)
        if entry is None:
            continue
        path = os.path.join(log_dir.path, entry.name)
        parsed = parse_dir_name(entry.name)
        if entry.is_dir and parsed is not None:
            facts = ReplicaFacts(
                log_dir.path,
                entry.name,
                parsed.topic,
                parsed.partition,
                parsed.kind,
                directory_id=log_dir.directory_id,
            )
            if parsed.kind != "live" and _is_foreign(path):
                listing.warnings.append(f"{path}: {NO_LOG}")
            elif parsed.kind != "live":
                listing.replicas.append(with_metadata(facts))
            elif files.exists(os.path.join(path, PARTITION_METADATA)):
                listing.replicas.append(facts)
            else:
                _take_bare_replica(listing, facts, path)
        elif _is_ours(entry):
            continue
        elif entry.is_file and _is_leftover(entry.name):
            listing.leftovers.append(path)
        else:
            listing.warnings.append(f"{path}: {_what_is_foreign(entry)}; it was not changed")
    return listing


def foreign_entries(path: str) -> list[files.Entry]:
    """List the entries of a log dir that a store of this library must not delete.

    Such entries are the files of other programs, and replicas that belong to nobody (`.stray`).

    Raises:
        OSError: the disk failed.
    """
    return [entry for entry in files.entries(path) if _may_not_delete(path, entry)]


def _may_not_delete(log_dir: str, entry: files.Entry) -> bool:
    path, parsed = os.path.join(log_dir, entry.name), parse_dir_name(entry.name)
    if not entry.is_dir or parsed is None:
        return not (_is_ours(entry) or (entry.is_file and _is_leftover(entry.name)))
    if parsed.kind != "live":
        return parsed.kind == "stray" or _is_foreign(path)
    if files.exists(os.path.join(path, PARTITION_METADATA)):
        return False
    listing = Listing([], [], [], [])
    _take_bare_replica(listing, ReplicaFacts(log_dir, entry.name, *parsed[:3]), path)
    return not (listing.replicas or listing.unfinished)


def list_at_rest(log_dirs: Iterable[LogDir], list_all: Callable[[], Found]) -> Found:
    """List log dirs that another process owns; if replicas came or went meanwhile, list again.

    The log dirs are listed one after another. If a replica moves meanwhile from a dir that is not
    listed yet to a listed dir, no listing has the replica. If a replica moves from a listed dir to
    a dir that is not listed yet, two listings have the replica.
    """
    before = _lasting_names(log_dirs)
    for _ in range(LISTINGS_MAX):
        found, names = list_all(), before
        before = _lasting_names(log_dirs)
        if names == before:
            break
    return found


def _lasting_names(log_dirs: Iterable[LogDir]) -> list[set[str]]:
    """Give the names in each log dir, without short-lived files."""
    found: list[set[str]] = []
    for log_dir in log_dirs:
        found.append(set())
        with suppress(OSError):  # the listing reports the same error
            for name in () if log_dir.is_offline else files.names(log_dir.path):
                if not name.startswith(PROBE_PREFIX) and not name.endswith(".tmp"):
                    found[-1].add(name)
    return found


def _what_is_foreign(entry: files.Entry) -> str:
    kind = entry.kind
    if entry.name in OUR_FILES:
        return f"a {kind} with the name of a file of the store"
    if parse_dir_name(entry.name) is not None:
        return f"a {kind} with the name of a replica, which must be a directory"
    return f"a {kind} that does not belong to the store"


def _take_bare_replica(listing: Listing, facts: ReplicaFacts, path: str) -> None:
    """Classify a directory that has the name of a replica, but no metadata file.

    There are three possible cases: a replica that lost its metadata file, a replica whose creation
    was interrupted by a crash, or a directory of another program.
    """
    try:
        inside = files.entries(path)
    except FileNotFoundError:  # the owner deleted this directory during the listing
        return
    if any(parse_segment_file_name(entry.name) for entry in inside):
        listing.replicas.append(facts._replace(is_bare=True))
    elif all(entry.is_file and entry.name.endswith(".tmp") for entry in inside):
        listing.unfinished.append(path)
        listing.warnings.append(
            f"{path}: a crash interrupted the creation of this replica; it is removed"
        )
    else:
        listing.warnings.append(f"{path}: {NO_LOG}")


def _is_foreign(path: str) -> bool:
    """Check whether a directory that has the name of a copy has no file of this store.

    A purge removes `partition.metadata` last, and a move writes it first.
    """
    try:
        inside = files.entries(path)
    except FileNotFoundError:  # the owner purged this directory during the listing
        return False
    ours = any(
        one.name in SMALL_FILES
        or parse_segment_file_name(one.name) is not None
        or producer_file.offset_of(one.name) is not None
        for one in inside
    )
    return not ours and not all(one.is_file and one.name.endswith(".tmp") for one in inside)


def _is_ours(entry: files.Entry) -> bool:
    """Check whether a file or a directory belongs to the store, but is not a replica."""
    if entry.is_file:
        return entry.name in OUR_FILES or is_lost_file(entry.name)
    return entry.is_dir and entry.name in OUR_DIRS


def _is_leftover(name: str) -> bool:
    """Check whether a crash left a file: a half-written file, or the file of a probe."""
    if name.startswith(PROBE_PREFIX) or is_lost_file(name.removesuffix(".tmp")):
        return True
    stem, _, unique = name.removesuffix(".tmp").rpartition(".")
    return name.endswith(".tmp") and stem in OUR_FILES and len(unique) == 8


def bytes_in(path: str) -> int:
    """Give the total size of the segments in a directory. Raises OSError."""
    return sum(each.size_bytes for each in files.entries(path) if each.name.endswith(".log"))


def segment_paths(path: str) -> list[str]:
    """List the segments in a directory, in order. Raises OSError."""
    return [
        os.path.join(path, each.name)
        for each in sorted(files.entries(path))
        if each.is_file and each.name.endswith(".log")
    ]


def with_metadata(facts: ReplicaFacts) -> ReplicaFacts:
    """Add the values from `partition.metadata`; no other file always has the full topic name."""
    try:
        document = read_document(os.path.join(facts.path, PARTITION_METADATA))
        if document is None:
            return _without_metadata(facts)
    except FileNotFoundError:  # the owner purged this directory during the listing
        return facts._replace(is_deleted_by_user=facts.kind == "delete")
    except (CorruptionError, UnsupportedFormatError, PermissionError):
        return facts
    superseded_by = document.get("superseded_by")
    moving, move_id = document.get("moving"), document.get("move_id")
    try:
        fields.check_kind(document, PARTITION_METADATA)
        topic, partition = fields.partition_key(document.get("topic"), document.get("partition"))
        topic_id = fields.id_bytes(document.get("topic_id"), "topic_id").hex()
        generation = fields.number(document.get("generation", 0), "generation")
    except fields.WRONG:
        return facts
    try:
        facts = facts._replace(
            moving=read_mark(Moving, moving) if moving is not None else None,
            record=read_mark(MoveRecord, document) if move_id is not None else None,
            superseded_by=read_mark(Superseded, superseded_by) if superseded_by else None,
        )
    except fields.WRONG:
        return facts._replace(topic=topic, partition=partition)
    return facts._replace(
        topic=topic,
        partition=partition,
        topic_id=topic_id,
        generation=generation,
        is_deleted_by_user=document.get(DELETION) == DELETED_BY_USER,
    )


def _without_metadata(facts: ReplicaFacts) -> ReplicaFacts:
    """Classify a directory without `partition.metadata`, the file that a purge removes last."""
    is_log_left = any(parse_segment_file_name(entry.name) for entry in files.entries(facts.path))
    return facts._replace(
        is_deleted_by_user=facts.kind == "delete" and not is_log_left,
        is_empty=facts.kind == "move" and not is_log_left,
    )


def remove_leftovers(listing: Listing, log_dir: LogDir) -> None:
    """Remove the half-written small files and the half-created replicas that a crash left behind.

    If the log dir went offline because this thread hung in the listing, nothing is removed. The dir
    may then have another owner, which may have created a replica with the same name. In the
    directory of a half-created replica, only half-written files are removed. Finally, the empty
    directory is removed.
    """
    for path in listing.leftovers:
        if log_dir.is_offline:
            return
        files.remove_if_there(path)
    for directory in listing.unfinished:
        for entry in files.entries(directory):
            if log_dir.is_offline:
                return
            if entry.name.endswith(".tmp"):
                files.remove_if_there(os.path.join(directory, entry.name))
        if log_dir.is_offline:
            return
        files.rmdir(directory)


def purge_tree(path: str, beat: Callable[[], object] = lambda: None) -> None:
    """Remove the directory of a replica, durably; `partition.metadata` is removed last.

    The metadata file may record a deletion, which prevents other copies from coming back. After a
    crash, the next purge must still find the record of the deletion. If the directory is gone
    already, its removal is made durable.

    Args:
        beat: a function that is called after each file, as a sign that the disk answers.
    """
    try:
        for entry in files.entries(path):
            child = os.path.join(path, entry.name)
            if entry.is_dir:
                bulk.remove_tree(child)
            elif entry.name != PARTITION_METADATA:
                files.remove_if_there(child)
            beat()
        files.sync_dir(path)
        bulk.remove_tree(path)
    except FileNotFoundError:
        files.sync_dir(os.path.dirname(path))
