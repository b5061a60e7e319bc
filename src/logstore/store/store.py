"""Open several log dirs as one store of partitions, and close them in order.

    open    resolve, identity, lock, drop the clean-shutdown markers, probe, list, start-up table,
            recovery in parallel per dir, then a keeper thread per dir
    close   per dir: flush and close its logs, write its checkpoints, and only then, if all of that
            went well and everything in it had been opened, the marker

A log dir that fails affects only its own replicas.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from logstore.arguments import callback, flag, instance, timeout_of
from logstore.config import StoreConfig
from logstore.errors import LogStoreError
from logstore.log.environment import Clock, LogEnvironment, check_clock
from logstore.store.dir_failures import FailureCallback
from logstore.store.partitions import StorePartitions
from logstore.store.replicas import Replicas
from logstore.store.state import CLOSED

# Modules that only opening and closing need are imported there, so that `import logstore` stays
# cheap.
if TYPE_CHECKING:
    from logstore.disk.log_dir import LogDir
    from logstore.store.dirs.dropped_store import Place
    from logstore.store.recovery_report import RecoveryProgress
    from logstore.store.start.loader import Loader
    from logstore.store.start.open_dirs import OpenedDirs

StrPath = str | os.PathLike[str]


class LogStore(StorePartitions):
    """Partition logs over several log dirs, each on its own disk.

    Thread-safe. Not usable in a forked child: every call there raises LogClosedError.

    A store that is dropped without a close gives a ResourceWarning and unlocks its log dirs; the
    next open recovers it. A log in use keeps its store open. A store that is open when the process
    ends gives the warning too, if Python still drops it; see `-X dev`.

    Attributes:
        admin: the commands for callers outside, served through its socket.
    """

    def __init__(self, config: StoreConfig, on_log_dir_failure: FailureCallback | None) -> None:
        """Use `LogStore.open`."""
        from logstore.store.admin.admin import Admin
        from logstore.store.dirs.shutdown import Closing
        from logstore.store.recovery_report import RecoveryReport

        super().__init__(on_log_dir_failure)
        self.admin = Admin()
        self._closing = Closing(self._wait_for_seers)
        self.config = config
        self.recovery_report = RecoveryReport()
        self._replicas = Replicas((), ())
        self._opened_at: Place | None = None

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
            log_dirs: one directory per disk; made if the store is new.
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
        if config is None:
            config = StoreConfig()
        instance(config, StoreConfig, "config")
        from logstore.store.dirs.dropped_store import calling_place
        from logstore.store.start.fork import watch

        for given, name in (
            (read_only, "read_only"),
            (format_new, "format_new"),
            (admin_socket, "admin_socket"),
        ):
            flag(given, name)
        callback(on_log_dir_failure, "on_log_dir_failure")
        callback(progress, "progress")
        if clock is not None:
            check_clock(clock)
        if read_only and format_new:
            raise ValueError("a store that is opened with read_only=True formats nothing")
        if read_only:
            from logstore.store.view import LogStoreView

            view = LogStoreView(config, on_log_dir_failure)
            watch(view)
            view._open_view(log_dirs, clock)
            return view
        store = cls(config, on_log_dir_failure)
        watch(store)
        store._open(log_dirs, format_new, admin_socket, progress, clock)
        store._opened_at = calling_place()
        return store

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
        from logstore.store.kafka.broker_view import KafkaStoreView
        from logstore.store.start.fork import watch

        config = StoreConfig() if config is None else instance(config, StoreConfig, "config")
        view = KafkaStoreView(config, None)
        watch(view)
        view._open_view(log_dirs, None)
        return view

    def __repr__(self) -> str:
        """Show the log dirs, and how many partitions are in them."""
        state = ", closed" if self._closed else ""
        return f"<LogStore {self._count()} partitions in {list(self.log_dirs)}{state}>"

    def __del__(self, _is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        """Release a store that was not closed; if the process is ending, only warn."""
        opened_at = getattr(self, "_opened_at", None)  # None: no owner, or the opening failed
        if opened_at is not None and self._closed is None:
            opened_at.dropped(self, _is_exiting())

    # --- opening ----------------------------------------------------------------------------------

    def _open(
        self,
        log_dirs: StrPath | Iterable[StrPath],
        format_new: bool,
        admin_socket: bool,
        progress: Callable[[RecoveryProgress], None] | None,
        clock: Clock | None,
    ) -> None:
        """Take possession of the log dirs and load what is in them."""
        from logstore.store.admin.commands import register_all
        from logstore.store.dirs.dropped_store import weakly
        from logstore.store.dirs.membership import Membership
        from logstore.store.dirs.watchdog import Watchdog
        from logstore.store.start import preload  # noqa: F401 - what is needed later, now
        from logstore.store.start.identity import resolve
        from logstore.store.start.open_dirs import open_log_dirs
        from logstore.store.upkeep.purge import purge_in_order

        register_all(self.admin, self)
        began = time.monotonic()
        patience_seconds = self.patience_seconds
        opened = open_log_dirs(
            resolve(log_dirs, patience_seconds),
            broker_id=self.config.broker_id,
            format_new=format_new,
            on_failure=weakly(self._log_dir_failed),
            admin_socket=self.admin.choose_place() if admin_socket else None,
            patience_seconds=patience_seconds,
        )
        self._environment = LogEnvironment(self.config, clock)
        self._environment.owner = self
        self._replicas = Replicas(opened.log_dirs, opened.missing_ids)
        self._membership = Membership(self._replicas, opened.roll, patience_seconds)
        self._replicas.purge = partial(purge_in_order, self._replicas, self._keepers)
        self._events.follow(self._replicas)
        self._watchdog = Watchdog(
            self._replicas,
            self.config.log_dir_suspect_ms / 1000,
            self._log_dir_hangs,
            self._log_dir_answered,
        )
        try:
            self._watchdog.start()
            loader = self._load(opened, progress)
            self.admin.listen()
            self.recovery_report.seconds = time.monotonic() - began
            keepers = [self._keep(log_dir) for log_dir in opened.good()]
            for keeper in keepers:  # a keeper may use any other: all exist before the first starts
                keeper.start()
            for doomed in loader.purges:
                self._replicas.purge(doomed)
            self._is_armed = True
            for log_dir in opened.log_dirs:
                if log_dir.is_offline:
                    self._log_dir_failed(log_dir)
            self.admin.start()
        except BaseException:
            self._closed = "opening the store failed"
            self._abandon()
            raise

    def _load(
        self, opened: OpenedDirs, progress: Callable[[RecoveryProgress], None] | None
    ) -> Loader:
        from logstore.store.start.loader import Loader
        from logstore.store.start.open_dirs import check_one_serves
        from logstore.store.start.resurrected import tell

        self.recovery_report.warnings += opened.warnings
        loader = Loader(
            self._replicas,
            self._environment,
            self.recovery_report,
            threads_per_dir=self.config.num_recovery_threads_per_data_dir,
            progress=progress,
        )
        loader.load()
        tell(self._replicas, self.recovery_report)
        check_one_serves(opened.log_dirs)
        return loader

    def _abandon(self) -> None:
        """Release everything without writing to the disks, as after a crash."""
        from logstore.store.dirs.parallel import in_time
        from logstore.store.dirs.takeover import release_all

        def close_all(log_dir: LogDir) -> None:
            keeper = self._keepers.get(log_dir.path)
            if keeper is not None:  # it may be about to remove a directory
                keeper.join(None)
            for log in self._replicas.on(log_dir):
                with suppress(LogStoreError):
                    log.close(flush=False)

        self._is_armed, self._opened_at = False, None  # so nothing is left to be released
        for keeper in self._keepers.values():
            keeper.stop()
        self.admin.stop()
        self._watchdog.stop()
        dirs, patience_seconds = self._replicas.log_dirs, self.patience_seconds
        in_time(dirs, close_all, lambda d: d.path, patience_seconds, name="logstore-abandon")
        release_all(dirs, patience_seconds)

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

        self._check_owner()
        return flush_dirs(self._replicas)

    def close(self, timeout: float | None = None) -> tuple[str, ...]:
        """Flush and close all logs, then the log dirs; closing twice is allowed.

        Returns the log dirs that were not closed in order: offline, SUSPECT, failed, or still
        hanging after `timeout` seconds. Their logs are recovered at the next start. A second call
        returns the same, and completes a close that Ctrl-C interrupted.

        Raises:
            LogDirOfflineError: a log dir failed during this call; the others are closed in order.
                Only the first call raises it.
        """
        timeout = timeout_of(timeout)
        # After an opening that failed nothing is open; in a forked child everything is the
        # parent's.
        return self._closing.wait(self, timeout) if self._closed in (None, CLOSED) else ()

    def __enter__(self) -> Self:
        """Give the store itself; raises LogClosedError if it is closed."""
        self._check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the store; an error of the close does not hide an earlier one."""
        try:
            self.close()
        except LogStoreError as failure:
            if error is None:
                raise
            from logstore.store.upkeep.keeper import warn

            warn("closing the store failed: %s", failure)
