"""Keep a forked child from using its parent's stores.

The locks that the child inherits may be held by threads that it does not have, so nothing here
takes one: each log is told that it is unavailable, and gets new locks to find that out with.
(The descriptors that hold the log dirs' locks are closed by `disk.dir_lock`.)
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


def watch(store: StoreState) -> None:
    """Have a store closed in the child when this process is forked."""
    _open_stores.add(store)


def _refuse() -> LogStoreError:
    return LogClosedError(reason=REASON)


def _in_child() -> None:
    for store in list(_open_stores):
        store._closed = REASON
        store.admin.drop()
        for replica in list(store._replicas.opened.values()):
            disown(replica.log, _refuse)
    _open_stores.clear()


os.register_at_fork(after_in_child=_in_child)
