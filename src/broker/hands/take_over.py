"""Take over the log dirs of a stopped Kafka broker in place.

The store is built in `.logstore.new` of each log dir, from hard links to Kafka's segments. Until
the store is durable, Kafka's files do not change. Then the files of Kafka and of the store change
places (`file_swap`). In the last step, the directories of the partitions that were taken over are
removed.
"""

from __future__ import annotations

import base64
import binascii
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from broker.catalog import producer_ids
from broker.hands import file_swap, rights
from broker.hands.stages import ChangeOfHandsError, Stage, stage_of_take_over
from broker.hands.survey import FoundLog, Survey, refusal_of, survey
from logstore import Log, LogConfig, LogStore, StoreConfig, TopicPartition
from logstore.disk import files
from logstore.disk.dir_lock import KafkaLock
from logstore.disk.documents.meta_properties import FILE_NAME, MetaProperties, encode_meta, new_id
from logstore.store.kafka.adoption import Adopted, Place, adopt
from logstore.store.kafka.hands import BUILDING, STORE_NEW, Change, write_change

# Kafka's producer ids begin at 0.
# The store's producer ids begin far above Kafka's producer ids.
# After each take-over, the store's producer ids begin at another number.
# So no new producer gets an id that the logs already have.
PRODUCER_IDS_FROM = 2**61
PRODUCER_IDS_PER_MS = 2**18
MS_MAX = 2**42
# While the log dirs change hands, nothing is compacted or deleted.
QUIET = StoreConfig(log_cleaner_enable=False, log_retention_check_interval_ms=2**31)

Show = Callable[[int, int], object]  # the number of partitions that are done, and of all partitions


class TakenOver(NamedTuple):
    """The result of a take-over.

    Attributes:
        is_new: whether this call has taken the log dirs over; False if an earlier call did this.
    """

    is_new: bool
    partition_count: int
    warnings: Sequence[str]


def take_over(
    paths: Sequence[str],
    defaults: LogConfig,
    metadata_dir: str | None = None,
    show: Show = lambda done, total: None,
) -> TakenOver:
    """Take over all log dirs of a broker. After a crash, call again with the same log dirs.

    Args:
        defaults: the configuration of topics that have no settings.
        metadata_dir: the directory with the metadata log of the cluster, if it is not a log dir.
        show: this function is called after each partition.

    Raises:
        ChangeOfHandsError: the log dirs cannot be taken over, or a log is damaged. Nothing was
            changed.
        LogDirLockedError: a Kafka broker runs on a log dir.
        LogStoreError: the format of a log cannot be read. Nothing was changed.
        OSError: a disk failed. Call again.
    """
    paths = checked(paths)
    with file_swap.locked(paths) as locks:
        changes = file_swap.changes_of(paths)
        stage = stage_of_take_over(changes)
        if stage is Stage.DONE:
            for path in paths:
                file_swap.purge_kept(path)
            known = next(change for change in changes.values() if change is not None)
            return TakenOver(False, len(known.partitions), ())
        for lock in locks.values():
            lock.keep_stores_out()
        warnings: Sequence[str] = ()
        if stage is Stage.BUILD:
            found = survey(paths, defaults, metadata_dir)
            if found.problems:
                raise ChangeOfHandsError(reason="; ".join(found.problems))
            _build(paths, found, show)
            warnings = found.warnings
        file_swap.finish_take_over(locks)
        for path in paths:
            file_swap.purge_kept(path)
    change = file_swap.changes_of(paths)[paths[0]]
    assert change is not None
    return TakenOver(True, len(change.partitions), warnings)


def checked(paths: Sequence[str]) -> list[str]:
    """Check that the paths can be the log dirs of one broker; return their real paths.

    Raises:
        ChangeOfHandsError: a path is named twice, or is not a directory.
    """
    paths = [files.real_path(path) for path in paths]
    if len(set(paths)) < len(paths):
        raise ChangeOfHandsError(reason="a log dir is named twice")
    for path in paths:
        if not files.exists(path):
            raise ChangeOfHandsError(reason=f"{path}: there is no such directory")
    return paths


def check_not_running(paths: Sequence[str]) -> None:
    """Check that no Kafka broker runs on log dirs. Change nothing.

    Raises:
        LogDirLockedError: a Kafka broker runs on a log dir.
    """
    for path in paths:
        if files.exists(os.path.join(path, ".lock")):
            lock = KafkaLock(path)
            lock.acquire()
            lock.release()


def _build(paths: Sequence[str], found: Survey, show: Show) -> None:
    """Build the store durably. If this fails, remove the new files."""
    for path in paths:
        file_swap.discard(path, STORE_NEW)
    _begin(paths, found)
    try:
        targets = {path: os.path.join(path, STORE_NEW) for path in paths}
        _write_identities(targets, found)
        _adopt_all(targets, found, show)
        for path, target in targets.items():
            rights.give_tree(target, path)
    except BaseException as error:
        if isinstance(error, Exception):  # after Ctrl-C, the next take-over removes the files
            for path in paths:
                file_swap.discard(path, STORE_NEW)
                file_swap.forget(path)
        raise


def _begin(paths: Sequence[str], found: Survey) -> None:
    change_id, members = new_id(), tuple(new_id() for _ in paths)
    for path, member in zip(paths, members, strict=True):
        write_change(
            path,
            Change(
                BUILDING, change_id, member, members, found.cluster_id, found.node_id, found.known
            ),
        )


def _write_identities(targets: Mapping[str, str], found: Survey) -> None:
    """Give the new store the ids of Kafka's log dirs, if the ids have the right form."""
    cluster_id, roster = _hex_id(found.cluster_id), tuple(new_id() for _ in targets)
    for target, directory_id in zip(targets.values(), roster, strict=True):
        files.make_dir(target)
        meta = MetaProperties(cluster_id, int(found.node_id), directory_id, 1, roster, False)
        files.write_new(os.path.join(target, FILE_NAME), encode_meta(meta))
        files.sync_dir(target)


def _hex_id(text: str) -> str:
    """Convert an id of 22 characters to 32 hex digits. For any other text, make a new id."""
    try:
        data = base64.b64decode(text + "==", b"-_", validate=True)
    except (binascii.Error, ValueError):
        data = b""
    return data.hex() if len(data) == len(bytes(16)) else new_id()


def _adopt_all(targets: Mapping[str, str], found: Survey, show: Show) -> None:
    """Adopt each partition in its own log dir.

    Raises:
        ChangeOfHandsError: logs are damaged.
    """
    damage: list[str] = []
    # Before Kafka 2.8, topics had no ids.
    ids = {key.topic: os.urandom(16) for key in found.logs if not any(found.known[key])}
    with (
        LogStore.open_kafka(list(targets)) as source,
        LogStore.open(list(targets.values()), config=QUIET, admin_socket=False) as store,
    ):
        first = PRODUCER_IDS_FROM + int(time.time() * 1000) % MS_MAX * PRODUCER_IDS_PER_MS
        for target in targets.values():
            store.facts(target)[producer_ids.FACT] = first
        for number, (key, log) in enumerate(sorted(found.logs.items())):
            topic_id = ids.get(key.topic, found.known[key])
            config = found.configs[key.topic]
            place = Place(targets[log.log_dir], config, topic_id, links_all=True)
            end = source.log(*key).log_end_offset
            adopted = adopt(store, source, key, lambda done: None, place)
            damage += _damage_of(store.log(*key), log, adopted, end)
            show(number + 1, len(found.logs))
    if damage:
        raise ChangeOfHandsError(reason="; ".join(refusal_of(damage)))


def _damage_of(log: Log, found: FoundLog, adopted: Adopted, end: int) -> list[str]:
    """Describe the damage that was found when all batches of a log were read.

    Args:
        end: the log end offset of Kafka's files.
    """
    key = TopicPartition(log.topic, log.partition)
    damage = [
        # Name the file by its path in Kafka's log dir, which the user knows.
        f"{key}: {one._replace(path=os.path.join(found.log_dir, *one.path.split(os.sep)[-2:]))}"
        for one in log.recovery.problems
    ]
    if not damage and (adopted.log_end_offset != end or log.recovery.cut_bytes):
        ends = f"offset {end}, but its whole batches end before offset {adopted.log_end_offset}"
        damage = [f"{key}: the log in {found.log_dir} reaches {ends}"]
    return damage
