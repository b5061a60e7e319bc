"""Hold the fields of an open store, which its parts share.

    StoreState      the fields that the owner and readers in other processes have
    OwnerState      those, and the fields that only the owner has

The parts of a store are functions and classes that take one of the two. A part that changes a store
takes an `OwnerState`. A view has a `StoreState` only. A state refers to its `LogStore` only through
its environment: so a log in use keeps its store open.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
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

# Modules that only opening and closing need are imported there, so that `import logstore` stays
# cheap.
if TYPE_CHECKING:
    from logstore.store.admin.admin import Admin
    from logstore.store.dirs.dir_failures import DirFailures
    from logstore.store.dirs.membership import Membership
    from logstore.store.upkeep.keeper import DirKeeper

CLOSED = "the store was closed"


def patience_of(config: StoreConfig) -> float:
    """Give the seconds that one step of an opening may take before its log dir is offline."""
    return SYNCING * config.log_dir_suspect_ms / 1000


class StoreState:
    """The fields that a store's owner and its readers have.

    A field is set while the store opens and never replaced, except `closed`.

    Attributes:
        config: as the user gave it.
        environment: the clock and the caches of the logs.
        replicas: which partitions exist, and where. It has a lock of its own.
        admin: the commands for other processes, served through the admin socket; none in a view.
        failures: handles log dirs that fail. It has a lock of its own.
        events: the listeners of the store; none in a view. It has a lock of its own.
        recovery_report: what opening the store found and did. Only the opening writes it.
        host: the access to the store for packages above it, such as a mover.
        closed: why the store serves no calls any more; None while it is open. It is written once:
            by the close under `Closing._lock`, in a forked child, when the store is dropped, or
            when it could not be opened. Readers take no lock: a call that read None just before
            a close finds that the logs are closed.
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
        self.environment = environment
        self.replicas = replicas
        self.failures = failures
        self.admin = admin
        self.events = Events()
        self.recovery_report = RecoveryReport()
        self.host = StoreHost(self.check, self.owned, replicas, self.dir_named, keepers)
        self.closed: str | None = None

    @property
    def patience_seconds(self) -> float:
        """The seconds that a step of an opening or return may take; then the log dir is offline."""
        return patience_of(self.config)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The paths of the log dirs, offline ones included."""
        return tuple(log_dir.path for log_dir in self.replicas.log_dirs)

    def check(self) -> None:
        """Raise LogClosedError if the store was closed, or opened before a fork."""
        if self.closed is not None:
            raise LogClosedError(reason=self.closed)
        self.environment.check_process()

    def owned(self) -> OwnerState:
        """Return the owner's state, for a part that changes the store.

        Raises:
            ReadOnlyStoreError: this is a view; another process may own the store.
            LogClosedError: as for `check`.
        """
        self.check()
        raise ReadOnlyStoreError(path=self.log_dirs[0])

    def dir_named(self, path: str | os.PathLike[str]) -> LogDir:
        """Find a log dir by any path that leads to it; raises LogDirError if there is none."""
        name = path_of(path, "a log dir")
        found = self.find_dir(name)
        if found is None:
            reason = f"it is not one of the log dirs of this store: {', '.join(self.log_dirs)}"
            raise LogDirError(path=name, reason=reason)
        return found

    def find_dir(self, name: str) -> LogDir | None:
        """Find a log dir by a path; the disk is asked only if no log dir has that very path."""
        found = self.replicas.find_dir(os.path.abspath(name))
        return found or self.replicas.find_dir(files.real_path(name))


class OwnerState(StoreState):
    """The fields that only the owner of a store has.

    Attributes:
        keepers: the keeper of each log dir, by its path. The thread that opens the store writes
            them. Later, only the thread that has claimed a log dir writes its entry. Other threads
            iterate over a copy.
        membership: the roster. It has a lock of its own.
        claims: which log dirs are being changed. It has a lock of its own.
        watchdog: finds log dirs that hang.
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
        """Return this state, for a part that changes the store; raises LogClosedError."""
        self.check()
        return self

    def keep(self, log_dir: LogDir) -> DirKeeper:
        """Make the keeper of a log dir; other threads may use it from now on."""
        from logstore.store.upkeep.keeper import DirKeeper

        assert self.replicas.find_dir(log_dir.path) is log_dir, log_dir.path
        keeper = DirKeeper(log_dir, self.replicas, self.config, self.environment.clock)
        self.replicas.figures[log_dir.path].weigh(self.replicas.on(log_dir))
        self.keepers[log_dir.path] = keeper
        return keeper

    def drop_dir(self, log_dir: LogDir) -> None:
        """Forget a log dir that was taken out of the store."""
        self.keepers.pop(log_dir.path, None)
        self.replicas.drop_dir(log_dir)
        log_dir.leave()
        self.membership.note_missing()
        assert self.replicas.find_dir(log_dir.path) is not log_dir, log_dir.path
