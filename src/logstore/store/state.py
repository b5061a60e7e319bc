"""Define the fields of an open store, which the parts of the store share.

    StoreState      the fields that the owner and readers in other processes have
    OwnerState      these fields, and the fields that only the owner has

The functions and classes of a store take a `StoreState` or an `OwnerState`. Code that changes a
store takes an `OwnerState`. A view has only a `StoreState`. A state refers to its `LogStore` only
through the environment of the logs, so that a log in use keeps the store open.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from logstore.arguments import path_of
from logstore.config import StoreConfig
from logstore.disk import files
from logstore.disk.calls import SYNCING
from logstore.disk.log_dir import LogDir
from logstore.errors import LogClosedError, LogDirError, ReadOnlyStoreError
from logstore.log.environment import LogEnvironment
from logstore.store.host import Keeper, StoreHost
from logstore.store.replicas import Replicas

# Functions that open or close a store import the modules that only they need.
# So `import logstore` stays cheap.
if TYPE_CHECKING:
    from logstore.store.admin.admin import Admin
    from logstore.store.dirs.dir_failures import DirFailures
    from logstore.store.dirs.membership import Membership
    from logstore.store.upkeep.keeper import DirKeeper

CLOSED = "the store was closed"


def patience_of(config: StoreConfig) -> float:
    """Return the seconds that one step of an opening may take before its log dir goes offline."""
    return SYNCING * config.log_dir_suspect_ms / 1000


class StoreState:
    """The fields that the owner of a store and its readers have.

    Each field, except `closed`, is set while the store opens, and is never replaced.

    Attributes:
        config: the configuration that the user passed.
        broker_id: the broker id in the log dirs; 0 in a view of the log dirs of a Kafka broker.
        environment: the clock and the caches of the logs.
        replicas: which partitions exist, and in which log dirs. `Replicas` has its own lock.
        admin: the commands for other processes, served through the admin socket. A view has no
            commands.
        failures: handles log dirs that fail. `DirFailures` has its own lock.
        events: the listeners of the store. A view has no listeners. `Events` has its own lock.
        recovery_report: the findings and actions of the opening. Only the opening writes the
            report.
        host: the access to the store for packages above it, such as a mover.
        closed: why the store no longer serves calls; None while the store is open. The field is
            written once: by the close (under `Closing._lock`), in a forked child, when the store is
            dropped, or when its opening has failed. Threads that read the field take no lock. If a
            thread reads None just before a close, the closed logs raise the error.
    """

    def __init__(
        self,
        config: StoreConfig,
        environment: LogEnvironment,
        replicas: Replicas,
        failures: DirFailures,
        admin: Admin,
        keepers: Mapping[str, Keeper],
    ) -> None:
        from logstore.store.recovery_report import RecoveryReport
        from logstore.store.upkeep.events import Events

        self.config = config
        self.broker_id = 0
        self.environment = environment
        self.replicas = replicas
        self.failures = failures
        self.admin = admin
        self.events = Events()
        self.recovery_report = RecoveryReport()
        self.host = StoreHost(
            self.check, self.owned, replicas, self.dir_named, self.change_of, keepers, environment
        )
        self.closed: str | None = None

    @property
    def patience_seconds(self) -> float:
        """Seconds that a step of an opening or return may take before the log dir goes offline."""
        return patience_of(self.config)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The paths of the log dirs, including offline log dirs."""
        return tuple(log_dir.path for log_dir in self.replicas.log_dirs)

    def check(self) -> None:
        """Raise LogClosedError if the store was closed, or was opened before a fork."""
        if self.closed is not None:
            raise LogClosedError(reason=self.closed)
        self.environment.check_process()

    def change_of(self, path: str) -> AbstractContextManager[str]:
        """Claim a log dir for one change; see `DirClaims.change_of`."""
        return self.owned().claims.change_of(path)

    def owned(self) -> OwnerState:
        """Return the owner's state to code that changes the store.

        Raises:
            ReadOnlyStoreError: this is a view; another process may own the store.
            LogClosedError: the store was closed, or was opened before a fork.
        """
        self.check()
        raise ReadOnlyStoreError(path=self.log_dirs[0])

    def dir_named(self, path: str | os.PathLike[str]) -> LogDir:
        """Find a log dir by any path that leads to it. Raises LogDirError if there is none."""
        name = path_of(path, "a log dir")
        found = self.find_dir(name)
        if found is None:
            reason = (
                f"the path is not one of the log dirs of this store: {', '.join(self.log_dirs)}"
            )
            raise LogDirError(path=name, reason=reason)
        return found

    def find_dir(self, name: str) -> LogDir | None:
        """Find a log dir by a path; if no log dir has this path, resolve the path on the disk."""
        found = self.replicas.find_dir(os.path.abspath(name))
        return found or self.replicas.find_dir(files.real_path(name))


class OwnerState(StoreState):
    """The fields that only the owner of a store has.

    Attributes:
        keepers: the keeper of each log dir; the key is the path of the log dir. The thread that
            opens the store writes `keepers`. Later, only the thread that has claimed a log dir
            writes this log dir's entry. Other threads iterate over a copy.
        membership: the roster. `Membership` has its own lock.
        claims: the log dirs that are being changed. `DirClaims` has its own lock.
        watchdog: detects log dirs that hang.
    """

    def __init__(
        self,
        config: StoreConfig,
        environment: LogEnvironment,
        replicas: Replicas,
        failures: DirFailures,
        admin: Admin,
        keepers: dict[str, DirKeeper],
        membership: Membership,
    ) -> None:
        from logstore.store.dirs.claims import DirClaims
        from logstore.store.dirs.watchdog import Watchdog

        super().__init__(config, environment, replicas, failures, admin, keepers)
        self.keepers = keepers
        self.membership = membership
        self.claims = DirClaims()
        self.watchdog = Watchdog(
            replicas, config.log_dir_suspect_ms / 1000, failures.hangs, self.host.answered
        )

    def owned(self) -> OwnerState:
        """Return this state to code that changes the store. Raises LogClosedError."""
        self.check()
        return self

    def keep(self, log_dir: LogDir) -> DirKeeper:
        """Make the keeper of a log dir; from now on, other threads may use the keeper."""
        from logstore.store.upkeep.keeper import DirKeeper

        assert self.replicas.find_dir(log_dir.path) is log_dir, log_dir.path
        keeper = DirKeeper(log_dir, self.replicas, self.config, self.environment.clock)
        self.replicas.figures[log_dir.path].weigh(self.replicas.on(log_dir))
        self.keepers[log_dir.path] = keeper
        return keeper

    def drop_dir(self, log_dir: LogDir) -> None:
        """Forget a log dir that was removed from the store."""
        self.keepers.pop(log_dir.path, None)
        self.replicas.drop_dir(log_dir)
        log_dir.leave()
        self.membership.note_missing()
        assert self.replicas.find_dir(log_dir.path) is not log_dir, log_dir.path
