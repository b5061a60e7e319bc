"""Keep what a log dir has to remember about itself, and the record of its failure (P4).

The entry is a fact of the log dir, so it is on its disk. The record of a failure is a file of one
byte on tmpfs: it lives as long as the boot, and needs no working disk. A record that is missing
counts as a failure, so the directory of the records must outlive the broker's process.
"""

from __future__ import annotations

import ctypes
import logging
import os
from contextlib import suppress
from pathlib import Path

from cluster.pure.attest import DirEntry, DirFound, FailureRecord
from logstore import LogStore, LogStoreError

LOG = logging.getLogger("cluster")
ENTRY = "cluster.dir_entry"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
MOUNTS = "/proc/self/mountinfo"
WHOLE, FAILED = b"0", b"1"

_libc = ctypes.CDLL(None, use_errno=True)


def read_entry(store: LogStore, log_dir: str) -> DirEntry | None:
    """Read the entry of a log dir; None if it has none that can be read."""
    fact = store.facts(log_dir).get(ENTRY)
    if not isinstance(fact, list) or len(fact) != 5:
        return None
    if [type(one) for one in fact] != [str, str, int, int, bool] or min(fact[2], fact[3]) < 0:
        return None
    return DirEntry(*fact)


def write_entry(store: LogStore, log_dir: str, entry: DirEntry) -> None:
    """Write the entry of a log dir, durably; raises LogStoreError."""
    store.facts(log_dir)[ENTRY] = list(entry)


def boot_id() -> str:
    """Give the id of this boot of the machine."""
    return Path(BOOT_ID).read_text(encoding="ascii").strip()


def mount_id(log_dir: str) -> str:
    """Give the id of the mount that a log dir is on: it changes with each mount.

    The kernel gives ids of ended mounts out again, so the device is part of the id.
    """
    wanted, found = os.path.realpath(log_dir), ("", "")
    for line in Path(MOUNTS).read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split(" ")
        point = fields[4].encode().decode("unicode_escape", errors="replace")
        is_above = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= len(found[0]):
            found = point, f"{fields[0]} {fields[2]}"
    return found[1]


def is_synced(log_dir: str) -> bool:
    """Write back the file system of a log dir, and tell whether all of it could be written.

    An error here is also one of a process that was killed: the kernel reports each once.
    """
    try:
        fd = os.open(log_dir, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        return int(_libc.syncfs(fd)) == 0
    finally:
        os.close(fd)


class FailureRecords:
    """The records of failed log dirs, in a directory on tmpfs."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Use a directory, and create it if it is missing."""
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _path(self, directory_id: str) -> Path:
        return self._directory / directory_id

    def read(self, directory_id: str) -> FailureRecord:
        """Read the record of a log dir."""
        try:
            data = self._path(directory_id).read_bytes()
        except OSError:
            return FailureRecord.MISSING
        if data == WHOLE:
            return FailureRecord.NONE
        return FailureRecord.RECORDED if data == FAILED else FailureRecord.MISSING

    def record(self, directory_id: str) -> None:
        """Record that a log dir failed; if this cannot be written, the record goes missing."""
        try:
            self._path(directory_id).write_bytes(FAILED)
        except OSError as error:
            LOG.warning("the failure of log dir %s cannot be recorded: %s", directory_id, error)
            with suppress(OSError):
                self._path(directory_id).unlink()

    def clear(self, directory_id: str) -> None:
        """Record that a log dir has not failed since its entry was written."""
        try:
            self._path(directory_id).write_bytes(WHOLE)
        except OSError as error:  # it stays missing, so the dir counts as not whole at a start
            LOG.warning("the record of log dir %s cannot be written: %s", directory_id, error)


def find(store: LogStore, log_dir: str, directory_id: str, records: FailureRecords) -> DirFound:
    """Describe a log dir that works, at a start.

    Raises:
        LogStoreError: the log dir does not serve.
    """
    try:
        entry = read_entry(store, log_dir)
    except (LogStoreError, ValueError) as error:
        LOG.warning("the entry of %s cannot be read: %s", log_dir, error)
        entry = None
    return DirFound(
        log_dir, entry, records.read(directory_id), boot_id(), mount_id(log_dir), is_synced(log_dir)
    )
