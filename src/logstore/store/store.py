"""Define `LogStore`, the public class for a store of partitions on several log dirs.

The fields of a store are in its state (`store/state`). The methods of `LogStore` call other modules
of `store`. Code that changes a store takes an `OwnerState`; a view has no `OwnerState`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from logstore.arguments import StrPath, callback, flag, function, instance
from logstore.config import LogConfig, StoreConfig
from logstore.log.environment import Clock, check_clock
from logstore.log.log import Log
from logstore.names import TopicPartition
from logstore.store.dirs import dir_changes
from logstore.store.reader import StoreReader
from logstore.store.topics import partition_changes

# Functions that open or close a store import the modules that only they need.
# So `import logstore` stays cheap.
if TYPE_CHECKING:
    from logstore.log.recovery.repair import RepairReport
    from logstore.store.dirs.dir_failures import FailureCallback
    from logstore.store.recovery_report import RecoveryProgress, RecoveryReport
    from logstore.store.state import OwnerState
    from logstore.store.upkeep.events import StoreEvent
    from logstore.store.view import StoreView


class LogStore(StoreReader):
    """A store of partitions over several log dirs, normally one log dir on each disk.

    The class is thread-safe. In a forked child, every call raises LogClosedError.

    If a store is dropped without a close, a ResourceWarning is given and its log dirs are unlocked.
    The next open recovers the store. A log in use keeps its store open. If the process ends with an
    open store, the warning is given only if Python drops the store. `-X dev` shows warnings.

    Attributes:
        admin: the commands for other processes, served through the admin socket.
    """

    @classmethod
    def open(
        cls,
        log_dirs: StrPath | Iterable[StrPath],
        *,
        config: StoreConfig | None = None,
        read_only: bool = False,
        format_new: bool = False,
        admin_socket: bool = True,
        on_log_dir_failure: FailureCallback | None = None,
        progress: Callable[[RecoveryProgress], None] | None = None,
        clock: Clock | None = None,
    ) -> LogStore:
        """Open a store; if there is none yet, make a new store.

        Args:
            log_dirs: a path, or a list of paths: one directory per disk. If the store is new, the
                directories are created.
            read_only: open a store only for reading. Nothing is locked or written.
            format_new: add unformatted directories to an existing store.
            admin_socket: whether to serve the command line through a socket.
            on_log_dir_failure: a function that is called once for each log dir that fails, with the
                error (`.path`, `.reason`), in a thread of its own. If the function raises an error,
                the error is logged.
            progress: a function that is called after each recovery of a log.
            clock: an object that gives the time in whole ms; tests replace it.

        Raises:
            LogDirLockedError: another process owns the store.
            LogDirIdentityError: a directory is foreign, missing, swapped or passed twice.
            LogDirOfflineError: no log dir works.
            LogDirError: this process is short of descriptors or memory; the error is retriable.
        """
        config = StoreConfig() if config is None else instance(config, StoreConfig, "config")
        flag(read_only, "read_only")
        flag(format_new, "format_new")
        flag(admin_socket, "admin_socket")
        callback(on_log_dir_failure, "on_log_dir_failure")
        callback(progress, "progress")
        if clock is not None:
            check_clock(clock)
        if read_only and format_new:
            raise ValueError("a store that is opened with read_only=True formats nothing")
        if read_only:
            from logstore.store.view import open_view

            return cls._of_view(open_view(log_dirs, config, clock, on_log_dir_failure))
        from logstore.store.start.opening import open_owned

        return open_owned(
            cls._of_owner,
            log_dirs,
            config,
            format_new=format_new,
            admin_socket=admin_socket,
            on_log_dir_failure=on_log_dir_failure,
            progress=progress,
            clock=clock,
        )

    @classmethod
    def open_kafka(
        cls,
        log_dirs: StrPath | Iterable[StrPath],
        *,
        config: StoreConfig | None = None,
    ) -> LogStore:
        """Read the log dirs of a Kafka broker (0.11 to 4.x), stopped or running, in place.

        Nothing is written or locked. The extra `kafka` is needed. `recovery_report` lists what is
        not read: missing disks, copies of unfinished moves, and deleted replicas.

        Raises:
            LogDirIdentityError: the dirs belong to several brokers, or to no broker.
            LogDirOfflineError: none of the log dirs can be read.
            ImportError: the extra `kafka` is not installed.
        """
        from logstore.store.kafka.broker_view import open_broker_view

        config = StoreConfig() if config is None else instance(config, StoreConfig, "config")
        return cls._of_view(open_broker_view(log_dirs, config))

    @classmethod
    def _of_owner(cls, state: OwnerState) -> Self:
        from logstore.store.dirs.closing import Closing
        from logstore.store.dirs.dropped_store import Dropping, calling_place
        from logstore.store.partitions import Partitions

        store = cls(state, Partitions(state), Closing(state).wait)
        store._dropping = Dropping(state, calling_place())
        return store

    @classmethod
    def _of_view(cls, view: StoreView) -> Self:
        return cls(view.state, view, view.close)

    # --- durability -------------------------------------------------------------------------------

    def flush(self) -> tuple[str, ...]:
        """Make every acknowledged record durable, on all log dirs in parallel.

        If one log dir fails, the other log dirs are still flushed. Returns the log dirs that were
        skipped because they were already offline or SUSPECT.

        Raises:
            LogDirOfflineError: a log dir failed during this call; other log dirs are flushed.
            LogDirSuspectError: a log dir began to hang in this call; other log dirs are flushed.
        """
        from logstore.store.dirs.shutdown import flush_dirs

        return flush_dirs(self._state.owned().replicas)

    # --- partitions -------------------------------------------------------------------------------

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
        """Create a partition in `log_dir`; None means the log dir with the most free space.

        Args:
            config: the partition's configuration. None means the store's `log_config`.
            is_new: the caller knows that the partition does not exist. So the partition is created
                even while a log dir that might have it is offline (KIP-112).
            exist_ok: if the partition exists, return its log, whatever its log dir is. If `config`
                or `topic_id` is not None, it must equal the value of the log.
            topic_id: 16 bytes as in `Log.topic_id`, or text: 32 hex digits, or 22 characters as
                Kafka writes topic ids. Partitions of one topic may share a topic id. None means a
                random topic id.

        Raises:
            ValueError: the topic id is malformed, or a partition of another topic has this id.
            PartitionExistsError: the partition exists. With `exist_ok`: the partition exists with
                another configuration or topic id.
            LogDirOfflineError: the partition may be on an offline log dir, or no log dir works.
            LogDirFullError: every disk is full.
        """
        return partition_changes.create(
            self._state.owned(),
            topic,
            partition,
            log_dir=log_dir,
            config=config,
            is_new=is_new,
            exist_ok=exist_ok,
            topic_id=topic_id,
        )

    def create_topic(
        self,
        topic: str,
        partitions: int,
        *,
        config: LogConfig | None = None,
        is_new: bool = False,
        exist_ok: bool = False,
        topic_id: bytes | str | None = None,
    ) -> list[Log]:
        """Create partitions 0 to `partitions` - 1 of a topic, each placed as `create` places it.

        This is much faster than one call of `create` for each partition, because the partitions
        share their syncs. On return, all partitions are durable. After a crash, each partition
        exists whole or not at all. After an error, the created partitions stay; a call with
        `exist_ok=True` creates the others. Returns the logs by partition number.

        Args:
            partitions: the number of partitions, at least 1.
            config: the new partitions' configuration. None means the store's `log_config`.
            is_new: the caller knows that none of the partitions exists, as in `create`.
            exist_ok: return the logs of existing partitions, whatever their log dirs are, and
                create missing partitions. Existing partitions must have `config` and `topic_id`,
                unless these are None.
            topic_id: the topic id of all partitions, as in `create`. If None, each id is random.

        Raises:
            PartitionExistsError: a partition exists. With `exist_ok`: a partition exists with
                another configuration. Nothing was created.
            LogDirOfflineError: a partition may be on an offline log dir, or no log dir works.
            LogDirFullError: every disk is full.
        """
        return partition_changes.create_topic(
            self._state.owned(),
            topic,
            partitions,
            config=config,
            is_new=is_new,
            exist_ok=exist_ok,
            topic_id=topic_id,
        )

    def set_config(self, topic: str, partition: int, changes: Mapping[str, Any]) -> LogConfig:
        """Change a partition's configuration during use; the change is durable on return.

        Returns the new configuration. Either all keys change or none, even after a crash. The next
        append and the next check of retention use the new configuration. During the change, appends
        wait for one write to the disk. If a batch was encoded before the change, it is stored
        unchanged. After a change of `record_format`, the next append begins a new segment; earlier
        records keep their layout.

        Args:
            changes: new values by key of `LogConfig`, e.g. `{"retention_ms": "7d"}`. Sizes are in
                bytes and durations in ms, or text with a unit. None resets a key to the store's
                default (`StoreConfig.log_config`); -1 means no limit.

        Raises:
            TypeError: a key is unknown (the error names the nearest one), or a value is of the
                wrong type.
            ValueError: a value is out of range, or two values do not fit together.
            UnknownPartitionError: there is no such partition.
            LogDirFullError: the disk is full, and the old configuration stays valid; try again.
            LogDirSuspectError, LogDirOfflineError, ReplicaOfflineError, ReplicaIncompleteError: as
                in `Log.append`.
            UnsupportedFormatError: a library that the new configuration needs is not installed.
        """
        return partition_changes.set_config(self._state.owned(), topic, partition, changes)

    def delete(self, topic: str, partition: int) -> None:
        """Delete a partition; its files are removed in the background.

        Raises:
            UnknownPartitionError: there is no such partition.
            LogDirOfflineError: the log dir of the partition is offline; nothing is deleted.
        """
        partition_changes.delete(self._state.owned(), topic, partition)

    def promote(self, topic: str, partition: int) -> bool:
        """Accept an incomplete replica as complete, durably; its missing records are lost.

        If the replica is complete, nothing is changed, and the result is False.

        Raises:
            UnknownPartitionError, LogDirOfflineError, ReplicaOfflineError: as in `log`.
            LogDirFullError: the disk is full; the replica stays incomplete; try again.
        """
        return partition_changes.promote(self._state.owned(), topic, partition)

    def repair(self, topic: str, partition: int) -> RepairReport:
        """Move damaged bytes of a log to a `*.quarantine` file; then the log is writable again."""
        return partition_changes.repair(self._state.owned(), topic, partition)

    # --- log dirs ---------------------------------------------------------------------------------

    def add_dir(self, path: StrPath, *, format_new: bool = True) -> RecoveryReport:
        """Add a new log dir to the store, or bring back a missing log dir of the store.

        Args:
            format_new: whether a directory without an identity gets one. If False, it is refused.

        Raises:
            LogDirIdentityError: the directory belongs to another store, or is already a log dir of
                this store. This error is also raised if the directory has no identity, and
                /etc/fstab lists an unmounted disk for it.
            LogDirLockedError: another process has the log dir open.
            LogDirOfflineError: the disk failed during the call; the store is unchanged.
            LogDirError: the process is short of descriptors or memory; the error is retriable.
        """
        return dir_changes.add(self._state.owned(), path, format_new=format_new)

    def reopen_dir(self, path: StrPath, *, format_new: bool = False) -> RecoveryReport:
        """Bring an offline log dir back, with its replicas, while the other log dirs work.

        Args:
            format_new: the disk was replaced by an empty disk, which becomes this log dir. The
                replicas of the old disk are lost, unless another log dir has them. The report lists
                the lost replicas in `lost`.

        Raises:
            LogDirIdentityError: the directory at `path` is not this log dir.
            LogDirOfflineError: the log dir does not work yet.
            DuplicateLogError: a copy in the returning log dir outranks an open replica. All other
                replicas are open.
        """
        return dir_changes.reopen(self._state.owned(), path, format_new=format_new)

    def take_offline(self, path: StrPath) -> None:
        """Flush a log dir and release it, so that its disk can be unmounted; see `reopen_dir`."""
        dir_changes.take_offline(self._state.owned(), path)

    def remove_dir(self, path: StrPath, *, lost: bool = False) -> tuple[TopicPartition, ...]:
        """Remove a log dir from the store, durably; return the replicas that are lost.

        If a move has copied a part of a lost replica, this part becomes an incomplete replica.

        Args:
            path: the path of the log dir; for a missing log dir, its last path or its directory id.
            lost: the disk is lost for good, with everything on it (KIP-112, scenario 4). If False,
                the log dir must contain nothing that is still needed.

        Raises:
            LogDirError: the log dir contains replicas, or deletions that other log dirs have not
                recorded yet; or it serves, although `lost` is True; or it is the only log dir of
                the store; or it is missing, and `path` does not identify it.
        """
        return dir_changes.remove(self._state.owned(), path, lost=lost)

    def cordon(self, path: StrPath) -> None:
        """Place no new replicas on a log dir until `uncordon` is called, even after restarts."""
        dir_changes.cordon(self._state.owned(), path, True)

    def uncordon(self, path: StrPath) -> None:
        """Allow new replicas on a log dir again."""
        dir_changes.cordon(self._state.owned(), path, False)

    def prefer_dir(self, topic: str, partition: int, path: StrPath | None) -> None:
        """Durably choose the log dir for a partition that is created later (KIP-113).

        Args:
            path: the path of the log dir; None withdraws the last preference.

        Raises:
            PartitionExistsError: the partition exists already. LogDirError: too many preferences.
        """
        dir_changes.prefer(self._state.owned(), topic, partition, path)

    # --- listeners --------------------------------------------------------------------------------

    def add_listener(self, listener: Callable[[StoreEvent], object]) -> None:
        """Call a function for each later event of the store about log dirs or whole replicas.

        Each listener is called in a thread of its own, once for each event, in order. The function
        may block: the queue of events has no bound, and no event is lost. If the function raises an
        error, the error is logged. Events before this call are not reported: call `describe_dirs`
        after this call. A close waits up to 5 s, or its timeout, for the last events. Adding a
        listener twice has the same effect as adding it once.

        Raises:
            LogDirError: the process cannot start another thread; the error is retriable.
        """
        function(listener, "listener")
        self._state.owned().events.add(listener, self.log_dirs[0])

    def remove_listener(self, listener: Callable[[StoreEvent], object]) -> None:
        """Stop calling a listener, even for queued events; a second call does nothing.

        If a call of the listener is running, it continues to its end.
        """
        function(listener, "listener")
        self._state.events.remove(listener)

    def on_close(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a function once before the store closes its logs; the newest function runs first.

        The store is still open during the call of the function, and `close` waits until the
        function returns. If the function raises an error, the error is logged, and the close
        continues. If the store is dropped without a close, the function is not called. Returns a
        function that withdraws the callback; calling that function twice is harmless.
        """
        function(callback, "callback")
        return self._state.owned().host.on_close(callback)
