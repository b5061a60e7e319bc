"""Offer a store of partitions over several log dirs: `LogStore`, the public face.

A store's fields are in its state (`store/state`), the work is in the parts. What changes a store
takes an `OwnerState`; `StoreState.owned` refuses that to a view.
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
from logstore.store.partitions import Partitions
from logstore.store.reader import StoreReader
from logstore.store.state import OwnerState
from logstore.store.topics import partition_changes

# Modules that only opening and closing need are imported there, so that `import logstore` stays
# cheap.
if TYPE_CHECKING:
    from logstore.log.recovery.repair import RepairReport
    from logstore.store.dirs.dir_failures import FailureCallback
    from logstore.store.recovery_report import RecoveryProgress, RecoveryReport
    from logstore.store.upkeep.events import StoreEvent
    from logstore.store.view import StoreView


class LogStore(StoreReader):
    """Partition logs over several log dirs, each on its own disk.

    Thread-safe. Not usable in a forked child: every call there raises LogClosedError.

    A store that is dropped without a close gives a ResourceWarning and unlocks its log dirs; the
    next open recovers it. A log in use keeps its store open. A store that is open when the process
    ends gives the warning too, if Python still drops it; see `-X dev`.

    Attributes:
        admin: the commands for callers outside, served through its socket.
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
        """Open a store, or make a new one if there is none yet.

        Args:
            log_dirs: a path, or a list of paths: one directory per disk; made if the store is new.
            read_only: read a store that another process may own; nothing is locked or written.
            format_new: take unformatted directories into a store that exists.
            admin_socket: serve the command line through a socket.
            on_log_dir_failure: called once for each log dir that fails, with its error (`.path`,
                `.reason`), in a thread of its own; an exception of it is logged.
            progress: called after each log that was recovered.
            clock: gives the time in whole ms, for tests.

        Raises:
            LogDirLockedError: another process owns it.
            LogDirIdentityError: a directory is foreign, missing, swapped or named twice.
            LogDirOfflineError: no log dir works.
            LogDirError: retriable; this process is short of descriptors or memory.
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

        Nothing is written or locked; the extra `kafka` is needed. `recovery_report` says what is
        not read (copies of unfinished moves, deleted replicas) and which disks are missing.

        Raises:
            LogDirIdentityError: the dirs belong to several brokers, or to none.
            LogDirOfflineError: none of them can be read.
            ImportError: the extra is not installed.
        """
        from logstore.store.kafka.broker_view import open_broker_view

        config = StoreConfig() if config is None else instance(config, StoreConfig, "config")
        return cls._of_view(open_broker_view(log_dirs, config))

    @classmethod
    def _of_owner(cls, state: OwnerState) -> Self:
        from logstore.store.dirs.closing import Closing
        from logstore.store.dirs.dropped_store import Dropping, calling_place

        store = cls(state, Partitions(state), Closing(state).wait)
        store._dropping = Dropping(state, calling_place())
        return store

    @classmethod
    def _of_view(cls, view: StoreView) -> Self:
        return cls(view.state, view, view.close)

    # --- durability -------------------------------------------------------------------------------

    def flush(self) -> tuple[str, ...]:
        """Make every acknowledged record durable, all log dirs at once.

        A log dir that fails does not stop the others. Returns the log dirs that were offline or
        SUSPECT already and were skipped.

        Raises:
            LogDirOfflineError: a log dir failed during this call; the others are flushed.
            LogDirSuspectError: a log dir began to hang during this call; the others are flushed.
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
        return partition_changes.create_topic(
            self._state.owned(), topic, partitions, config=config, exist_ok=exist_ok
        )

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
        return partition_changes.set_config(self._state.owned(), topic, partition, changes)

    def delete(self, topic: str, partition: int) -> None:
        """Delete a partition; its files are removed in the background.

        Raises:
            UnknownPartitionError: there is none.
            LogDirOfflineError: its log dir is offline; nothing is deleted.
        """
        partition_changes.delete(self._state.owned(), topic, partition)

    def promote(self, topic: str, partition: int) -> bool:
        """Make an incomplete replica whole, durably; the records that it lacks are given up.

        A replica that is whole already is unchanged, and the result is False.

        Raises:
            UnknownPartitionError, LogDirOfflineError, ReplicaOfflineError: as `log` does.
            LogDirFullError: retriable; it stays incomplete.
        """
        return partition_changes.promote(self._state.owned(), topic, partition)

    def repair(self, topic: str, partition: int) -> RepairReport:
        """Take damaged bytes out of a log (kept as `*.quarantine`) to make it writable again."""
        return partition_changes.repair(self._state.owned(), topic, partition)

    # --- log dirs ---------------------------------------------------------------------------------

    def add_dir(self, path: StrPath, *, format_new: bool = True) -> RecoveryReport:
        """Take a further log dir into the store, or one of its own that was missing.

        Args:
            format_new: give an identity to a directory without one; with False it is refused.

        Raises:
            LogDirIdentityError: it is foreign, the same as another one, or new although a disk that
                /etc/fstab names is not mounted.
            LogDirLockedError: another process has it open.
            LogDirOfflineError: its disk failed on the way; the store is unchanged.
            LogDirError: retriable: this process is short of descriptors or memory.
        """
        return dir_changes.add(self._state.owned(), path, format_new=format_new)

    def reopen_dir(self, path: StrPath, *, format_new: bool = False) -> RecoveryReport:
        """Bring an offline log dir back, with its replicas, while the others serve.

        Args:
            format_new: the disk was replaced by an empty one, which takes its place. What the old
                disk held is lost, unless it is elsewhere; `lost` of the report names it.

        Raises:
            LogDirIdentityError: the directory there is not this log dir.
            LogDirOfflineError: it does not work yet.
            DuplicateLogError: a copy that comes back outranks an open one; everything else serves.
        """
        return dir_changes.reopen(self._state.owned(), path, format_new=format_new)

    def take_offline(self, path: StrPath) -> None:
        """Flush a log dir and release it, so that its disk can be unmounted; see `reopen_dir`."""
        dir_changes.take_offline(self._state.owned(), path)

    def remove_dir(self, path: StrPath, *, lost: bool = False) -> tuple[TopicPartition, ...]:
        """Take a log dir out of the store, durably; returns the replicas that are lost with it.

        Args:
            path: of the log dir; for a missing log dir, its last path or its directory id.
            lost: its disk is gone for good, with everything on it (KIP-112, scenario 4). Otherwise
                it must hold nothing that is still needed.

        Raises:
            LogDirError: it holds replicas, or deletions that other dirs have not learned yet; or it
                serves although `lost` is given; or it is the only log dir; or it is missing, and
                its path does not identify it.
        """
        return dir_changes.remove(self._state.owned(), path, lost=lost)

    def cordon(self, path: StrPath) -> None:
        """Place no new replicas on a log dir until `uncordon`, also after restarts."""
        dir_changes.cordon(self._state.owned(), path, True)

    def uncordon(self, path: StrPath) -> None:
        """Allow new replicas on a log dir again."""
        dir_changes.cordon(self._state.owned(), path, False)

    def prefer_dir(self, topic: str, partition: int, path: StrPath | None) -> None:
        """Remember where a partition is to be created later (KIP-113), also after restarts.

        Args:
            path: None withdraws the last preference.

        Raises:
            PartitionExistsError: the partition exists already; move it.
        """
        dir_changes.prefer(self._state.owned(), topic, partition, path)

    # --- listeners --------------------------------------------------------------------------------

    def add_listener(self, listener: Callable[[StoreEvent], object]) -> None:
        """Call a function for each event of the store: log dirs, and replicas as wholes.

        Each event is delivered once, and all in order, by a thread of the listener's own. The
        function may block: events wait for it, without a bound, and none is dropped. What it raises
        is logged. Nothing is reported before this call: after it, look at `describe_dirs`. A close
        waits up to 5 s, or its timeout, for the last events. Adding it again changes nothing.

        Raises:
            LogDirError: retriable; the process can have no further thread.
        """
        function(listener, "listener")
        self._state.owned().events.add(listener, self.log_dirs[0])

    def remove_listener(self, listener: Callable[[StoreEvent], object]) -> None:
        """Call a listener no more, not even for events that wait; twice is fine.

        A call that runs in its thread may still end.
        """
        function(listener, "listener")
        self._state.events.remove(listener)

    def on_close(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a function once, before the store closes its logs; the newest is called first.

        The store still serves then, and `close` waits for the function. What it raises is logged,
        and the store is closed nevertheless. If the store is dropped without a close, it is not
        called.

        Returns:
            A function that withdraws the callback; calling it twice is fine.
        """
        function(callback, "callback")
        return self._state.owned().host.on_close(callback)
