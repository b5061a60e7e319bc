"""Hand log dirs back to the Kafka broker from which they were taken over.

Kafka's directories are built in `.kafka.new` of each log dir, from hard links to the segments of
the store. Until these directories are durable, the store does not change. Then the files of the
store and of Kafka change places (`file_swap`). In the last step, the store's files are removed.

Kafka makes the indexes and the lists of aborted transactions again when it starts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from broker.hands import file_swap, kafka_files, rights
from broker.hands.stages import ChangeOfHandsError, Stage, stage_of_hand_back
from broker.hands.survey import NAMES_MAX
from broker.hands.take_over import QUIET, Show, checked
from logstore import Log, LogStore, LogStoreError, TopicPartition
from logstore.disk import files
from logstore.log import host
from logstore.log.recovery.foreseen import problems_of
from logstore.names import NAME_BYTES_MAX
from logstore.store.kafka.broker_listing import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    START_OFFSETS,
)
from logstore.store.kafka.export import export_linked
from logstore.store.kafka.hands import (
    KAFKA_NEW,
    KEPT,
    OWNED,
    RETURNING,
    STORE_NEW,
    Change,
    write_change,
)


class HandedBack(NamedTuple):
    """The result of a hand-back.

    Attributes:
        created: partitions that Kafka does not know. Kafka gets their directories, but has no topic
            for them.
        deleted: partitions that Kafka knows, and that were deleted after the take-over.
        left: paths that belong neither to Kafka nor to the store, and stay in the log dirs.
        is_undone: whether only an interrupted take-over was undone.
    """

    partition_count: int
    created: Sequence[TopicPartition]
    deleted: Sequence[TopicPartition]
    left: Sequence[str] = ()
    is_undone: bool = False


def hand_back(paths: Sequence[str], show: Show = lambda done, total: None) -> HandedBack:
    """Hand all log dirs of a broker back. After a crash, call again with the same log dirs.

    Raises:
        ChangeOfHandsError: the log dirs cannot be handed back. Nothing was changed.
        LogDirLockedError: another process has a log dir open.
        LogStoreError: a log cannot be read. Nothing was changed.
        OSError: a disk failed. Call again.
    """
    paths = checked(paths)
    with file_swap.locked(paths) as locks:
        changes = file_swap.changes_of(paths)
        stage = stage_of_hand_back(changes)
        result = _recorded(changes)
        if stage is Stage.UNDO:
            for path in paths:
                file_swap.discard(path, STORE_NEW)
                file_swap.forget(path)
            return HandedBack(0, (), (), is_undone=True)
        if stage is Stage.BUILD:
            # Refuse a damaged store before `_build` opens it, because the opening repairs damage.
            known = next(one for one in changes.values() if one is not None)
            for lock in locks.values():
                lock.keep_stores_out()
            _foresee(paths, known)
            for lock in locks.values():
                lock.let_stores_in()
            result = _build(paths, known, show)
        for lock in locks.values():
            lock.keep_stores_out()
        recorded = {what: getattr(result, what) for what in ("created", "deleted", "left")}
        file_swap.finish_hand_back(paths, recorded)
    return result


def foresee(paths: Sequence[str]) -> HandedBack:
    """Find out what a hand-back would do. Change nothing.

    Raises:
        ChangeOfHandsError: the log dirs cannot be handed back.
        LogDirLockedError: another process has a log dir open.
        LogStoreError: the store cannot be read.
        OSError: a disk failed.
    """
    paths = checked(paths)
    changes = file_swap.changes_of(paths)
    stage = stage_of_hand_back(changes)
    if stage is Stage.UNDO:
        return HandedBack(0, (), (), is_undone=True)
    if stage is Stage.CONTINUE:
        return _recorded(changes)
    with file_swap.locked(paths) as locks:
        for lock in locks.values():
            lock.keep_stores_out()
        return _foresee(paths, next(one for one in changes.values() if one is not None))


def _recorded(changes: Mapping[str, Change | None]) -> HandedBack:
    """Return the result of an interrupted hand-back, if the hand-back has recorded a result."""
    for one in changes.values():
        if one is not None and one.step not in OWNED:
            count = len(one.partitions) - len(one.deleted)
            return HandedBack(count, one.created, one.deleted, one.left)
    return HandedBack(0, (), ())


def _foresee(paths: Sequence[str], known: Change) -> HandedBack:
    """Check the store without changing it; return what would be handed back."""
    with LogStore.open(list(paths), read_only=True) as store:
        _check(store, paths)
        return _result(store, known, paths)


def _result(store: LogStore, known: Change, paths: Sequence[str]) -> HandedBack:
    created = tuple(key for key in sorted(store) if not _is_known(store.log(*key), known))
    kept = set(store) - set(created)
    deleted = tuple(sorted(known.partitions.keys() - kept))
    left = (os.path.join(path, name) for path in paths for name in file_swap.foreign_to(path))
    return HandedBack(len(kept), created, deleted, tuple(left))


def _is_known(log: Log, known: Change) -> bool:
    """Check whether Kafka knows a partition. Before Kafka 2.8, topics had no ids."""
    topic_id = known.partitions.get(TopicPartition(log.topic, log.partition))
    return topic_id is not None and topic_id in (log.topic_id, bytes(16))


def _build(paths: Sequence[str], known: Change, show: Show) -> HandedBack:
    """Build Kafka's directories durably; then close the store cleanly."""
    for path in paths:
        file_swap.discard(path, KAFKA_NEW)
        file_swap.purge_kept(path)
    with LogStore.open(list(paths), config=QUIET, admin_socket=False) as store:
        _check(store, paths)
        store.flush()
        for path, change in file_swap.changes_of(list(paths)).items():
            assert change is not None
            write_change(path, change._replace(step=RETURNING))
            files.make_dir(os.path.join(path, KAFKA_NEW))
        result = _result(store, known, paths)
        offsets: dict[str, dict[TopicPartition, tuple[int, int]]] = {path: {} for path in paths}
        for number, key in enumerate(sorted(store)):
            log = store.log(*key)
            path = host.log_dir_of(log).path
            start = _write_log(log, os.path.join(path, KAFKA_NEW), known)
            if _is_known(log, known):
                offsets[path][key] = start, log.log_end_offset
            show(number + 1, len(store))
        for path, rows in offsets.items():
            _write_checkpoints(os.path.join(path, KAFKA_NEW), rows)
            rights.give_tree(os.path.join(path, KAFKA_NEW), path)
    return result


def _check(store: LogStore, paths: Sequence[str]) -> None:
    """Refuse a store if one of its log dirs or logs cannot be used, or is damaged.

    Raises:
        ChangeOfHandsError: the store cannot be handed back.
        OSError: a disk failed.
    """
    replicas = store.host.replicas
    away = [str(key) for key in [*replicas.offline, *replicas.incomplete, *replicas.absent()]]
    away += [one.path for one in store.host.log_dirs if one.is_offline]
    damaged: list[str] = []
    for key in sorted(set(store) - set(replicas.offline)):
        try:
            found = problems_of(store.log(*key))
        except LogStoreError as error:
            away.append(str(error))
        else:
            damaged += [f"{key}: {problem}; {problem.remedy(*key)}" for problem in found]
    if away or len(store.host.log_dirs) != len(paths):
        what = "; ".join(sorted(away)[:NAMES_MAX]) or "a log dir that is not named"
        raise ChangeOfHandsError(reason=f"{what}: does not serve; repair or remove it first")
    if damaged:
        reason = (
            f"{'; '.join(damaged[:NAMES_MAX])}. A hand-back would lose the undamaged records "
            "near the damage: repair the logs first"
        )
        raise ChangeOfHandsError(reason=reason)
    _check_names(paths)


def _check_names(paths: Sequence[str]) -> None:
    """Refuse if a new file has the name of a file that goes back to Kafka."""
    clashing = [
        os.path.join(path, name)
        for path in paths
        for name in file_swap.foreign_to(path)
        if files.exists(os.path.join(path, KEPT, name))
    ]
    if clashing:
        what = ", ".join(clashing[:NAMES_MAX])
        reason = f"{what}: a file with this name goes back to Kafka; move the new file away first"
        raise ChangeOfHandsError(reason=reason)


def _write_log(log: Log, target: str, known: Change) -> int:
    """Write the directory of one partition; return its first offset."""
    name, is_known = f"{log.topic}-{log.partition}", _is_known(log, known)
    if not is_known:
        tail = f"-{log.partition}.{log.topic_id.hex()}-stray"
        name = log.topic[: NAME_BYTES_MAX - len(tail)] + tail
    directory = os.path.join(target, name)
    start = export_linked(log, directory)
    files.write_new(
        os.path.join(directory, "leader-epoch-checkpoint"), kafka_files.epochs_of(log.leader_epochs)
    )
    if not is_known or any(known.partitions[TopicPartition(log.topic, log.partition)]):
        files.write_new(
            os.path.join(directory, "partition.metadata"),
            kafka_files.partition_metadata(log.topic_id),
        )
    files.sync_dir(directory)
    return start


def _write_checkpoints(target: str, rows: dict[TopicPartition, tuple[int, int]]) -> None:
    ends = {key: end for key, (_, end) in rows.items()}
    starts = {key: start for key, (start, _) in rows.items() if start}
    for name, offsets in (
        (RECOVERY_POINTS, ends),
        (HIGH_WATERMARKS, ends),
        (START_OFFSETS, starts),
    ):
        files.write_new(os.path.join(target, name), kafka_files.checkpoint_of(offsets))
    files.sync_dir(target)
