"""Store the entry of a log dir, and the record of its failure (P4).

The entry contains the `whole_since` of the log dir, and is stored on the disk of the log dir. The
record of a failure is a file of one byte on tmpfs. This file exists until the next boot, and can be
written even if no disk works. A missing record counts as a failure. So the directory of the records
must still exist after the process of the broker has ended.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress

from cluster.host_dirs import DirEntry
from cluster.presence import boots
from cluster.pure.attest import (
    DirFound,
    FailureRecord,
    lacks_notes,
    noted_failures,
)
from logstore import LogStore
from logstore.disk import files

LOG = logging.getLogger("cluster")
ENTRY = "cluster.dir_entry"
ENTRY_TYPES = [str, str, int, int, bool, list]
WHOLE, FAILED = b"0", b"1"
RECORDS = {WHOLE: FailureRecord.NONE, FAILED: FailureRecord.RECORDED}
RECORD_BYTES_MAX = 64


def directory_ids(store: LogStore) -> dict[str, str]:
    """Return the id of each log dir. If a log dir cannot be read, use the last part of its path."""
    described = {one.path: one.directory_id for one in store.describe_dirs().log_dirs}
    return {path: described.get(path) or os.path.basename(path) for path in store.log_dirs}


def directory_id_of(store: LogStore, log_dir: str) -> str:
    """Return the id of a log dir; "" if it cannot be read."""
    described = store.describe_dirs().log_dirs
    return next((one.directory_id or "" for one in described if one.path == log_dir), "")


def read_entry(store: LogStore, log_dir: str) -> DirEntry | None:
    """Read the entry of a log dir; None if no entry can be read.

    The returned entry names failed log dirs by their directory ids.
    """
    fact = store.facts(log_dir).get(ENTRY)
    if not isinstance(fact, list) or len(fact) != len(ENTRY_TYPES):
        return None
    if [type(one) for one in fact] != ENTRY_TYPES or min(fact[2], fact[3]) < 0:
        return None
    if not all(isinstance(one, str) for one in fact[5]):
        return None
    boot, mount, whole_since, flushed_since, is_stopped, failed = fact
    return DirEntry(boot, mount, whole_since, flushed_since, is_stopped, frozenset(failed))


def write_entry(store: LogStore, log_dir: str, entry: DirEntry) -> None:
    """Write the entry of a log dir, durably. Raises LogStoreError."""
    store.facts(log_dir)[ENTRY] = [*entry[:5], sorted(entry.failed)]


class FailureRecords:
    """The records of failed log dirs, in a directory on tmpfs."""

    def __init__(self, directory: str) -> None:
        """Use a directory, and create it if it is missing."""
        self._directory = directory
        with suppress(FileExistsError):
            files.make_dir(directory)

    def read(self, directory_id: str) -> FailureRecord:
        """Read the record of a log dir."""
        try:
            data = files.read_file(os.path.join(self._directory, directory_id), RECORD_BYTES_MAX)
        except OSError:
            return FailureRecord.MISSING
        return RECORDS.get(data, FailureRecord.MISSING)

    def record(self, directory_id: str) -> None:
        """Write down that a log dir failed. If the write fails, remove the record."""
        self._write(directory_id, FAILED)

    def clear(self, directory_id: str) -> None:
        """Write down that a log dir has not failed.

        The entry of the log dir must already be durable.
        """
        self._write(directory_id, WHOLE)

    def _write(self, directory_id: str, data: bytes) -> None:
        path = os.path.join(self._directory, directory_id)
        try:
            files.write_atomically(path, data)
        except OSError as error:
            LOG.warning("the record of log dir %s cannot be written: %s", directory_id, error)
            with suppress(OSError):
                files.remove_if_there(path)


def find(log_dir: str, entries: Mapping[str, DirEntry | None], record: FailureRecord) -> DirFound:
    """Describe a log dir that works when the broker starts.

    Args:
        entries: the entries of all log dirs of the store.
    """
    boot, mount = boots.boot_id(), boots.mount_id(log_dir)
    is_synced = _is_synced(log_dir)
    return DirFound(
        log_dir, entries[log_dir], record, boot, mount, is_synced=is_synced,
        is_noted=log_dir in noted_failures(entries.values()),
        lacks_notes=lacks_notes(log_dir, entries),
    )  # fmt: skip


def _is_synced(log_dir: str) -> bool:
    try:
        boots.sync_file_system(log_dir)
    except OSError as error:
        LOG.warning("%s could not be synced: %s", log_dir, error)
        return False
    return True
