"""Lock a log dir for one process by a `flock` on `.lock`; the lock ends with the process.

    .lock              {"version": 1, "pid", "start_id", "cluster_id", "directory_id",
                        "admin_socket": path or null}
    .clean-shutdown    {"version": 1, "start_id"}

`.lock` contains the id of the owner's process, and the id of its *start*. The clean-shutdown marker
is valid only if it contains the same start id. So a marker of an older start is ignored, even if a
power cut undid the removal of that marker. `.lock` is never unlinked. If `.lock` were removed, a
second process could make a new `.lock` and lock the new file, while the first process still holds
the lock of the old file. If `meta.properties` is damaged, `.lock` shows the identity of the dir.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from logstore.disk import files, gates
from logstore.disk.documents.checkpoint import (
    VERSION,
    decode_document,
    encode_document,
    read_document,
)
from logstore.disk.documents.meta_properties import Hint, is_id
from logstore.errors import CorruptionError, LogDirLockedError, UnsupportedFormatError

LOCK_NAME = ".lock"
MARKER_NAME = ".clean-shutdown"
DOCUMENT_BYTES_MAX = 4096

_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
# struct flock: type, start, length (0: the whole file) and process of a lock.
_RANGE = struct.Struct("hh4xqqi4x")


def _decode(data: bytes, path: str) -> dict[str, Any]:
    """Decode a document whose loss does no harm; if it is damaged, return {}."""
    try:
        return decode_document(data, path)
    except (CorruptionError, UnsupportedFormatError):
        return {}


def lock_hint(dir_path: str) -> Hint:
    """Read the identity that the last owner of a log dir wrote into the lock file."""
    document = _read_lock(dir_path)
    cluster_id, directory_id = document.get("cluster_id"), document.get("directory_id")
    return Hint(
        cluster_id if is_id(cluster_id) else None,
        directory_id if is_id(directory_id) else None,
    )


class Owner(NamedTuple):
    """The owner process that a lock file names; the process may have ended since then."""

    pid: int | None
    admin_socket: str | None


def read_owner(dir_path: str) -> Owner:
    """Read the process id and the admin socket of a log dir's last owner. Raises OSError."""
    document = _read_lock(dir_path)
    pid, path = document.get("pid"), document.get("admin_socket")
    return Owner(
        pid if isinstance(pid, int) else None,
        path if isinstance(path, str) and os.path.isabs(path) else None,
    )


def _read_lock(dir_path: str) -> dict[str, Any]:
    path = os.path.join(dir_path, LOCK_NAME)
    try:
        return _decode(files.read_file(path), path)
    except (FileNotFoundError, files.UnfitError):
        return {}


_held: set[DirLock] = set()


def _drop_after_fork() -> None:
    """Close the child's copies of the descriptors; the parent keeps the locks.

    A `flock` belongs to the open file, which a forked child shares. If a child kept this descriptor
    open and outlived the parent, the log dirs would stay locked.
    """
    for lock in list(_held):
        lock.drop()


os.register_at_fork(after_in_child=_drop_after_fork)


class DirLock:
    """The lock of one log dir, from `acquire` to `release`.

    Attributes:
        admin_socket: the path of the owner's admin socket; `begin` writes this path into the lock
            file.
        may_be_marked: whether a clean-shutdown marker of the previous owner may still exist.
        gate: counts the running calls that change the log dir.
    """

    def __init__(self, dir_path: str) -> None:
        self.dir_path = dir_path
        self.path = os.path.join(dir_path, LOCK_NAME)
        self.marker_path = os.path.join(dir_path, MARKER_NAME)
        self.admin_socket: str | None = None
        self.may_be_marked = True
        self.gate = gates.Gate(dir_path, self._give_back)
        # The descriptor of the lock file, or nothing.
        # If two threads call `pop`, only one thread gets the descriptor.
        self._fds: list[int] = []

    @property
    def _fd(self) -> int:
        return self._fds[-1]

    @property
    def is_held(self) -> bool:
        """Check whether this process holds the lock."""
        return bool(self._fds)

    def acquire(self) -> None:
        """Take the lock without waiting; if there is no lock file, create an empty lock file.

        Raises:
            LogDirLockedError: another process, or another store of this process, holds the lock.
            OSError: the disk failed.
        """
        fd = files.open_regular(self.path, _OPEN)
        try:
            files.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = self._read(fd).get("pid") if error.errno in (errno.EAGAIN, errno.EACCES) else None
            files.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise self._locked_error(pid) from None
            raise
        _held.add(self)
        self._fds.append(fd)
        gates.know(self.gate, fd)

    def _locked_error(self, pid: int | None) -> LogDirLockedError:
        """Make the error for a lock that is held by another process or another store."""
        owners = [lock for lock in list(_held) if lock.path == self.path]
        if not owners:
            return LogDirLockedError(path=self.dir_path, pid=pid)
        if any(lock.gate.is_closed for lock in owners):
            text = (
                f"log dir {self.dir_path} was released, but a call of this process to its disk is "
                "still running and may still change the log dir; try again when the disk "
                "answers, or end the process"
            )
            return LogDirLockedError(text, path=self.dir_path, pid=os.getpid())
        text = (
            f"log dir {self.dir_path} is already open in this process: use the store that has "
            "it, or close"
        )
        return LogDirLockedError(f"{text} it first", path=self.dir_path, pid=os.getpid())

    def begin(
        self,
        start_id: str,
        cluster_id: str,
        directory_id: str,
        check: Callable[[], None] = lambda: None,
    ) -> bool:
        """Begin a new start, durably: remove the clean-shutdown marker, then write the lock file.

        Returns whether the previous owner closed the dir cleanly. If this start crashes, the next
        start finds no valid marker.

        Args:
            check: a function that is called before each change. The function raises an error if the
                start was abandoned.
        """
        marker = self._marker()
        last_start = self._read(self._fd).get("start_id")
        was_clean = last_start is not None and marker.get("start_id") == last_start
        check()
        try:
            files.unlink(self.marker_path)
            files.sync_dir(self.dir_path)
        except (FileNotFoundError, IsADirectoryError):
            pass  # no marker exists: the file is missing, or is a directory
        self.may_be_marked = False
        check()
        document = {
            "version": VERSION,
            "pid": os.getpid(),
            "start_id": start_id,
            "cluster_id": cluster_id,
            "directory_id": directory_id,
            "admin_socket": self.admin_socket,
        }
        data = encode_document(document)
        files.write_fully(self._fd, [data], 0)
        files.ftruncate(self._fd, len(data))
        files.sync_data(self._fd)
        return was_clean

    def mark_clean(self, start_id: str) -> None:
        """Write the clean-shutdown marker; the caller must first make all other data durable."""
        data = encode_document({"version": VERSION, "start_id": start_id})
        files.write_atomically(self.marker_path, data)

    def let_go(self, *, is_known: bool) -> bool:
        """Close the gate; the lock is freed when the last call that changes the dir has ended.

        This method never waits. Returns whether this call has freed the lock.

        Args:
            is_known: whether to keep the closed gate. Until this process takes the dir again, a
                closed gate refuses the calls of this process to files below the dir.
        """
        if not is_known:
            gates.forget(self.gate)
        return self.gate.close()

    def leave(self) -> None:
        """Store that no store has the dir any more. The gate is forgotten after the last call."""
        self.gate.is_left = True
        self.gate.is_forgotten()

    def release(self) -> None:
        """Free the lock immediately, even if forked children still have a copy of the descriptor.

        Raises:
            OSError: the disk failed; the descriptor is closed.
        """
        gates.forget(self.gate)
        self._unlock()

    def _give_back(self) -> None:
        """Free the lock, and ignore an error of a dying disk."""
        with suppress(OSError):
            self._unlock()

    def _unlock(self) -> None:
        fd = self._take()
        if fd >= 0:
            try:
                files.flock(fd, fcntl.LOCK_UN)
            finally:
                files.close(fd)

    def drop(self) -> None:
        """Close the descriptor, but keep the lock, which another process shares."""
        fd = self._take()
        if fd >= 0:
            files.close(fd)

    def _take(self) -> int:
        """Remove and return the descriptor; return -1 if there is none."""
        _held.discard(self)
        try:
            return self._fds.pop()
        except IndexError:
            return -1

    def _read(self, fd: int) -> dict[str, Any]:
        return _decode(files.read_up_to(fd, DOCUMENT_BYTES_MAX, 0), self.path)

    def _marker(self) -> dict[str, Any]:
        try:
            return read_document(self.marker_path) or {}
        except (CorruptionError, UnsupportedFormatError):
            return {}


class KafkaLock:
    """The lock of a log dir against Kafka and against a store, from `acquire` to `release`.

    Kafka locks a range of `.lock`, and a store locks the file with a `flock`. A lock of one kind
    does not prevent a lock of the other kind. So take both locks to hand over a log dir from Kafka
    to a store, or back. The lock of the range belongs to the descriptor. So this lock lasts even if
    the process closes another descriptor of the file.
    """

    def __init__(self, dir_path: str) -> None:
        self.dir_path = dir_path
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock against Kafka, without waiting.

        Raises:
            LogDirLockedError: a Kafka broker runs on the log dir.
            OSError: the disk failed.
        """
        fd = files.open_regular(os.path.join(self.dir_path, LOCK_NAME), _OPEN)
        try:
            whole = _RANGE.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, whole)
        except OSError as error:
            files.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                text = f"a Kafka broker runs on the log dir {self.dir_path}: stop it first"
                raise LogDirLockedError(text, path=self.dir_path, pid=None) from None
            raise
        self._fd = fd

    def keep_stores_out(self) -> None:
        """Also take the lock against stores, without waiting; a second call is harmless.

        Raises:
            LogDirLockedError: a store has the log dir open.
            OSError: the disk failed.
        """
        try:
            files.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                owner = read_owner(self.dir_path)
                raise LogDirLockedError(path=self.dir_path, pid=owner.pid) from None
            raise

    def let_stores_in(self) -> None:
        """Free only the lock against stores. Raises OSError."""
        files.flock(self._fd, fcntl.LOCK_UN)

    def write(self, data: bytes) -> None:
        """Replace the content of the lock file durably. Raises OSError."""
        files.write_fully(self._fd, [data], 0)
        files.ftruncate(self._fd, len(data))
        files.sync_data(self._fd)

    def release(self) -> None:
        """Free both locks, if they are held."""
        if self._fd >= 0:
            files.close(self._fd)
            self._fd = -1
