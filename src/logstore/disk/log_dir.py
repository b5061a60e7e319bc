"""Manage one log dir: its identity, lock, probes, failures, checkpoints and free space.

Only `failed` (and `failures.refuse_shortage` at a start) converts an `OSError` of a log dir into an
error of this library. Only `take_offline` takes a log dir offline, and a log dir never comes back
by itself. `health` keeps the other states of a log dir, with their reasons.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from logstore.config import format_size
from logstore.disk import files
from logstore.disk.ballast import Ballast
from logstore.disk.calls import SYNCING, call
from logstore.disk.dir_lock import DirLock
from logstore.disk.documents.generations import DirGeneration
from logstore.disk.documents.meta_properties import FILE_NAME, MetaProperties, encode_meta
from logstore.disk.documents.offset_checkpoints import OffsetCheckpoints
from logstore.disk.documents.settings import (
    SETTINGS_NAME,
    DirSettings,
    read_settings,
    write_settings,
)
from logstore.disk.failures import Verdict, reason_of, verdict_of
from logstore.disk.gates import Change, LetGoError
from logstore.disk.health import Health
from logstore.disk.spare import Spare
from logstore.disk.states import Conditions, Event, LogDirState
from logstore.errors import (
    LogDirError,
    LogDirFullError,
    LogDirOfflineError,
    LogStoreError,
    ReplicaOfflineError,
)

PROBE_PREFIX = ".probe-"
_PROBE_BYTES = b"a log dir that can be written, synced and read back\n"

PROBES_KEPT = 5

# A full disk accepts records again if RETURN_PERCENT of it is free. So states change rarely.
RETURN_PERCENT = 1

__all__ = ["PROBE_PREFIX", "RETURN_PERCENT", "DiskUsage", "LogDir", "LogDirState"]


class DiskUsage(NamedTuple):
    """The size of a disk, and its free space at the last check."""

    total_bytes: int
    usable_bytes: int


class LogDir(Health):
    """One directory on one disk, owned by one process."""

    def __init__(
        self,
        path: str,
        *,
        on_failure: Callable[[LogDir], None] | None = None,
        read_only: bool = False,
    ) -> None:
        super().__init__(path)
        self.read_only = read_only
        self.cluster_id = ""
        self._directory_id = ""
        self.start_id = ""
        self.was_clean = False
        # Replicas that are damaged or did not open; if there is none, a close marks the dir clean.
        self.not_loaded: set[tuple[str, int]] = set()
        # Whether this process served the dir before; if True, the page cache may be out of date.
        self.is_back = False
        self.usage = DiskUsage(0, 0)
        self.warnings: list[str] = []
        self.lock = DirLock(path)
        self.spare = Spare()
        self.ballast = Ballast(path, self._noticed_full, self.warnings)
        self.checkpoints = OffsetCheckpoints(path, self.check, self.replacing)
        self.generation = DirGeneration(path, self.check, self.replacing)
        self.settings = DirSettings()
        self.facts: object = None  # the `DirFacts` of the dir, or None
        # Probes in a row that returned in time; the keeper writes this, the watchdog reads it.
        self.good_probes = 0
        # Durations (s) of the last probes; comparable, because all disks get the same probes.
        self.probe_seconds: deque[float] = deque(maxlen=PROBES_KEPT)
        # The number of syncs of segments, and their total duration; changed under `_changing`.
        self.flush_count, self.flush_seconds = 0, 0.0
        self._on_failure = on_failure
        self._place: tuple[int, int] | None = None
        self._writing_meta = threading.Lock()  # the newest identity must be written last

    def __repr__(self) -> str:
        """Show the path, the state and the reason of the state."""
        reason = f": {self.reason}" if self.reason else ""
        return f"<LogDir {self.path} {self.state.value}{reason}>"

    @property
    def directory_id(self) -> str:
        """The id of this directory in the roster of its store."""
        return self._directory_id

    def belong(self, cluster_id: str, directory_id: str) -> None:
        """Set the identity of the dir, in memory only."""
        self.cluster_id = cluster_id
        self._directory_id = self.checkpoints.directory_id = directory_id
        self.generation.directory_id = directory_id

    def _is_told_already(self, conditions: Conditions) -> bool:
        """Return True if no log message is needed for a change of the conditions.

        The change to OFFLINE is logged only if the log dir belongs to a store: a caller that adds a
        log dir gets an error instead. Only the owner logs other state changes, readers do not.
        """
        if LogDirState.OFFLINE in conditions:
            return self._on_failure is None
        return self.read_only

    def count_flush(self, seconds: float) -> None:
        """Count one sync of a segment."""
        with self._changing:
            self.flush_count += 1
            self.flush_seconds += seconds

    # --- failure ----------------------------------------------------------------------------------

    def report_to(self, on_failure: Callable[[LogDir], None]) -> None:
        """Set the function that is called if the log dir fails."""
        self._on_failure = on_failure

    def take_offline(self, reason: str, *, has_remedy: bool = False) -> LogDirOfflineError:
        """Take the dir offline until it is reopened; the first call also calls the callback."""
        if (
            self.change(Event.FAILED, reason, has_remedy=has_remedy)
            and self._on_failure is not None
        ):
            self._on_failure(self)
        return self.offline_error()

    def failed(
        self,
        error: OSError,
        path: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> LogStoreError:
        """Convert an error of this dir's disk; if the disk is at fault, take the dir offline.

        Usage: `raise log_dir.failed(error, path) from error`.
        """
        if self.is_offline:
            return self.offline_error()
        if self.is_let_go:
            return self.refusal()
        if isinstance(error, files.SyncError):
            return self.flush_failed(error, path)
        reason, verdict = self._reason(error, path), verdict_of(error)
        if verdict is Verdict.FULL and error.errno != errno.EFBIG:
            return self._full(reason)
        if verdict is Verdict.FULL or verdict is Verdict.PROCESS:
            return LogDirError(path=self.path, reason=reason, retriable=True)
        if verdict is Verdict.ASK:
            refusal = self._ask_probe()
            if refusal is None:
                if topic is None or partition is None:
                    return LogDirError(path=self.path, reason=reason)
                return ReplicaOfflineError(topic=topic, partition=partition, reason=reason)
            reason = f"{reason}; probe: {refusal}"
        return self.take_offline(reason)

    def flush_failed(self, error: OSError, path: str | None = None) -> LogDirOfflineError:
        """Take the dir offline after a failed sync, for any errno. No sync is ever retried.

        The kernel drops pages that it could not write, so a second sync would report success.
        """
        return self.take_offline(f"a flush failed: {self._reason(error, path)}")

    def _reason(self, error: OSError, path: str | None) -> str:
        reason = reason_of(error)
        return reason if path is None or error.filename else f"{reason} ({path})"

    def _ask_probe(self) -> str | None:
        """Probe the disk; return what is wrong with it, or None if it is good."""
        try:
            self.probe()
        except OSError as error:
            return reason_of(error)
        return None

    def check_place(self) -> None:
        """Check that the path still leads to the same directory. Raises OSError.

        If a disk is unmounted while it is used, the path leads to the empty mount point. Nothing
        may be written to the mount point. A file that is missing at the mount point is not lost.
        """
        facts = files.stat(self.path)
        place = (facts.st_dev, facts.st_ino)
        if self._place is None:
            self._place = place
        elif place != self._place:
            reason = "another directory is at this path: was the disk unmounted?"
            raise OSError(errno.ENODEV, reason, self.path)

    def probe(self) -> None:
        """Prove that the disk stores and returns the bytes of a small file. Raises OSError.

        A listing can succeed even on a dead disk. A full disk passes the probe: it is not broken.
        """
        self.check_place()
        if self.read_only:
            files.read_file(os.path.join(self.path, FILE_NAME))
            return
        path = os.path.join(self.path, f"{PROBE_PREFIX}{os.urandom(4).hex()}")
        moved = f"{path}.tmp"
        began = time.monotonic()
        try:
            files.write_new(path, _PROBE_BYTES)
            if files.read_file(path) != _PROBE_BYTES:
                raise OSError(errno.EIO, "the disk returned other bytes than were written", path)
            files.rename(path, moved)
            files.sync_dir(self.path)
            files.unlink(moved)
            self.probe_seconds.append(time.monotonic() - began)
        except OSError as error:
            if verdict_of(error) in (Verdict.GONE, Verdict.ASK):
                raise
            files.remove_if_there(path)

    # --- identity and ownership -------------------------------------------------------------------

    def write_meta(self, meta: MetaProperties) -> None:
        """Write the identity of the dir durably, unless the dir stops serving before that.

        Raises:
            OSError: the disk failed.
            LogDirOfflineError: the write hung until the dir was OFFLINE; the identity is unchanged.
            LogDirSuspectError: the dir is SUSPECT already.
        """
        path = os.path.join(self.path, FILE_NAME)
        with call(self.path, SYNCING), self._writing_meta:
            self.check()
            files.write_atomically(path, encode_meta(meta), self.replacing)

    def begin(self, start_id: str, *, is_new: bool = False) -> None:
        """Write the start of this process into the locked dir, and set `was_clean`. Raises OSError.

        If the disk is full, there is only a warning, and the next start recovers the logs. The lock
        file of a new dir does not contain the dir's identity yet: the identity is written later.
        """
        cluster_id, directory_id = ("", "") if is_new else (self.cluster_id, self.directory_id)
        try:
            was_clean = self.lock.begin(start_id, cluster_id, directory_id, self.check)
            self.was_clean, self.start_id = was_clean or is_new, start_id
            self.ballast.keep()
        except OSError as error:
            if verdict_of(error) is not Verdict.FULL or self.lock.may_be_marked:
                raise  # if the old marker stayed, a crash would look like an orderly close
            self.warnings.append(
                f"{self.path}: the disk is full, so the lock file does not record this owner, and "
                "the next start recovers the logs"
            )

    def release(self) -> None:
        """Release the dir; its lock is freed as soon as no call of this process can change the dir.

        Never waits. If calls that change the disk are running, the last of them frees the lock.
        """
        is_known = self.is_offline or self.is_suspect
        self.refuse()
        self.spare.empty()
        if not self.lock.let_go(is_known=is_known):
            import logging

            logging.getLogger("logstore").warning(
                "log dir %s stays locked until a running call to its disk returns",
                self.path,
            )

    def leave(self) -> None:
        """Remember that no store of this process has this log dir any more."""
        self.lock.leave()

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """Guard a rename that replaces a file of the dir: the dir is locked until the rename ends.

        Raises:
            LogDirOfflineError: the dir is OFFLINE, or was released. So another owner may have
                written a newer file, which must not be replaced.
        """
        try:
            with Change(self.lock.gate):
                if self.is_offline:
                    raise self.offline_error()
                yield
        except LetGoError as error:
            raise self.failed(error) from error

    def change_file(self, name: str, write: Callable[[files.Guard], None]) -> None:
        """Replace a small file of the dir durably, even on a full disk. Raises LogStoreError."""
        self.check()
        try:
            with call(self.path, SYNCING):
                self.check_place()
                self.ballast.use(partial(write, self.replacing))
        except OSError as error:
            raise self.failed(error, os.path.join(self.path, name)) from error

    # --- the user's settings ----------------------------------------------------------------------

    def load_settings(self) -> None:
        """Read the settings; a damaged file only gives a warning. Raises OSError."""
        self.settings, warning = read_settings(self.path, self.directory_id)
        if warning:
            path = os.path.join(self.path, SETTINGS_NAME)
            self.warnings.append(f"{path} is not used: {warning}")
        if self.settings.is_cordoned:
            self.change(Event.CORDON, "the user cordoned it")

    def change_settings(self, settings: DirSettings) -> None:
        """Replace the settings durably, then apply the new settings. Raises LogStoreError."""
        write = partial(write_settings, self.path, self.directory_id, settings)
        self.change_file(SETTINGS_NAME, write)
        self.settings = settings
        event = Event.CORDON if settings.is_cordoned else Event.UNCORDON
        self.change(event, "the user cordoned it")

    # --- space ------------------------------------------------------------------------------------

    def refresh_usage(self) -> DiskUsage:
        """Store the disk's free space in `usage`. Raises OSError.

        If a full disk has room again, the dir accepts records after this call.
        """
        if not self.read_only:
            self.ballast.keep()
        has_room = self._look_for_room()
        if self.is_full and has_room:
            self.change(Event.ROOM)
        elif not has_room and not self.usage.usable_bytes and self.usage.total_bytes:
            self.change(Event.FULL, "it has no free byte")
        return self.usage

    def _look_for_room(self) -> bool:
        """Read the disk's space; return whether it has enough free bytes and free inodes."""
        facts = files.statvfs(self.path)
        self.usage = DiskUsage(facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize)
        names_free, names = facts.f_favail, facts.f_files
        return self.usage.usable_bytes >= self.return_bytes and (
            not names or names_free * 100 >= names * RETURN_PERCENT
        )

    @property
    def return_bytes(self) -> int:
        """How many bytes, with ballast, must be free before a full disk accepts records again."""
        percent = self.usage.total_bytes * RETURN_PERCENT // 100
        return max(percent, 1) + self.ballast.missing_bytes

    def _return_text(self) -> str:
        return f"appends resume by themselves if {format_size(self.return_bytes)} are free"

    def _full(self, reason: str) -> LogStoreError:
        """Make the error of a write without room; if the disk is full, set READ_ONLY.

        If there is room, this append was too large or exceeded a quota; other appends continue.
        """
        try:
            if not self._look_for_room():
                self.change(Event.FULL, reason)
                reason = f"{reason}; {self._return_text()}"
        except OSError as error:
            return self.failed(error)
        return LogDirFullError(path=self.path, reason=reason)

    def _noticed_full(self, error: OSError) -> None:
        self._full(reason_of(error))

    def check_appendable(self) -> None:
        """Raise if the dir accepts no records; if the disk is full, first check its space again."""
        self.check_current()
        if not self.is_full:
            return
        try:
            usage = self.refresh_usage()
        except OSError as error:
            raise self.failed(error) from error
        if self.is_full:
            free = format_size(usage.usable_bytes)
            raise LogDirFullError(path=self.path, reason=f"{free} are free; {self._return_text()}")
