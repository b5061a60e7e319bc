"""Replace Kafka's files in log dirs by the files of the store, or the store's files by Kafka's.

Before each call, the caller must build the new files durably, and take the locks of all log dirs.
Every step can be repeated. All log dirs take a step before any log dir takes the next step. So
Kafka and the store can never use different log dirs at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from broker.hands import rights
from logstore.disk import bulk, files
from logstore.disk.dir_lock import LOCK_NAME, KafkaLock
from logstore.store.kafka.broker_listing import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    META,
    RECOVERY_POINTS,
    START_OFFSETS,
    parse_replica,
)
from logstore.store.kafka.hands import (
    BUILDING,
    CLEARING,
    DOCUMENT_NAME,
    KAFKA_NEW,
    KEPT,
    MOVING_IN,
    MOVING_OUT,
    OWNED,
    PUTTING_AWAY,
    PUTTING_BACK,
    STAYING,
    STORE_NEW,
    STORE_OLD,
    TAKEN,
    Change,
    read_change,
    write_change,
)
from logstore.store.start.listing import foreign_entries

# Kafka writes these files again from its logs, or a hand-back writes them again.
STALE_FILES = frozenset({CLEANER_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS, START_OFFSETS})


@contextmanager
def locked(paths: list[str]) -> Iterator[Mapping[str, KafkaLock]]:
    """Hold the locks of log dirs against Kafka.

    Raises:
        LogDirLockedError: a Kafka broker runs on a log dir.
        OSError: a disk failed.
    """
    locks = {path: KafkaLock(path) for path in paths}
    new = [path for path in paths if not files.exists(os.path.join(path, LOCK_NAME))]
    try:
        for lock in locks.values():
            lock.acquire()
        for path in new:
            rights.give_one(os.path.join(path, LOCK_NAME), path)
        yield locks
    finally:
        for lock in locks.values():
            lock.release()


def changes_of(paths: list[str]) -> dict[str, Change | None]:
    """Read the step that the change of each log dir has reached; see `read_change`."""
    return {path: read_change(path) for path in paths}


def finish_take_over(locks: Mapping[str, KafkaLock]) -> None:
    """Move Kafka's files out of the log dirs, and the store's files in. Raises OSError."""
    paths = list(locks)
    _begin(paths, (BUILDING,), MOVING_OUT)
    for path in _at(paths, MOVING_OUT):
        _make(path, KEPT)
        _move_all(path, os.path.join(path, KEPT), STAYING)
        _write(path, MOVING_IN)
    for path in _at(paths, MOVING_IN):
        new = os.path.join(path, STORE_NEW)
        if files.exists(new):
            _move_all(new, path, {LOCK_NAME})
            if files.exists(os.path.join(new, LOCK_NAME)):
                # Keep the content of the new lock file: it identifies the last start of the store.
                # After that start, the store was closed cleanly.
                locks[path].write(files.read_file(os.path.join(new, LOCK_NAME)))
            bulk.remove_tree(new)
        _write(path, TAKEN)
        rights.give_one(os.path.join(path, DOCUMENT_NAME), path)


def purge_kept(path: str) -> None:
    """Remove from `.kafka` the partitions that the store has, and files that Kafka would delete.

    All other files stay, and go back to Kafka unchanged: Kafka's `meta.properties`, the metadata
    log, directories of partitions that Kafka does not know, and files of other programs. Raises
    OSError.
    """
    sweep(path)
    change = read_change(path)
    assert change is not None and change.step in OWNED
    kept = os.path.join(path, KEPT)
    for entry in files.entries(kept):
        full = os.path.join(kept, entry.name)
        parsed = parse_replica(entry.name) if entry.is_dir else None
        if parsed is not None:
            is_taken = parsed[1] == "live" and parsed[0] in change.partitions
            if is_taken or parsed[1] in ("delete", "future"):
                bulk.remove_tree(full)
        elif entry.name in STALE_FILES or entry.name.startswith(DOCUMENT_NAME):
            files.remove_if_there(full)
    files.sync_dir(kept)


def foreign_to(path: str) -> list[str]:
    """List the entries that are neither of the store nor of Kafka. Raises OSError.

    A hand-back leaves the entries of other programs in the log dir.
    """
    return sorted(one.name for one in foreign_entries(path) if one.name not in STAYING)


def finish_hand_back(paths: list[str], result: Mapping[str, Any]) -> None:
    """Move the store's files out of the log dirs, and Kafka's files back in. Raises OSError.

    Args:
        result: the fields to store in `Change`, so that a repeated hand-back can report them.
    """
    _begin(paths, OWNED, PUTTING_AWAY, result)
    for path in _at(paths, PUTTING_AWAY):
        _make(path, STORE_OLD)
        _move_all(path, os.path.join(path, STORE_OLD), STAYING.union(foreign_to(path)))
        _write(path, PUTTING_BACK)
    for path in _at(paths, PUTTING_BACK):
        for name in (KAFKA_NEW, KEPT):
            source = os.path.join(path, name)
            if files.exists(source):
                _move_all(source, path, ())
                bulk.remove_tree(source)
        _write(path, CLEARING)
    for path in _at(paths, CLEARING):
        if files.exists(os.path.join(path, STORE_OLD)):
            bulk.remove_tree(os.path.join(path, STORE_OLD))
        forget(path)


def forget(path: str) -> None:
    """Remove the file `change-of-hands`. Raises OSError."""
    sweep(path)
    files.remove_if_there(os.path.join(path, DOCUMENT_NAME))
    files.sync_dir(path)


def sweep(path: str) -> None:
    """If a crash interrupted a write of this file, remove the unfinished file. Raises OSError."""
    for name in files.names(path):
        if name.startswith(f"{DOCUMENT_NAME}.") and name.endswith(".tmp"):
            files.remove_if_there(os.path.join(path, name))


def discard(path: str, name: str) -> None:
    """Remove the files of an interrupted build. Raises OSError."""
    if files.exists(os.path.join(path, name)):
        bulk.remove_tree(os.path.join(path, name))


def _begin(
    paths: list[str], before: Container[str], step: str, fields: Mapping[str, Any] | None = None
) -> None:
    """Let all log dirs take the first step of the swap, if their new files are built."""
    for path in paths:
        change = read_change(path)
        if change is not None and change.step in before:
            write_change(path, change._replace(step=step, **(fields or {})))


def _at(paths: list[str], step: str) -> list[str]:
    """List the log dirs that have reached a step."""
    found = {path: read_change(path) for path in paths}
    return [path for path, change in found.items() if change is not None and change.step == step]


def _write(path: str, step: str) -> None:
    change = read_change(path)
    assert change is not None
    write_change(path, change._replace(step=step))


def _make(path: str, name: str) -> None:
    directory = os.path.join(path, name)
    if not files.exists(directory):
        files.make_dir(directory)
    rights.give_one(directory, path)


def _move_all(source: str, target: str, staying: Container[str]) -> None:
    """Move all entries of a directory durably, `meta.properties` first."""
    for name in sorted(files.names(source), key=lambda name: (name != META, name)):
        if name not in staying:
            files.rename(os.path.join(source, name), os.path.join(target, name))
    files.sync_dir(target)
    files.sync_dir(source)
