"""Hold what the parts of a store share: its fields, and the objects made from them.

`LogStore` is built from its parts in layers: state, reader, dir_failures, administration,
partitions, store. A room that needs only the fields takes a `StoreState`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from logstore.config import StoreConfig
from logstore.disk.calls import SYNCING
from logstore.disk.log_dir import LogDir
from logstore.log.environment import LogEnvironment
from logstore.store.host import StoreHost
from logstore.store.replicas import Replicas

# Modules that only opening and closing need are imported there, so that `import logstore` stays
# cheap.
if TYPE_CHECKING:
    from logstore.store.admin.admin import Admin
    from logstore.store.dirs.membership import Membership
    from logstore.store.dirs.watchdog import Watchdog
    from logstore.store.recovery_report import RecoveryReport
    from logstore.store.start.loader import Loader
    from logstore.store.upkeep.events import Events
    from logstore.store.upkeep.keeper import DirKeeper

CLOSED = "the store was closed"


class StoreState:
    """The fields of a store.

    Attributes:
        admin: the commands for callers outside, served through its socket.
        host: the access of packages above the store, such as a mover.
        recovery_report: what opening the store found and did.
    """

    config: StoreConfig
    admin: Admin
    recovery_report: RecoveryReport
    host: StoreHost
    _events: Events
    _lifecycle: threading.Lock
    _replicas: Replicas
    _environment: LogEnvironment
    _keepers: dict[str, DirKeeper]  # by the path of the log dir
    _membership: Membership
    _watchdog: Watchdog
    _closed: str | None = None  # why no call is served any more; None while the store is open
    _is_armed: bool  # whether a failure of a log dir is handled; under the lifecycle lock

    @property
    def patience_seconds(self) -> float:
        """If a log dir takes longer for one step of an opening, or of its return, it is offline."""
        return SYNCING * self.config.log_dir_suspect_ms / 1000

    def _drop_dir(self, log_dir: LogDir) -> None:
        """Forget a log dir that was taken out of the store."""
        self._keepers.pop(log_dir.path, None)
        self._replicas.drop_dir(log_dir)
        log_dir.leave()
        self._membership.note_missing()

    def _removed(self, path: str | None) -> None:
        """Tell listeners that a log dir is none of the store's any more."""
        from logstore.store.upkeep.events import StoreEvent, StoreEventKind

        self._events.post(StoreEvent(StoreEventKind.LOG_DIR_REMOVED, path))

    def _keep(self, log_dir: LogDir) -> DirKeeper:
        """Make the keeper of a log dir; other threads may use it from now on."""
        from logstore.store.upkeep.keeper import DirKeeper

        keeper = DirKeeper(log_dir, self._replicas, self.config, self._environment.clock)
        self._replicas.figures[log_dir.path].weigh(self._replicas.on(log_dir))
        self._keepers[log_dir.path] = keeper
        return keeper

    def _loader(self, report: RecoveryReport) -> Loader:
        """Make the loader that opens logs."""
        from logstore.store.start.loader import Loader

        return Loader(
            self._replicas,
            self._environment,
            report,
            threads_per_dir=self.config.num_recovery_threads_per_data_dir,
        )
