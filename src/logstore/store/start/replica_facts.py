"""Read what the start-up table needs besides a listing: metadata and end offsets of copies.

If a replica has only one directory, and this directory is live, the table needs neither the
metadata nor the end offset of the replica. The directory is read only when its log opens. So the
start of a store with many partitions stays fast.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from logstore.disk import bulk, files
from logstore.disk.failures import refuse_shortage
from logstore.disk.log_dir import LogDir
from logstore.errors import LogStoreError, ReplicaOfflineError
from logstore.log import host
from logstore.log.environment import LogEnvironment
from logstore.names import TopicPartition
from logstore.store.replicas import Replica, Replicas, key_of
from logstore.store.start.listing import bytes_in, segment_paths, with_metadata
from logstore.store.start.startup_table import ReplicaFacts


def complete(
    found: Iterable[ReplicaFacts],
    log_dirs: Iterable[LogDir],
    environment: LogEnvironment,
    at: Callable[[LogDir], AbstractContextManager[None]] = lambda log_dir: nullcontext(),
) -> list[ReplicaFacts]:
    """Complete the `ReplicaFacts` of replicas with several directories, or no live directory.

    If the disk fails, a value stays unknown, and the table changes nothing. When the replica is
    opened later, the error occurs again.

    Args:
        at: a function that returns a context manager for a log dir; each access to the log dir runs
            inside it.

    Raises:
        LogDirError: this process lacks a resource, so nothing can be decided; retry later.
    """
    by_key: dict[TopicPartition, list[ReplicaFacts]] = defaultdict(list)
    for facts in found:
        by_key[TopicPartition(facts.topic, facts.partition)].append(facts)
    dirs = {log_dir.path: log_dir for log_dir in log_dirs}
    told: list[ReplicaFacts] = []
    for group in by_key.values():
        if len(group) == 1 and group[0].kind == "live":
            told += group
        else:
            is_all_there_is = all(facts.kind != "live" for facts in group)
            for facts in group:
                if not (facts.is_open or facts.is_deleted_by_user):
                    log_dir = dirs[facts.log_dir]
                    with at(log_dir):
                        facts = _complete_one(facts, log_dir, environment, is_all_there_is)
                told.append(facts)
    return told


def _complete_one(
    facts: ReplicaFacts, log_dir: LogDir, environment: LogEnvironment, is_all_there_is: bool
) -> ReplicaFacts:
    """Read the metadata of a live copy, or the end offset of a copy that is not live."""
    try:
        if is_all_there_is and not log_dir.read_only:
            _ask_the_disk(facts, log_dir)
        if facts.kind == "live":
            return with_metadata(facts)
        if facts.kind == "move":
            facts = facts._replace(size_bytes=bytes_in(facts.path))
        if facts.kind in ("move", "delete") and not facts.is_empty:
            with only_this(facts.topic, facts.partition):
                end_offset = end_offset_of(log_dir, facts.dir_name, environment)
            return facts._replace(end_offset=end_offset)
    except OSError as error:
        refuse_shortage(error, log_dir.path)
    except LogStoreError as error:
        if isinstance(error.__cause__, OSError):
            refuse_shortage(error.__cause__, log_dir.path)
    return facts


def _ask_the_disk(facts: ReplicaFacts, log_dir: LogDir) -> None:
    """Drop a copy from the page cache, so that its data is read from the disk.

    The start may choose this copy as the log. A sync may have failed while another process made the
    copy. The data of the failed sync is lost, but the kernel shows this data from memory until the
    next power cut.

    Raises:
        LogDirError: the disk failed, and the log dir went offline; or this process lacks a
            resource.
    """
    try:
        for path in segment_paths(facts.path):
            log_dir.check()
            bulk.drop_cache(path)
    except OSError as error:
        refuse_shortage(error, log_dir.path)
        raise log_dir.failed(error, facts.path, facts.topic, facts.partition) from error


@contextmanager
def only_this(topic: str, partition: int) -> Iterator[None]:
    """Convert an unexpected error of one replica, so that the other replicas open; log its bug.

    Raises:
        ReplicaOfflineError: the error was no LogStoreError.
    """
    try:
        yield
    except LogStoreError:
        raise
    except Exception as error:
        text = f"opening {topic}-{partition} failed, so it is offline: an unexpected error"
        logging.getLogger("logstore").warning(text, exc_info=True)
        reason = f"opening it failed: {type(error).__name__}: {error}"
        raise ReplicaOfflineError(topic=topic, partition=partition, reason=reason) from error


def end_offset_of(log_dir: LogDir, dir_name: str, environment: LogEnvironment) -> int:
    """Read the end offset of the log in a directory without changing it. Raises LogStoreError."""
    from logstore.log.view import open_view

    log = open_view(log_dir, dir_name, environment)
    try:
        return log.log_end_offset
    finally:
        log.close()


def was_deleted(replicas: Replicas, log_dir: LogDir, facts: ReplicaFacts) -> bool:
    """Check whether a replica was deleted after it was listed."""
    key = TopicPartition(facts.topic, facts.partition)
    if replicas.catalog.directory_of(key) == log_dir.directory_id:
        return False
    try:
        return not files.exists(facts.path)
    except OSError as error:
        raise log_dir.failed(error, facts.path, *key) from error


def facts_of_open(replica: Replica) -> ReplicaFacts:
    """Return the `ReplicaFacts` of a live copy that this process has open."""
    log, log_dir = replica
    metadata = host.metadata_of(log)
    topic, partition = key_of(log)
    return ReplicaFacts(
        log_dir.path,
        log.directory[len(log_dir.path) + 1 :],
        topic,
        partition,
        "live",
        metadata.topic_id.hex(),
        generation=metadata.generation,
        directory_id=log_dir.directory_id,
        moving=metadata.moving,
        # No decision relies on unflushed data, because a power cut can remove this data.
        end_offset=log.recovery_point,
        is_open=True,
    )
