"""Create and delete partitions.

A new partition goes to the log dir that `placement` chooses. If the chosen log dir fails, another
log dir is tried. When a deletion has been recorded in the metadata of the partition, the
partition's directory is renamed. A crash leaves either the partition, or a directory that the next
start purges.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from logstore.config import LogConfig
from logstore.disk import bulk, files
from logstore.disk.calls import SYNCING, call
from logstore.disk.failures import Verdict, verdict_of
from logstore.disk.log_dir import LogDir
from logstore.errors import (
    DuplicateLogError,
    LogDirError,
    LogDirFullError,
    LogDirOfflineError,
    LogStoreError,
    PartitionExistsError,
    ReplicaOfflineError,
    UnknownPartitionError,
)
from logstore.log import host
from logstore.log.environment import LogEnvironment
from logstore.log.log import Log
from logstore.log.metadata import CONFIG_LOST, PartitionMetadata
from logstore.log.recovery.open_log import create as create_log
from logstore.log.small_files import metadata_or_stand_in
from logstore.names import (
    ReplicaDirName,
    TopicPartition,
    delete_dir_name,
    dir_name,
    stray_dir_name,
)
from logstore.store.doubts import acceptance
from logstore.store.other_copies import Doomed
from logstore.store.replicas import OfflineReplica, Replica, Replicas, key_of
from logstore.store.start.dir_actions import make_deleted
from logstore.store.upkeep.purge import companions
from logstore.store.usage import DirFigures, allowance_bytes, choose_dir

NEVER_THERE = (
    "; if the partition never existed, create it with is_new=True (logstore create --is-new)"
)


def check_absent(replicas: Replicas, key: TopicPartition, *, is_new: bool) -> None:
    """Raise an error if a partition exists, or (without `is_new`) if a bad log dir may have it."""
    replica = replicas.opened.get(key) or replicas.incomplete.get(key) or replicas.offline.get(key)
    if replica is not None:
        replica.log_dir.check()
        if isinstance(replica, OfflineReplica) and isinstance(
            replica.error, (LogDirOfflineError, DuplicateLogError)
        ):
            raise copy.copy(replica.error)
        raise PartitionExistsError(topic=key.topic, partition=key.partition)
    replicas.check_not_absent(key)
    if not is_new:
        replicas.check_no_dir_is_bad(key, NEVER_THERE)


@contextmanager
def claimed(replicas: Replicas, key: TopicPartition, topic_id: bytes | None) -> Iterator[bytes]:
    """Claim a topic id while its partition is created; if the id is None, make a random id.

    Raises:
        ValueError: a partition of another topic has this id, or is being created with this id.
            Partitions in log dirs that do not work are not checked.
    """
    if topic_id is None:
        yield os.urandom(16)
        return
    claim = (topic_id, key)
    replicas.claimed_ids.append(claim)
    try:
        others = [other for id_, other in list(replicas.claimed_ids) if id_ == topic_id]
        logs = [replica.log for replica in list(replicas.opened.values())]
        logs += [replica.log for replica in list(replicas.incomplete.values())]
        others += [key_of(log) for log in logs if log.topic_id == topic_id]
        for other in others:
            if other.topic != key.topic:
                raise ValueError(
                    f"topic_id {topic_id.hex()} belongs to {other}, a partition of another topic"
                )
        yield topic_id
    finally:
        replicas.claimed_ids.remove(claim)


def existing(
    replicas: Replicas,
    key: TopicPartition,
    config: LogConfig | None,
    topic_id: bytes | None = None,
) -> Log | None:
    """Return the log of a partition, or None if the partition does not exist.

    The caller must have reserved the key. If the log has lost its configuration, `config` becomes
    the configuration of the log.

    Args:
        config, topic_id: the configuration and topic id that the log must have; None accepts any.

    Raises:
        PartitionExistsError: the partition has another configuration or topic id.
        LogDirError: the log dir of the partition does not serve.
    """
    replica = replicas.opened.get(key) or replicas.incomplete.get(key)
    if replica is None:
        return None
    replica.log_dir.check()
    if topic_id not in (None, replica.log.topic_id):
        reason = f"partition {key} exists with another topic id: {replica.log.topic_id.hex()}"
        raise PartitionExistsError(reason, topic=key.topic, partition=key.partition)
    if config is not None and host.metadata_of(replica.log).extra.get(CONFIG_LOST):
        host.set_config(replica.log, lambda _: config)
    stored = replica.log.config.to_dict()
    wanted = stored if config is None else config.to_dict()
    differences = {
        name: (value, wanted[name]) for name, value in stored.items() if value != wanted[name]
    }
    if differences:
        each = [f"{name} is {old!r}, not {new!r}" for name, (old, new) in differences.items()]
        raise PartitionExistsError(
            f"partition {key} exists with another configuration than the given one: "
            f"{'; '.join(each)}; pass no config to keep the configuration of the partition, or "
            "change it with set_config (on the command line: logstore alter)",
            topic=key.topic,
            partition=key.partition,
            differences=differences,
        )
    return replica.log


def create(
    replicas: Replicas,
    environment: LogEnvironment,
    key: TopicPartition,
    config: LogConfig,
    log_dir: LogDir | None,
    topic_id: bytes,
) -> Log:
    """Create a log on `log_dir`; if `log_dir` is None, use the best log dir that works.

    If a log dir failed during an earlier creation of this replica, it may keep a part of the
    replica. So the generation of the new copy is the number of bad log dirs. With this generation,
    the new copy outranks the parts in bad log dirs when these log dirs return.

    Raises:
        LogDirError: the error of the last log dir that was tried.
    """
    dir_name(*key)
    generation = len(replicas.ids_away())
    metadata = PartitionMetadata(
        key.topic, key.partition, topic_id, generation=generation, config=config
    )
    if log_dir is not None:
        check_takes_replicas(replicas, log_dir)
        return _create_on(log_dir, replicas, environment, metadata)
    return create_as(replicas, environment, metadata)


def create_as(replicas: Replicas, environment: LogEnvironment, metadata: PartitionMetadata) -> Log:
    """Create a log with the given metadata; choose its log dir as `create` does."""
    key, config = TopicPartition(metadata.topic, metadata.partition), metadata.config
    good, failure = candidates(replicas)
    while good:
        allowance = allowance_bytes(replicas.figures.values(), config.segment_bytes)
        quick = [one for one in good if not one.log_dir.is_slow] or good
        chosen = wished_dir([one.log_dir for one in good], key) or choose_dir(quick, allowance)
        good = [one for one in good if one.log_dir is not chosen]
        try:
            return _create_on(chosen, replicas, environment, metadata)
        except LogDirError as error:
            failure = error
            # If a log dir fails during the creation, it may keep a part of the replica.
            # The copy on the next log dir gets a higher generation, so that it outranks this part.
            metadata = metadata._replace(generation=metadata.generation + 1)
    assert failure is not None
    raise failure


def check_takes_replicas(replicas: Replicas, log_dir: LogDir) -> None:
    """Raise LogDirError if a log dir accepts no new replica because it is bad, cordoned or full."""
    log_dir.check()
    if log_dir in replicas.returning:
        reason = "it is being opened or removed; try again"
        raise LogDirError(path=log_dir.path, reason=reason, retriable=True)
    if log_dir.is_cordoned:
        raise LogDirError(
            path=log_dir.path, reason="it is cordoned; uncordon it, or choose another log dir"
        )
    log_dir.check_appendable()


def candidates(replicas: Replicas) -> tuple[list[DirFigures], LogDirError | None]:
    """List the log dirs that accept new replicas; also return the error of one other log dir.

    If several log dirs accept no replica, a retriable error is preferred, such as a full disk.
    """
    good: list[DirFigures] = []
    failure: LogDirError | None = None
    for one in list(replicas.figures.values()):
        try:
            check_takes_replicas(replicas, one.log_dir)
            good.append(one)
        except LogDirError as error:
            if failure is None or (error.retriable and not failure.retriable):
                failure = error
    return good, failure


def wished_dir(log_dirs: Sequence[LogDir], key: TopicPartition) -> LogDir | None:
    """Find the log dir that the user last preferred for a partition (KIP-113)."""
    wished = [log_dir for log_dir in log_dirs if key in log_dir.settings.preferred]
    return max(wished, key=lambda log_dir: log_dir.settings.preferred[key], default=None)


def forget_wish(replicas: Replicas, key: TopicPartition) -> None:
    """Remove the preferences for a partition that was created; a failure does no harm."""
    for log_dir in replicas.log_dirs:
        settings = log_dir.settings
        if key in settings.preferred and not log_dir.is_refusing:
            with suppress(LogStoreError):
                log_dir.change_settings(settings.without(key))


def _create_on(
    log_dir: LogDir, replicas: Replicas, environment: LogEnvironment, metadata: PartitionMetadata
) -> Log:
    """Create a log on one log dir; after a failure, remove the files if the dir still works."""
    log_dir.check()
    key = TopicPartition(metadata.topic, metadata.partition)
    path = os.path.join(log_dir.path, dir_name(*key))
    try:
        log_dir.check_place()
        # If the checkpoints have entries with this name, the entries belong to a deleted replica.
        log_dir.checkpoints.forget(key)
        if files.exists(path):
            reason = f"{path} exists already; it is not a replica of this store"
            raise LogDirError(path=log_dir.path, reason=reason)
    except OSError as error:
        raise log_dir.failed(error, path) from error
    log: Log | None = None
    try:
        with call(log_dir.path, SYNCING):
            log = Log(create_log(log_dir, metadata, environment))
        replicas.add(key, log, log_dir)
    except PartitionExistsError:
        raise
    except BaseException:  # MemoryError counts, too: a start would open the incomplete log
        is_known = any(log is one for one in replicas.on(log_dir))
        if not is_known and not log_dir.is_offline:
            remove_unfinished(replicas, log_dir, path, key)
        raise
    forget_wish(replicas, key)
    return log


def remove_unfinished(replicas: Replicas, log_dir: LogDir, path: str, key: TopicPartition) -> None:
    """Remove the directory that a failed creation left, because a start would open it as a replica.

    If the process lacks the descriptors or memory to remove the directory, the directory is renamed
    to a `.stray` now and removed later. A rename needs neither descriptors nor memory.
    """
    try:
        log_dir.spare.use(partial(bulk.remove_tree, path))
    except FileNotFoundError:
        pass
    except (OSError, MemoryError) as error:
        if isinstance(error, OSError) and verdict_of(error) is not Verdict.PROCESS:
            raise log_dir.failed(error, path) from error
        name = stray_dir_name(key.topic, key.partition, os.urandom(16).hex())
        doomed = os.path.join(log_dir.path, name)
        with suppress(OSError):
            files.rename(path, doomed)
            replicas.purge([Doomed(log_dir, doomed)])


def delete(replicas: Replicas, key: TopicPartition) -> list[Doomed]:
    """Write a replica's deletion into its metadata, then rename its directory, both durably.

    Returns:
        The directories, in the order in which they must be purged. Other copies of the replica
        (copies of a move, or superseded copies) come first. In another order, the directory with
        the record of the deletion could be purged first, and a start would make one of the other
        copies live.
    """
    others = companions(replicas, key)
    replica = replicas.opened.get(key)
    if replica is not None:
        replica.log_dir.check_current()
        log_dir, doomed = replica.log_dir, _delete_live(replicas, replica, key)
    elif key in replicas.incomplete:
        log_dir, doomed = _delete_incomplete(replicas, key)
    else:  # another thread deleted the replica first
        raise UnknownPartitionError(topic=key.topic, partition=key.partition)
    _leave_to_rivals(replicas, key)
    replicas.copies.forget_of(key)
    replicas.catalog.note(key, None)
    return [*others, Doomed(log_dir, doomed, is_deletion=True)]


def _leave_to_rivals(replicas: Replicas, key: TopicPartition) -> None:
    """If another live copy of a deleted replica is known, list the replica as offline."""
    rivals = [(path, d) for path, (of, d) in list(replicas.copies.rivals.items()) if of == key]
    if rivals:
        paths, (_, log_dir) = tuple(path for path, _ in rivals), rivals[0]
        reason = f"the replica was deleted, but another live copy is in {', '.join(paths)}"
        error = ReplicaOfflineError(topic=key.topic, partition=key.partition, reason=reason)
        replicas.found_offline(key, OfflineReplica(error, log_dir, paths=paths))


def _delete_live(replicas: Replicas, replica: Replica, key: TopicPartition) -> str:
    log, log_dir = replica
    # A full disk has no room for the record of the deletion.
    # The purge follows immediately and frees space.
    with suppress(LogDirFullError):
        _note_deletion(log)
    try:
        doomed = rename_away(log, log_dir, key)
    except LogStoreError as error:
        replicas.take_offline(key, error)
        raise
    replicas.remove(key)
    log_dir.not_loaded.discard(key)
    return doomed


def _delete_incomplete(replicas: Replicas, key: TopicPartition) -> tuple[LogDir, str]:
    """Write a deletion into the directory of an incomplete replica, and rename it to `.delete`."""
    log, log_dir, facts, _ = replicas.incomplete[key]
    acceptance.check_decidable(replicas, log_dir)
    try:
        name = ReplicaDirName(*key, facts.kind, "")
        metadata = metadata_or_stand_in(facts.path, name)  # the metadata file may be lost
        metadata.with_deletion().write(facts.path)
        # The replica stays readable until `settle` has durably recorded the user's decision.
        acceptance.settle(replicas, log_dir, key)
        facts = make_deleted(log_dir, facts)
    except OSError as error:
        raise log_dir.failed(error, facts.path, *key) from error
    log.detach(UnknownPartitionError(topic=key.topic, partition=key.partition))
    replicas.remove(key)
    return log_dir, facts.path


def _note_deletion(log: Log) -> None:
    """Record in the metadata of a replica that the user deleted the replica."""
    host.change_metadata(log, lambda metadata: {"extra": metadata.with_deletion().extra})


def is_deleted(log: Log) -> bool:
    """Check whether a log's metadata has a deletion that a crash interrupted."""
    return host.metadata_of(log).is_deleted_by_user


def rename_away(log: Log, log_dir: LogDir, key: TopicPartition) -> str:
    """Rename a replica to `.delete`; after that, its log raises UnknownPartitionError."""
    doomed = os.path.join(
        log_dir.path, delete_dir_name(key.topic, key.partition, os.urandom(16).hex())
    )
    try:
        # First wait until running operations end.
        # Otherwise a running operation could write into another log that gets this name later.
        with host.stopped(log):
            log.detach(UnknownPartitionError(topic=key.topic, partition=key.partition))
            try:
                files.rename(log.directory, doomed)
                files.sync_dir(log_dir.path)
            except OSError as error:
                raise log_dir.failed(error, log.directory, *key) from error
    finally:
        host.tell_end(log)
    return doomed
