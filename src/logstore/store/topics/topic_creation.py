"""Create the missing partitions of a topic, in batches of many partitions.

Each partition goes to the log dir that `create` would choose. The partitions of a batch that go to
the same log dir share their syncs. If the log dir of some partitions fails, these partitions are
created one by one on other log dirs, as `create` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from logstore.config import LogConfig
from logstore.disk import files
from logstore.disk.log_dir import LogDir
from logstore.errors import LogDirError
from logstore.log.environment import LogEnvironment
from logstore.log.log import Log
from logstore.log.metadata import PartitionMetadata
from logstore.log.recovery.new_logs import create_many
from logstore.names import TopicPartition, dir_name
from logstore.store import creation
from logstore.store.dirs.parallel import for_each
from logstore.store.placement import choose
from logstore.store.replicas import Replicas
from logstore.store.usage import allowance_bytes

# The number of partitions in a batch. Each partition needs a descriptor until its file is synced.
BATCH_PARTITIONS = 128
# The number of threads that sync the partitions of a batch.
LANES = 8

Item = TypeVar("Item")

Placed = dict[LogDir, list[PartitionMetadata]]


@contextmanager
def reserved(replicas: Replicas, keys: Sequence[TopicPartition]) -> Iterator[None]:
    """Reserve several partitions. The keys must be sorted, so that two callers do not deadlock."""
    with ExitStack() as stack:
        for key in keys:
            stack.enter_context(replicas.reserved(key))
        yield


def create_all(
    replicas: Replicas,
    environment: LogEnvironment,
    keys: Sequence[TopicPartition],
    config: LogConfig,
    topic_id: bytes | None = None,
) -> None:
    """Create some partitions, each whole or not at all; the caller must have reserved their keys.

    Args:
        topic_id: the topic id of all partitions; None means a random id for each.

    Raises:
        LogDirError: no log dir accepts one of the partitions. Partitions that were already created
            stay.
    """
    for key in keys:
        dir_name(*key)
    for first in range(0, len(keys), BATCH_PARTITIONS):
        batch = [
            PartitionMetadata(key.topic, key.partition, topic_id or os.urandom(16), config=config)
            for key in keys[first : first + BATCH_PARTITIONS]
        ]
        for log_dir, some in _placed(replicas, batch, config).items():
            _create_on(log_dir, replicas, environment, some)


def _placed(replicas: Replicas, batch: Sequence[PartitionMetadata], config: LogConfig) -> Placed:
    """Choose the log dir of each partition, as if the earlier partitions already existed."""
    good, failure = creation.candidates(replicas)
    if not good:
        assert failure is not None
        raise failure
    allowance = allowance_bytes(replicas.figures.values(), config.segment_bytes)
    quick = [one for one in good if not one.log_dir.is_slow] or good
    dirs, loads = [one.log_dir for one in quick], [one.load() for one in quick]
    placed: Placed = {}
    for metadata in batch:
        key = TopicPartition(metadata.topic, metadata.partition)
        chosen = creation.wished_dir([one.log_dir for one in good], key)
        chosen = chosen or dirs[choose(loads, allowance)]
        placed.setdefault(chosen, []).append(metadata)
        if chosen in dirs:
            at = dirs.index(chosen)
            loads[at] = loads[at]._replace(
                partition_count=loads[at].partition_count + 1,
                empty_count=loads[at].empty_count + 1,
            )
    return placed


def _create_on(
    log_dir: LogDir,
    replicas: Replicas,
    environment: LogEnvironment,
    metadatas: Sequence[PartitionMetadata],
) -> None:
    """Create partitions on one log dir; if a creation fails there, use another log dir."""
    left = list(metadatas)
    try:
        free = [one for one in metadatas if _is_free(log_dir, one)]
        _create_together(log_dir, replicas, environment, free)
        left = [one for one in metadatas if one not in free]
    except LogDirError:
        # If a log dir fails during the creation, it may keep parts of the partitions.
        # The copies on other log dirs get a higher generation, so that they outrank these parts.
        left = [one._replace(generation=one.generation + 1) for one in metadatas]
    for metadata in left:
        creation.create_as(replicas, environment, metadata)


def _is_free(log_dir: LogDir, metadata: PartitionMetadata) -> bool:
    """Check that a log dir has no directory with a partition's name; forget its old checkpoints."""
    log_dir.check()
    key = TopicPartition(metadata.topic, metadata.partition)
    path = os.path.join(log_dir.path, dir_name(*key))
    try:
        log_dir.check_place()
        log_dir.checkpoints.forget(key)
        return not files.exists(path)
    except OSError as error:
        raise log_dir.failed(error, path) from error


def _in_lanes(items: Sequence[Item], work: Callable[[Item], object]) -> None:
    """Call `work` for each item in several threads. Raises the first error of a thread."""

    def each(lane: Sequence[Item]) -> None:
        for item in lane:
            work(item)

    lanes = [items[first::LANES] for first in range(min(LANES, len(items)))]
    for outcome in for_each(lanes, each, name="logstore-create"):
        if outcome.error is not None:
            raise outcome.error


def _create_together(
    log_dir: LogDir,
    replicas: Replicas,
    environment: LogEnvironment,
    metadatas: Sequence[PartitionMetadata],
) -> None:
    """Create partitions with shared syncs; after an error, remove their directories."""
    logs: list[Log] = []
    try:
        logs = create_many(Log, log_dir, metadatas, environment, _in_lanes)
        for log in logs:
            replicas.add(TopicPartition(log.topic, log.partition), log, log_dir)
    except BaseException:  # MemoryError counts, too: a start would open the incomplete logs
        for metadata in metadatas:
            key = TopicPartition(metadata.topic, metadata.partition)
            path = os.path.join(log_dir.path, dir_name(*key))
            if log_dir.is_offline:
                break
            if key not in replicas.opened:
                creation.remove_unfinished(replicas, log_dir, path, key)
        raise
    for log in logs:
        creation.forget_wish(replicas, TopicPartition(log.topic, log.partition))
