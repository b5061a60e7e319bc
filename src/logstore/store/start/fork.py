"""Keep a forked child from using its parent's stores.

The child inherits locks, but not the threads that may hold these locks. A lock whose thread is
missing is never released. So this module takes no lock. This module marks each log as unavailable,
and gives the log new locks. So a call to the log raises an error instead of hanging.
`disk.dir_lock` closes the descriptors that hold the locks of the log dirs.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

from logstore.errors import LogClosedError, LogStoreError
from logstore.log.host import disown

if TYPE_CHECKING:
    from logstore.store.state import StoreState

REASON = "the store was opened before this process was forked"

_open_stores: weakref.WeakSet[StoreState] = weakref.WeakSet()


def watch(state: StoreState) -> None:
    """When this process is forked, close the store in the child."""
    _open_stores.add(state)


def _refuse() -> LogStoreError:
    return LogClosedError(reason=REASON)


def _in_child() -> None:
    for state in list(_open_stores):
        state.closed = REASON
        state.admin.drop()
        for replica in list(state.replicas.opened.values()):
            disown(replica.log, _refuse)
    _open_stores.clear()


os.register_at_fork(after_in_child=_in_child)
