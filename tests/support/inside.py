"""Reach what a store keeps to itself: tests that need it take it from here."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logstore import LogStore
    from logstore.store.dirs.membership import Membership
    from logstore.store.dirs.watchdog import Watchdog
    from logstore.store.upkeep.keeper import DirKeeper


def abandon(store: LogStore) -> None:
    """Release everything without writing to the disks, as a crash would."""
    store._abandon()


def keepers_of(store: LogStore) -> dict[str, DirKeeper]:
    """Give the keepers of a store by the path of their log dir."""
    return store._keepers


def membership_of(store: LogStore) -> Membership:
    """Give the roster of a store."""
    return store._membership


def watchdog_of(store: LogStore) -> Watchdog:
    """Give what looks for log dirs of a store that hang."""
    return store._watchdog


def wait_for_failures(store: LogStore, timeout: float | None) -> None:
    """Wait until the failures of log dirs are handled, and the user's callback has returned."""
    store._wait_for_seers(timeout)


def failure_threads(store: LogStore) -> list[threading.Thread]:
    """List the threads that handle failures of log dirs."""
    return store._seers
