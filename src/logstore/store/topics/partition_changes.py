"""Create, configure, delete, promote and repair the partitions of a store.

Each change first reserves its replicas. Ctrl-C does not interrupt a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from logstore.arguments import StrPath, flag, instance, text, whole, wrong
from logstore.config import LogConfig
from logstore.disk.uninterrupted import uninterruptible
from logstore.log.log import Log
from logstore.names import (
    TopicPartition,
    partition_named,
    topic_id_of,
    validate_partition,
    validate_topic,
)

if TYPE_CHECKING:
    from logstore.log.recovery.repair import RepairReport
    from logstore.store.replicas import Replicas
    from logstore.store.state import OwnerState


def check_choice(*, is_new: bool, exist_ok: bool) -> None:
    """Refuse two arguments that contradict each other."""
    if flag(exist_ok, "exist_ok") & flag(is_new, "is_new"):
        raise ValueError(
            "is_new=True says that the partition does not exist, but exist_ok=True says that it "
            "may exist: pass only one of these arguments"
        )


@uninterruptible
def create(
    state: OwnerState,
    topic: str,
    partition: int,
    *,
    log_dir: StrPath | None = None,
    config: LogConfig | None = None,
    is_new: bool = False,
    exist_ok: bool = False,
    topic_id: bytes | str | None = None,
) -> Log:
    """Implement `LogStore.create`."""
    from logstore.store import creation
    from logstore.store.upkeep.events import StoreEventKind

    replicas = state.replicas
    key = TopicPartition(validate_topic(topic), validate_partition(partition))
    settings = state.config.log_config if config is None else config
    instance(settings, LogConfig, "config")
    check_choice(is_new=is_new, exist_ok=exist_ok)
    own_id = None if topic_id is None else topic_id_of(topic_id)
    chosen = None if log_dir is None else state.dir_named(log_dir)
    if exist_ok and key in replicas.offline:
        replicas.lookup(*key)  # `lookup` opens the replica if possible
    with replicas.reserved(key):
        state.check()
        log = creation.existing(replicas, key, config, own_id) if exist_ok else None
        if log is not None:
            return log
        creation.check_absent(replicas, key, is_new=is_new)
        with creation.claimed(replicas, key, own_id) as chosen_id:
            log = creation.create(replicas, state.environment, key, settings, chosen, chosen_id)
        state.events.of_replica(StoreEventKind.REPLICA_CREATED, key, log.log_dir)
        return log


@uninterruptible
def create_topic(
    state: OwnerState,
    topic: str,
    partitions: int,
    *,
    config: LogConfig | None = None,
    is_new: bool = False,
    exist_ok: bool = False,
    topic_id: bytes | str | None = None,
) -> list[Log]:
    """Implement `LogStore.create_topic`."""
    from logstore.store import creation
    from logstore.store.topics.topic_creation import create_all, reserved

    replicas = state.replicas
    count = whole(partitions, "partitions", 1)
    last = TopicPartition(validate_topic(topic), validate_partition(count - 1))
    settings = state.config.log_config if config is None else config
    instance(settings, LogConfig, "config")
    check_choice(is_new=is_new, exist_ok=exist_ok)
    own_id = None if topic_id is None else topic_id_of(topic_id)
    keys = [TopicPartition(last.topic, number) for number in range(count)]
    for key in keys if exist_ok else ():
        if key in replicas.offline:
            replicas.lookup(*key)  # `lookup` opens the replica if possible
    with reserved(replicas, keys):
        state.check()
        logs: dict[TopicPartition, Log] = {}
        for key in keys:
            log = creation.existing(replicas, key, config, own_id) if exist_ok else None
            if log is None:
                creation.check_absent(replicas, key, is_new=is_new)
            else:
                logs[key] = log
        absent = [key for key in keys if key not in logs]
        try:
            with creation.claimed(replicas, last, own_id):
                create_all(replicas, state.environment, absent, settings, own_id)
        finally:  # after an error, the created partitions stay
            _tell_created(state, absent)
        logs |= {key: replicas.opened[key].log for key in absent}
    return [logs[key] for key in keys]


def _tell_created(state: OwnerState, keys: Iterable[TopicPartition]) -> None:
    """Post an event for each created partition; the caller must have reserved the keys."""
    from logstore.store.upkeep.events import StoreEventKind

    for key in keys:
        replica = state.replicas.opened.get(key)
        if replica is not None:
            path = replica.log_dir.path
            state.events.of_replica(StoreEventKind.REPLICA_CREATED, key, path)


@uninterruptible
def set_config(
    state: OwnerState, topic: str, partition: int, changes: Mapping[str, Any]
) -> LogConfig:
    """Implement `LogStore.set_config`."""
    if not isinstance(changes, Mapping):
        raise wrong("changes", "a mapping of keys to values", changes)
    for name in changes:
        text(name, "a key of changes")
    defaults = state.config.log_config
    log = state.replicas.lookup(topic, partition).log
    from logstore.log import host

    return host.set_config(log, lambda config: config.with_changes(changes, defaults))


@uninterruptible
def delete(state: OwnerState, topic: str, partition: int) -> None:
    """Implement `LogStore.delete`."""
    key = partition_named(topic, partition)
    with _deciding_if_accepted(state):
        _delete(state, key)


@contextmanager
def _deciding_if_accepted(state: OwnerState) -> Iterator[None]:
    """If the `with` block accepts the last bad log dir, decide again about undecided replicas.

    The start-up table decides. The accepted log dir was an old copy, so a recorded deletion may
    apply to one of its replicas.
    """
    from logstore.store.start.undecided import decide_again

    was_bad = state.replicas.is_a_dir_bad()
    yield
    if was_bad and not state.replicas.is_a_dir_bad():
        decide_again(state, ())


def _delete(state: OwnerState, key: TopicPartition) -> None:
    from logstore.store import creation
    from logstore.store.doubts import acceptance
    from logstore.store.start.undecided import decide_again
    from logstore.store.upkeep.events import StoreEventKind

    replicas = state.replicas
    if acceptance.is_missing(replicas, key):
        with replicas.reserved(key):
            offline = replicas.offline.get(key)
            if offline is not None and acceptance.give_up(replicas, key):
                state.events.of_replica(StoreEventKind.REPLICA_DELETED, key, None)
                _note_elsewhere(replicas, offline.log_dir.path)
                return
    replicas.lookup(*key)
    with replicas.reserved_unmoved(key, "the partition is deleted"):
        doomed = creation.delete(replicas, key)
        path = doomed[-1].log_dir.path
        state.events.of_replica(StoreEventKind.REPLICA_DELETED, key, path)
        is_claimed = key in replicas.offline
    if is_claimed:  # another live copy has the same name, and may be deleted, too
        decide_again(state, [key])
    else:
        replicas.purge(doomed)
    _note_elsewhere(replicas, path)


def _note_elsewhere(replicas: Replicas, path: str) -> None:
    """Write a deletion to the catalogs of other log dirs, because the replica's disk may fail.

    Old copies are left out, because the catalog of an old copy is no longer used when the current
    disk is mounted.
    """
    from logstore.store.dirs.old_copies import WITNESSES

    others = [d for d in replicas.log_dirs if d.path != path and not d.is_outdated]
    replicas.catalog.write_at_once(others, WITNESSES)


@uninterruptible
def promote(state: OwnerState, topic: str, partition: int) -> bool:
    """Implement `LogStore.promote`."""
    from logstore.store.upkeep import promotion

    key = partition_named(topic, partition)
    with _deciding_if_accepted(state):
        return promotion.promote(state.replicas, state.environment, key)


@uninterruptible
def repair(state: OwnerState, topic: str, partition: int) -> RepairReport:
    """Implement `LogStore.repair`."""
    return state.replicas.lookup(topic, partition).log.repair()
