"""Take a partition from a broker's log dir into a store, with its offsets and bytes unchanged.

The copy is made under the name of a deleted replica (`.delete`), and is renamed after the whole
copy is durable. If the process is killed before the renaming, the next start purges the copy.
Sealed segments are linked if possible. A store never writes into a sealed segment, so the broker's
file does not change. If a link is impossible (another mount, another owner), the new file shares
the blocks of the broker's file. If the file system cannot share blocks, the file is copied. The
last segment is copied, because the broker and the store could still append to it. Only with
`Place.links_all`, the last segment is linked, too.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from logstore.config import LogConfig
from logstore.disk import bulk, files
from logstore.disk.log_dir import LogDir
from logstore.errors import CorruptRecordBatchError, LogDirError
from logstore.log import host
from logstore.log.log import Log
from logstore.log.metadata import DELETED_BY_USER, DELETION, SPARSE_OFFSETS, PartitionMetadata
from logstore.log.producers import snapshot_files
from logstore.log.recovery.open_log import open_log
from logstore.log.segments.segment import Segment
from logstore.names import (
    TopicPartition,
    delete_dir_name,
    dir_name,
    parse_dir_name,
    segment_file_name,
)
from logstore.store import creation
from logstore.store.replicas import Replicas
from logstore.store.start.listing import with_metadata
from logstore.store.start.startup_table import ReplicaFacts
from logstore.store.upkeep.events import StoreEventKind
from logstore.store.usage import choose_dir

if TYPE_CHECKING:
    from logstore.store.store import LogStore

COPY_BYTES = 8 << 20
NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP)
NO_CLONES = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.ENOSYS)


class Place(NamedTuple):
    """The log dir, configuration and topic id that a caller chooses for an adopted log.

    Attributes:
        topic_id: the topic id of the new log.
        links_all: link the last segment, too. After the adoption, no program may append to the
            broker's files.
    """

    log_dir: str
    config: LogConfig
    topic_id: bytes
    links_all: bool = False


class Adopted(NamedTuple):
    """The offsets of an adopted log, and how many bytes were linked, cloned and copied."""

    log_start_offset: int
    log_end_offset: int
    linked_bytes: int
    cloned_bytes: int
    copied_bytes: int


def adopt(
    store: LogStore,
    source: LogStore,
    name: TopicPartition,
    show: Callable[[int], object],
    place: Place | None = None,
) -> Adopted:
    """Take one partition of a broker into a store.

    Args:
        source: the broker's log dirs, opened by `LogStore.open_kafka`.
        show: a function that is called with the number of bytes that are done.
        place: the log dir and the configuration. By default, the best log dir that works and the
            default configuration are used.

    Raises:
        PartitionExistsError: the store has a partition of that name.
        LogStoreError: the source cannot be read, or a disk failed.
    """
    log = source.log(*name)
    replicas = store.host.replicas
    with replicas.reserved(name):
        creation.check_absent(replicas, name, is_new=False)
        log_dir = _log_dir_for(store, log, place)
        directory = os.path.join(log_dir.path, dir_name(*name))
        temporary = os.path.join(log_dir.path, delete_dir_name(*name, os.urandom(16).hex()))
        try:
            if files.exists(directory):
                reason = f"{directory} exists already; it is not a replica of this store"
                raise LogDirError(path=log_dir.path, reason=reason)
            log_dir.checkpoints.forget(name)
            taken = _fill(log, temporary, _generation(replicas, name), show, place)
            files.rename(temporary, directory)
            files.sync_dir(log_dir.path)
        except BaseException as error:
            with suppress(OSError):
                bulk.remove_tree(temporary)
            if isinstance(error, OSError):
                raise log_dir.failed(error, directory, *name) from error
            raise
        made = _open(store, log_dir, name, log)
        events = store._state.owned().events
        events.of_replica(StoreEventKind.REPLICA_CREATED, name, log_dir.path)
    return Adopted(made.log_start_offset, made.log_end_offset, *taken)


def _log_dir_for(store: LogStore, log: Log, place: Place | None) -> LogDir:
    if place is not None:
        return store._state.dir_named(place.log_dir)
    good, failure = creation.candidates(store.host.replicas)
    if not good:
        assert failure is not None
        raise failure
    return choose_dir(good, log.size_bytes)


def _generation(replicas: Replicas, name: TopicPartition) -> int:
    """Choose a higher generation than any deleted replica of this name that is not purged yet."""
    found = [-1]
    for log_dir in replicas.log_dirs:
        if log_dir.is_refusing:
            continue
        try:
            for entry in files.entries(log_dir.path):
                parsed = parse_dir_name(entry.name)
                if parsed is not None and parsed.kind == "delete" and parsed.partition == name[1]:
                    facts = ReplicaFacts(log_dir.path, entry.name, *parsed[:3])
                    found.append(with_metadata(facts).generation)
        except OSError as error:
            raise log_dir.failed(error, log_dir.path) from error
    return max(found) + 1


def _fill(
    log: Log, target: str, generation: int, show: Callable[[int], object], place: Place | None
) -> tuple[int, int, int]:
    """Fill the new directory; return how many bytes were linked, cloned and copied."""
    files.make_dir(target)
    # The topic id is random, and no other directory has it.
    # If a crash leaves this directory, it is purged as a deleted replica.
    # This purge removes nothing else.
    unfinished = PartitionMetadata(log.topic, log.partition, os.urandom(16))
    unfinished._replace(extra={DELETION: DELETED_BY_USER}).write(target)
    linked = cloned = copied = 0
    segments = host.segments_of(log)
    for segment in segments:
        path = os.path.join(target, segment_file_name(segment.base_offset, ".log"))
        done = linked + cloned + copied
        may_link = segment is not segments[-1] or (place is not None and place.links_all)
        if may_link and _is_whole(segment) and _link(segment, path):
            bulk.sync_path(path)  # perhaps the broker has not synced the file
            linked += segment.size_bytes
        elif segment is not segments[-1] and _clone(log, segment, path):
            cloned += segment.size_bytes
        else:
            _copy(log, segment, path, done, show)
            copied += segment.size_bytes
        show(linked + cloned + copied)
    topic_id = log.topic_id if any(log.topic_id) else os.urandom(16)
    config = LogConfig(record_format="kafka")
    if place is not None:
        topic_id, config = place.topic_id, place.config
    metadata = PartitionMetadata(
        log.topic,
        log.partition,
        topic_id,
        generation=generation,
        log_start_offset=log.log_start_offset,
        config=config,
        extra={SPARSE_OFFSETS: True},
    )
    with suppress(CorruptRecordBatchError):  # the opening of the copy reports this damage
        producers = host.producers_of_broker(log)
        if producers is not None:
            snapshot_files.write(target, producers, metadata)
    metadata.write(target)
    files.sync_dir(target)
    return linked, cloned, copied


def _is_whole(segment: Segment) -> bool:
    """Check that no torn tail and no preallocated zeros follow the last batch of the file."""
    return files.stat(segment.log_path).st_size == segment.size_bytes


def _link(segment: Segment, path: str) -> bool:
    try:
        files.link(segment.log_path, path)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return False
    return True


def _clone(log: Log, segment: Segment, path: str) -> bool:
    source = host.open_segment(log, segment)
    target = files.replace_file(path)
    try:
        bulk.clone(source.fd, target)
        files.sync_file(target)
    except OSError as error:
        if error.errno not in NO_CLONES:
            raise
        return False
    finally:
        files.close(target)
    return True


def _copy(log: Log, segment: Segment, path: str, done: int, show: Callable[[int], object]) -> None:
    source = host.open_segment(log, segment)
    target = files.replace_file(path)
    try:
        for start in range(0, segment.size_bytes, COPY_BYTES):
            end = min(start + COPY_BYTES, segment.size_bytes)
            bulk.copy_range(source.fd, target, start, end)
            show(done + end)
        files.sync_file(target)
    finally:
        files.close(target)


def _open(store: LogStore, log_dir: LogDir, name: TopicPartition, source: Log) -> Log:
    """Open the copy, which checks every batch in it, and add it to the store."""
    environment, end = store._state.environment, source.log_end_offset
    log = Log(open_log(log_dir, dir_name(*name), environment, end, None, is_clean=False))
    log.flush()
    store.host.replicas.add(name, log, log_dir)
    return log
