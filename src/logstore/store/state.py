"""Hold what the parts of a store share: its fields, and what is made from them.

`LogStore` is built from its parts in layers: state, reader, dir_failures, administration,
partitions, store. A room that needs the fields alone takes a `StoreState`.
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

# What only opening and closing need is imported there: `import logstore` is to stay cheap.
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
        admin: the commands by which it is operated from outside, through its socket.
        host: what packages above the store, such as a mover, may use of it.
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
        """A log dir that takes longer for one step of an opening, or of its return, is offline."""
        return SYNCING * self.config.log_dir_suspect_ms / 1000

    def _drop_dir(self, log_dir: LogDir) -> None:
        """Know a log dir no more: it was taken out of the store."""
        self._keepers.pop(log_dir.path, None)
        self._replicas.drop_dir(log_dir)
        log_dir.leave()
        self._membership.note_missing()

    def _removed(self, path: str | None) -> None:
        """Tell listeners that a log dir is none of the store's any more."""
        from logstore.store.upkeep.events import StoreEvent, StoreEventKind

        self._events.post(StoreEvent(StoreEventKind.LOG_DIR_REMOVED, path))

    def _keep(self, log_dir: LogDir) -> DirKeeper:
        """Make the keeper of a log dir; others may ask it for things from here on."""
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
