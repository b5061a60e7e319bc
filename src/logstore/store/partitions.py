"""Create, delete, promote and repair the partitions of a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from logstore.arguments import flag, instance, known_as, text, whole, wrong
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
from logstore.store.administration import StoreAdministration, StrPath

if TYPE_CHECKING:
    from logstore.log.recovery.repair import RepairReport


@known_as("LogStore")
class StorePartitions(StoreAdministration):
    """The part of a store that changes the set of its partitions."""

    @uninterruptible
    def create(
        self,
        topic: str,
        partition: int,
        *,
        log_dir: StrPath | None = None,
        config: LogConfig | None = None,
        is_new: bool = False,
        exist_ok: bool = False,
        topic_id: bytes | str | None = None,
    ) -> Log:
        """Create a partition, on the disk with the most space unless `log_dir` is given.

        Args:
            config: stored with the partition; the store's `log_config` if None.
            is_new: the partition is known not to exist, so it is created even while a log dir that
                might hold it is offline (KIP-112).
            exist_ok: give the log that is there, wherever it is; a `config` and a `topic_id` have
                to equal its own.
            topic_id: 16 bytes as in `Log.topic_id`, or text: 32 hex digits, or 22 characters as
                Kafka writes it. Partitions of one topic may share it. A random one if None.

        Raises:
            ValueError: the topic id is wrong, or a partition of another topic has it.
            PartitionExistsError: it is there already, or has another configuration.
            LogDirOfflineError: it may be on a log dir that is offline, or no log dir works.
            LogDirFullError: every disk is full.
        """
        from logstore.store import creation
        from logstore.store.upkeep.events import StoreEventKind

        self._check_owner()
        key = TopicPartition(validate_topic(topic), validate_partition(partition))
        settings = self.config.log_config if config is None else config
        instance(settings, LogConfig, "config")
        if flag(exist_ok, "exist_ok") & flag(is_new, "is_new"):
            raise ValueError("is_new says that no such partition exists, exist_ok that it may")
        own_id = None if topic_id is None else topic_id_of(topic_id)
        chosen = None if log_dir is None else self._dir_named(log_dir)
        if exist_ok and key in self._replicas.offline:
            self._replicas.lookup(*key)  # opens it if that is possible now
        with self._replicas.reserved(key):
            self._check()
            log = creation.existing(self._replicas, key, config, own_id) if exist_ok else None
            if log is not None:
                return log
            creation.check_absent(self._replicas, key, is_new=is_new)
            with creation.claimed(self._replicas, key, own_id) as chosen_id:
                log = creation.create(
                    self._replicas, self._environment, key, settings, chosen, chosen_id
                )
            self._events.of_replica(StoreEventKind.REPLICA_CREATED, key, log.log_dir)
            return log

    @uninterruptible
    def create_topic(
        self,
        topic: str,
        partitions: int,
        *,
        config: LogConfig | None = None,
        exist_ok: bool = False,
    ) -> list[Log]:
        """Create partitions 0 to `partitions` - 1 of a topic, each placed as `create` places it.

        They share their syncs, many are created much faster than one by one. All are durable on
        return. Each is created or not, also after a crash; an error in between leaves those before
        it, and `exist_ok=True` continues later.

        Args:
            partitions: how many, at least 1.
            config: stored with each new partition; the store's `log_config` if None.
            exist_ok: give the logs of those that are there, wherever they are, and create the
                others; a `config` has to equal that of each.

        Returns:
            The logs, in order of their partition.

        Raises:
            PartitionExistsError: one is there already, or has another configuration; nothing was
                created.
            LogDirOfflineError: one may be on a log dir that is offline, or no log dir works.
            LogDirFullError: every disk is full.
        """
        from logstore.store import creation
        from logstore.store.topics.topic_creation import create_all, reserved

        self._check_owner()
        count = whole(partitions, "partitions", 1)
        last = TopicPartition(validate_topic(topic), validate_partition(count - 1))
        settings = self.config.log_config if config is None else config
        instance(settings, LogConfig, "config")
        flag(exist_ok, "exist_ok")
        keys = [TopicPartition(last.topic, number) for number in range(count)]
        for key in keys if exist_ok else ():
            if key in self._replicas.offline:
                self._replicas.lookup(*key)  # opens it if it can be opened by now
        with reserved(self._replicas, keys):
            self._check()
            logs: dict[TopicPartition, Log] = {}
            for key in keys:
                log = creation.existing(self._replicas, key, config) if exist_ok else None
                if log is None:
                    creation.check_absent(self._replicas, key, is_new=False)
                else:
                    logs[key] = log
            absent = [key for key in keys if key not in logs]
            create_all(self._replicas, self._environment, absent, settings)
            logs |= {key: self._replicas.opened[key].log for key in absent}
        return [logs[key] for key in keys]

    @uninterruptible
    def set_config(self, topic: str, partition: int, changes: Mapping[str, Any]) -> LogConfig:
        """Change the configuration of a partition while it is in use; durable on return.

        The change is all or nothing, also after a crash. The next append sees it, and the next
        check of retention. Appends wait meanwhile for one write to the disk; a batch that was
        encoded before is stored as it is. A change of `record_format` begins a new segment at the
        next append; the records before it keep their layout.

        Args:
            changes: values by key of `LogConfig`, e.g. `{"retention_ms": "7d"}`; sizes in bytes,
                durations in ms, or text with a unit. None resets a key to the store's default
                (`StoreConfig.log_config`); -1 means no limit.

        Returns:
            The new configuration, which `Log.config` gives from now on.

        Raises:
            TypeError: a key is unknown (the error names the nearest one), or a value is of the
                wrong type.
            ValueError: a value is out of range, or two values do not fit together.
            UnknownPartitionError: there is no such partition.
            LogDirFullError: retriable; the old configuration stays in force.
            LogDirSuspectError, LogDirOfflineError, ReplicaOfflineError, ReplicaIncompleteError: as
                an append does.
            UnsupportedFormatError: a library that the new configuration needs is not installed.
        """
        from logstore.log import host

        self._check_owner()
        if not isinstance(changes, Mapping):
            raise wrong("changes", "a mapping of keys to values", changes)
        for name in changes:
            text(name, "a key of changes")
        defaults = self.config.log_config
        log = self.log(topic, partition)
        return host.set_config(log, lambda config: config.with_changes(changes, defaults))

    @uninterruptible
    def delete(self, topic: str, partition: int) -> None:
        """Delete a partition; its files are removed in the background.

        Raises:
            UnknownPartitionError: there is none.
            LogDirOfflineError: its log dir is offline; nothing is deleted.
        """
        from logstore.store import creation
        from logstore.store.dirs import old_copies
        from logstore.store.upkeep.events import StoreEventKind

        self._check_owner()
        key = partition_named(topic, partition)
        if old_copies.is_missing(self._replicas, key):
            with self._replicas.reserved(key):
                if old_copies.give_up(self._replicas, key):
                    self._events.of_replica(StoreEventKind.REPLICA_DELETED, key, None)
                    return
        self._replicas.lookup(topic, partition)
        with self._replicas.reserved_unmoved(key, "the partition is deleted"):
            doomed = creation.delete(self._replicas, key)
            path = doomed[-1].log_dir.path
            self._events.of_replica(StoreEventKind.REPLICA_DELETED, key, path)
        self._replicas.purge(doomed)

    @uninterruptible
    def promote(self, topic: str, partition: int) -> bool:
        """Make an incomplete replica whole, durably; the records that it lacks are given up.

        A replica that is whole already is unchanged, and the result is False.

        Raises:
            UnknownPartitionError, LogDirOfflineError, ReplicaOfflineError: as `log` does.
            LogDirFullError: retriable; it stays incomplete.
        """
        from logstore.store.upkeep.promotion import promote

        self._check_owner()
        return promote(self._replicas, self._environment, partition_named(topic, partition))

    @uninterruptible
    def repair(self, topic: str, partition: int) -> RepairReport:
        """Take damaged bytes out of a log (kept as `*.quarantine`) to make it writable again."""
        self._check_owner()
        return self.log(topic, partition).repair()
