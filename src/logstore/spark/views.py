"""Look at a store from a process of Spark's: read-only, opened at first use, kept while it is good.

A Python worker serves many tasks, and the process that plans a stream serves all its batches, so
one view for each is kept. A view that failed, or whose log dirs are no longer those under their
paths, is dropped; the next call opens another.
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
from logstore.store.kafka_listing import read_meta
from logstore.store.store import LogStore

# A swap takes milliseconds; on a disk that is busy, as long as two syncs of a directory.
SWAP_SECONDS_MAX = 5.0
PAUSE_SECONDS = 0.02
# A log dir that was away is looked for again after so long.
AWAY_SECONDS = 5.0


class View(NamedTuple):
    """A store as it was opened here, and when."""

    store: LogStore
    opened_at: float


_views: dict[tuple[Place, int], View] = {}
_lock = threading.Lock()


def view_of(place: Place) -> LogStore:
    """Give this process's view of a store.

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
    """Tell whether a view is of the log dirs that stand under their paths now."""
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
    """Raise LogDirIdentityError if one of these log dirs is of the other kind.

    Its `meta.properties` says so. Nothing is opened, for which a library may be missing.
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
            reason = "it is of a Kafka broker: set kafkaLogDirs=true"
            if place.is_kafka:
                reason = "it is of a store of this library: leave out kafkaLogDirs"
            raise LogDirIdentityError(path=path, reason=reason) from error


@contextmanager
def host_named() -> Iterator[None]:
    """Name this host in an error about a log dir: on a cluster, the path alone says little."""
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
    """Spare a Python worker of Spark's what it would do behind every task, once and for all.

    Behind each it looks through all objects for garbage, those of all imported modules too, which
    takes as long as reading 20 MB. What is there by its first task is not looked at again.
    """
    if TaskContext.get() is not None:
        gc.freeze()


def forget(place: Place) -> None:
    """Drop this process's view: what failed once is looked at anew."""
    with _lock:
        _drop((place, os.getpid()))


def find(store: LogStore, key: TopicPartition) -> Log:
    """Find a partition's log as it is now; while a move swaps it, for a moment, look again.

    Raises:
        UnknownPartitionError: it is not there, or for longer than a swap takes.
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
    """Refuse a store that is not whole: a partition of a dir that is gone would be left out.

    Raises:
        LogDirOfflineError: a log dir is offline, or is not among those that were named.
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
            "name all of them, or set failOnDataLoss=false to go on without what they hold",
            path=named,
            reason="log dirs are missing",
        )


def _unseen(path: str, reason: str, *, is_any_seen: bool = True) -> LogDirOfflineError:
    """Make the error of a process that cannot use a log dir: which dir, and where it was looked."""
    advice = "; failOnDataLoss=false reads what is there" if is_any_seen else ""
    return LogDirOfflineError(
        f"log dir {path} cannot be read on host {socket.gethostname()}: {reason}. Every executor "
        f"must see every log dir under the same path{advice}",
        path=path,
        reason=reason,
    )
