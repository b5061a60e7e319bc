"""Open a read-only view of a store in each of Spark's processes, and use the view until it fails.

A Python worker runs many tasks, and the process that plans a stream plans all its batches. So each
process has one view of a store. If a view failed, or if its paths now lead to other log dirs, the
view is dropped, and the next call opens a new view.
"""

from __future__ import annotations

import gc
import logging
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

# A swap takes milliseconds. On a busy disk, a swap takes as long as two syncs of a directory.
SWAP_SECONDS_MAX = 5.0
PAUSE_SECONDS = 0.02
# After this time, a new view searches again for a log dir that was missing.
AWAY_SECONDS = 5.0


class View(NamedTuple):
    """Hold an opened store, and the time at which it was opened."""

    store: LogStore
    opened_at: float


_views: dict[tuple[Place, int], View] = {}
_lock = threading.Lock()


def view_of(place: Place) -> LogStore:
    """Return this process's view of a store.

    Raises:
        LogDirError: this process cannot read the log dirs. The message names a log dir and the
            host.
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
            raise _unseen(error.path, error.reason) from error
        except ImportError as error:  # a library that Kafka's batches need is missing
            text = f"{error} (on host {socket.gethostname()})"
            raise ImportError(text, name=error.name) from error
        _views[key] = View(store, time.monotonic())
        return store


def _is_good(view: View) -> bool:
    """Report whether the paths of a view's log dirs still lead to the same log dirs."""
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
    logger = logging.getLogger("logstore")
    logger.addFilter(_take_advice_away)
    try:
        if place.is_kafka:
            return LogStore.open_kafka(place.log_dirs)
        return LogStore.open(place.log_dirs, read_only=True)
    finally:
        logger.removeFilter(_take_advice_away)


def _take_advice_away(record: logging.LogRecord) -> bool:
    """Add the host to a warning, and remove the advice, which only the store's owner can follow.

    Python workers write warnings to the log of their executor.
    """
    record.msg = f"{without_remedy(record.getMessage())} (on host {socket.gethostname()})"
    record.args = ()
    return True


def _check_kind(place: Place, error: LogDirError) -> None:
    """Raise LogDirIdentityError if the option `kafkaLogDirs` is wrong for one of the log dirs.

    Only the file `meta.properties` is read, because opening the log dir may need a missing library.
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
def host_named(*, is_read: bool = False) -> Iterator[None]:
    """Add the host's name to errors about log dirs, because each host may have the same path.

    Args:
        is_read: whether the option failOnDataLoss applies, so that the error mentions this option.
    """
    try:
        yield
    except (LogDirOfflineError, LogDirIdentityError) as error:
        if f"on host {socket.gethostname()}" in str(error):
            raise
        raise _unseen(error.path, error.reason, is_read=is_read) from error
    except LogStoreError as error:
        error.add_note(f"This happened on host {socket.gethostname()}.")
        raise


@cache
def settle_in() -> None:
    """Make garbage collection cheap in a Python worker; this runs only once per process.

    After each task, the worker searches all objects for garbage, including the objects of all
    imported modules. This search takes as long as reading 20 MB. The first task of a worker calls
    this function. After this call, the searches leave out all objects that existed at the call.
    """
    if TaskContext.get() is not None:
        gc.freeze()


def forget(place: Place) -> None:
    """Drop the view of a store in this process, so that the next call opens a new view."""
    with _lock:
        _drop((place, os.getpid()))


def forget_all() -> None:
    """Drop all views of this process."""
    with _lock:
        for key in list(_views):
            _drop(key)


def find(store: LogStore, key: TopicPartition, *, is_read: bool = False) -> Log:
    """Find a partition's present log; if its directory is missing, try again while a swap may run.

    Args:
        is_read: see `host_named`.

    Raises:
        UnknownPartitionError: the store does not know the partition, or its directory is missing
            for longer than a swap takes.
    """
    deadline = time.monotonic() + SWAP_SECONDS_MAX
    while True:
        try:
            with host_named(is_read=is_read):
                log = store.log(*key)
                host.refresh(log)
            return log
        except UnknownPartitionError:
            if key not in store or time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_SECONDS)


def check_all_serve(store: LogStore) -> None:
    """Check that all log dirs work, because partitions on a missing log dir would be left out.

    Raises:
        LogDirOfflineError: a log dir is offline, or the options do not name it.
    """
    replicas = store.host.replicas
    for log_dir in replicas.log_dirs:
        if log_dir.is_offline:
            raise _unseen(log_dir.path, log_dir.offline_reason or "it is offline", is_read=True)
    if replicas.missing_ids:
        named = ", ".join(log_dir.path for log_dir in replicas.log_dirs)
        raise LogDirOfflineError(
            f"on host {socket.gethostname()}, logDirs names {named}, but the store has "
            f"{len(replicas.missing_ids)} more log dirs (directory id "
            f"{', '.join(replicas.missing_ids)}): "
            "name all of them, or set failOnDataLoss=false to continue without their records",
            path=named,
            reason="log dirs are missing",
        )


def _unseen(path: str, reason: str, *, is_read: bool = False) -> LogDirOfflineError:
    """Create the error for a log dir that this process cannot use.

    The error names the dir and the host.
    """
    advice = "; failOnDataLoss=false reads the other log dirs" if is_read else ""
    # The log dir may be healthy, although this host does not see it.
    reason = without_remedy(reason)
    return LogDirOfflineError(
        f"log dir {path} cannot be read on host {socket.gethostname()}: {reason}. Every executor "
        f"must see every log dir under the same path{advice}",
        path=path,
        reason=reason,
    )
