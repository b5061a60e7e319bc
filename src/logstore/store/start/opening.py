"""Open a store as its owner, or make a new store.

An opening resolves the paths of the log dirs, and reads their identities. Then the opening locks
the log dirs, removes their clean-shutdown markers, and probes them. Then the opening lists the
directories. The start-up table decides about each directory. Then the opening recovers the logs of
all log dirs in parallel, and starts a keeper thread for each log dir.

A log dir that fails affects only its own replicas.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from logstore.arguments import StrPath
from logstore.config import StoreConfig
from logstore.log.environment import Clock, LogEnvironment
from logstore.store.admin.admin import Admin
from logstore.store.admin.commands import register_all
from logstore.store.collector import AT_REST
from logstore.store.dirs.closing import abandon
from logstore.store.dirs.dir_failures import DirFailures, FailureCallback
from logstore.store.dirs.dropped_store import weakly
from logstore.store.dirs.membership import Membership
from logstore.store.recovery_report import RecoveryProgress
from logstore.store.replicas import Replicas
from logstore.store.start import (
    preload,  # noqa: F401 - imports modules that are needed later
    resurrected,
)
from logstore.store.start.fork import watch
from logstore.store.start.identity import resolve
from logstore.store.start.loader import Loader
from logstore.store.start.open_dirs import OpenedDirs, check_one_serves, open_log_dirs
from logstore.store.state import OwnerState, patience_of
from logstore.store.upkeep.keeper import DirKeeper
from logstore.store.upkeep.purge import purge_in_order

Store = TypeVar("Store")
ShowProgress = Callable[[RecoveryProgress], None]


def open_owned(
    make_store: Callable[[OwnerState], Store],
    log_dirs: StrPath | Iterable[StrPath],
    config: StoreConfig,
    *,
    format_new: bool,
    admin_socket: bool,
    on_log_dir_failure: FailureCallback | None,
    progress: ShowProgress | None,
    clock: Clock | None,
) -> Store:
    """Take possession of the log dirs, open their logs, and start the store's threads.

    Args:
        make_store: a function that makes the `LogStore` of a state. Each log in use refers to the
            `LogStore`, so that the store is not dropped.
    """
    began = time.monotonic()
    admin, keepers = Admin(), dict[str, DirKeeper]()
    failures = DirFailures(on_log_dir_failure, keepers)
    opened = open_log_dirs(
        resolve(log_dirs, patience_of(config)),
        broker_id=config.broker_id,
        format_new=format_new,
        on_failure=weakly(failures.failed),
        admin_socket=admin.choose_place() if admin_socket else None,
        patience_seconds=patience_of(config),
    )
    replicas = Replicas(opened.log_dirs, opened.missing_ids)
    membership = Membership(replicas, opened.roll, patience_of(config))
    environment = LogEnvironment(config, clock)
    state = OwnerState(config, environment, replicas, failures, admin, keepers, membership)
    state.broker_id = opened.broker_id
    watch(state)
    replicas.purge = partial(purge_in_order, replicas, keepers)
    state.events.follow(replicas)
    state.events.on_full = failures.full
    store = make_store(state)
    environment.owner = store
    register_all(admin, state, store)
    try:
        _serve(state, opened, progress, began)
    except BaseException:
        abandon(state, "opening the store failed")
        raise
    return store


def _serve(
    state: OwnerState, opened: OpenedDirs, progress: ShowProgress | None, began: float
) -> None:
    """Load the log dirs, and start every thread."""
    state.watchdog.start()
    loader = _load(state, opened, progress)
    state.admin.listen()
    state.recovery_report.seconds = time.monotonic() - began
    keepers = [state.keep(log_dir) for log_dir in opened.good()]
    for keeper in keepers:  # no keeper starts earlier, because a keeper may use any other keeper
        keeper.start()
    for doomed in loader.purges:
        state.replicas.purge(doomed)
    state.failures.arm(state.replicas)
    for log_dir in opened.log_dirs:
        if log_dir.is_offline:
            state.failures.failed(log_dir)
    state.admin.start()


def _load(state: OwnerState, opened: OpenedDirs, progress: ShowProgress | None) -> Loader:
    state.recovery_report.warnings += opened.warnings
    loader = Loader(
        state.replicas,
        state.environment,
        state.recovery_report,
        threads_per_dir=state.config.num_recovery_threads_per_data_dir,
        progress=progress,
    )
    with AT_REST:
        loader.load()
    resurrected.tell(state.replicas, state.recovery_report)
    check_one_serves(opened.log_dirs)
    return loader
