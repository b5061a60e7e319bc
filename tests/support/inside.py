"""Reach what a store keeps to itself: tests that need it take it from here."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from logstore.store.dirs import closing
from logstore.store.state import OwnerState
from logstore.store.view import StoreView

if TYPE_CHECKING:
    from logstore import LogStore
    from logstore.store.dirs.membership import Membership
    from logstore.store.dirs.watchdog import Watchdog
    from logstore.store.upkeep.keeper import DirKeeper


def state_of(store: LogStore) -> OwnerState:
    """Give the fields of a store that is not a view, closed or not."""
    assert isinstance(store._state, OwnerState)
    return store._state


def view_of(store: LogStore) -> StoreView:
    """Give what a store that was opened with `read_only=True` knows of the log dirs."""
    assert isinstance(store._partitions, StoreView)
    return store._partitions


def abandon(store: LogStore) -> None:
    """Release everything without writing to the disks, as a crash would."""
    closing.abandon(state_of(store), "the process crashed")


def keepers_of(store: LogStore) -> dict[str, DirKeeper]:
    """Give the keepers of a store by the path of their log dir."""
    return state_of(store).keepers


def membership_of(store: LogStore) -> Membership:
    """Give the roster of a store."""
    return state_of(store).membership


def watchdog_of(store: LogStore) -> Watchdog:
    """Give what looks for log dirs of a store that hang."""
    return state_of(store).watchdog


def wait_for_failures(store: LogStore, timeout: float | None) -> None:
    """Wait until the failures of log dirs are handled, and the user's callback has returned."""
    state_of(store).failures.wait(timeout)


def failure_threads(store: LogStore) -> list[threading.Thread]:
    """List the threads that handle failures of log dirs."""
    return state_of(store).failures._threads
