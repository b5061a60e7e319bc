"""Open read-only views of a store in Spark's processes, at first use, and keep the good ones.

A Python worker serves many tasks, and the process that plans a stream serves all its batches. So
each process keeps one view of a store. A view is dropped if it failed, or if its paths now lead to
other log dirs; the next call opens another.
"""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import NamedTuple

from pyspark import TaskContext

from logstore.errors import (
    LogDirError,
    LogDirIdentityError,
    LogDirOfflineError,
    LogStoreError,
    UnknownPartitionError,
)
from logstore.log import host
from logstore.log.log import Log
from logstore.names import TopicPartition
from logstore.spark.options import Place
from logstore.store.kafka.broker_listing import read_meta
from logstore.store.start.refusals import without_remedy
from logstore.store.store import LogStore

# A swap takes milliseconds; on a busy disk, as long as two syncs of a directory.
SWAP_SECONDS_MAX = 5.0
PAUSE_SECONDS = 0.02
# The time after which a log dir that was away is looked for again.
AWAY_SECONDS = 5.0


class View(NamedTuple):
    """Hold an opened store, and when it was opened."""

    store: LogStore
    opened_at: float


_views: dict[tuple[Place, int], View] = {}
_lock = threading.Lock()


def view_of(place: Place) -> LogStore:
    """Return this process's view of a store.

    Raises:
        LogDirError: this process does not see the log dirs; the message names dir and host.
    """
    key = (place, os.getpid())
    with _lock:
        view = _views.get(key)
        if view is not None and _is_good(view):
            return view.store
        _drop(key)
        try:
            store = _open(place)
        except LogDirError as error:
            _check_kind(place, error)
            raise _unseen(error.path, error.reason, is_any_seen=False) from error
        except ImportError as error:  # of a library that Kafka's batches need
            text = f"{error} (on host {socket.gethostname()})"
            raise ImportError(text, name=error.name) from error
        _views[key] = View(store, time.monotonic())
        return store


def _is_good(view: View) -> bool:
    """Report whether a view's log dirs are still those at their paths."""
    for log_dir in view.store.host.log_dirs:
        if not log_dir.is_offline:
            try:
                log_dir.check_place()
            except OSError:
                return False
        elif time.monotonic() - view.opened_at > AWAY_SECONDS:
            return False
    return True


def _drop(key: tuple[Place, int]) -> None:
    view = _views.pop(key, None)
    if view is not None:
        with suppress(LogStoreError):
            view.store.close()


def _open(place: Place) -> LogStore:
    if place.is_kafka:
        return LogStore.open_kafka(place.log_dirs)
    return LogStore.open(place.log_dirs, read_only=True)


def _check_kind(place: Place, error: LogDirError) -> None:
    """Raise LogDirIdentityError if a log dir is of the other kind, Kafka broker or store.

    Its `meta.properties` shows the kind. The store is not opened, because that may need a library.
    """
    for path in place.log_dirs:
        is_kafka = None
        try:
            is_kafka = True if read_meta(path) is not None else None
        except LogDirIdentityError:
            is_kafka = False
        except OSError:
            continue
        if is_kafka is not None and is_kafka is not place.is_kafka:
            reason = "it belongs to a Kafka broker: set kafkaLogDirs=true"
            if place.is_kafka:
                reason = "it belongs to a store of this library: leave out kafkaLogDirs"
            raise LogDirIdentityError(path=path, reason=reason) from error


@contextmanager
def host_named() -> Iterator[None]:
    """Add this host to an error about a log dir: on a cluster, the path alone is not enough."""
    try:
        yield
    except (LogDirOfflineError, LogDirIdentityError) as error:
        if f"on host {socket.gethostname()}" in str(error):
            raise
        raise _unseen(error.path, error.reason) from error
    except LogStoreError as error:
        error.add_note(f"This happened on host {socket.gethostname()}.")
        raise


@cache
def settle_in() -> None:
    """Spare a Spark Python worker a costly garbage collection after each task; runs only once.

    After each task the worker looks through all objects for garbage, including those of all
    imported modules. That takes as long as reading 20 MB. Objects that exist at its first task are
    not looked at again.
    """
    if TaskContext.get() is not None:
        gc.freeze()


def forget(place: Place) -> None:
    """Drop this process's view, so that the next call opens a new one."""
    with _lock:
        _drop((place, os.getpid()))


def find(store: LogStore, key: TopicPartition) -> Log:
    """Find a partition's log as it is now; if a move is swapping it, look again for a moment.

    Raises:
        UnknownPartitionError: it does not exist, or is missing for longer than a swap takes.
    """
    deadline = time.monotonic() + SWAP_SECONDS_MAX
    while True:
        try:
            with host_named():
                log = store.log(*key)
                host.refresh(log)
            return log
        except UnknownPartitionError:
            if key not in store or time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_SECONDS)


def check_all_serve(store: LogStore) -> None:
    """Raise if the store is not complete, because partitions of a missing dir would be left out.

    Raises:
        LogDirOfflineError: a log dir is offline, or the options do not name it.
    """
    replicas = store.host.replicas
    for log_dir in replicas.log_dirs:
        if log_dir.is_offline:
            raise _unseen(log_dir.path, log_dir.offline_reason or "it is offline")
    if replicas.missing_ids:
        named = ", ".join(log_dir.path for log_dir in replicas.log_dirs)
        raise LogDirOfflineError(
            f"logDirs, looked at on host {socket.gethostname()}, names {named}, but the store has "
            f"{len(replicas.missing_ids)} more (directory id {', '.join(replicas.missing_ids)}): "
            "name all of them, or set failOnDataLoss=false to continue without what they hold",
            path=named,
            reason="log dirs are missing",
        )


def _unseen(path: str, reason: str, *, is_any_seen: bool = True) -> LogDirOfflineError:
    """Create the error for a log dir that this process cannot use, with the dir and the host."""
    advice = "; failOnDataLoss=false reads what is there" if is_any_seen else ""
    reason = without_remedy(reason)  # the log dir may be healthy, and unseen on this host alone
    return LogDirOfflineError(
        f"log dir {path} cannot be read on host {socket.gethostname()}: {reason}. Every executor "
        f"must see every log dir under the same path{advice}",
        path=path,
        reason=reason,
    )
