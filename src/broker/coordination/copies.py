"""Keep the journals of an embedded store in its log dirs: one copy in each, with the same changes.

A change counts when every log dir that works has it durably, and at least one works. If a disk
fails, or hangs while others answer, its log dir is left out from then on, and the others continue.
If a disk is full, the change is taken back from all log dirs, and the caller gets an error. But a
full disk prevents neither an open nor a deletion, if another has space: it is left out, too. At an
open, the copy with the highest zxid wins, and the other copies are written anew from it.

The caller owns the log dirs: it holds their locks. One thread at a time calls `append`.
"""

from __future__ import annotations

import errno
import logging
import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from broker.coordination.disk_workers import Call, DiskWorker, wait_for
from broker.coordination.errors import (
    CopiesOfflineError,
    CopyDamagedError,
    CopyForeignError,
    CopyForkedError,
    CopyFullError,
)
from broker.coordination.journal import (
    JOURNAL_NAME,
    Journal,
    decode_journal,
    encode_change,
    encode_journal,
)
from broker.coordination.tree import Draft, EmbeddedSettings, Tree
from logstore.disk import files
from logstore.disk.failures import DISK_IS_FULL, PROCESS_IS_FULL

JOURNAL_BYTES_MAX = 1 << 30
REWRITE_BYTES_PER_SECOND = 5 << 20  # a slower disk counts as one that hangs
NOT_OF_THE_DISK = DISK_IS_FULL | PROCESS_IS_FULL

_log = logging.getLogger(__name__)

FailureCallback = Callable[[str, OSError], object]


@dataclass(slots=True)
class _Copy:
    """The open journal of one log dir. After the open, only the calls of its worker change it.

    Attributes:
        size_bytes: where the next change is written.
        digest: the checksum of the last line.
        written_bytes: the size of the journal when it was last written anew.
    """

    worker: DiskWorker
    path: str
    fd: int
    size_bytes: int
    digest: int
    written_bytes: int
    next_digest: int = 0
    next_size_bytes: int = 0

    def append(self, draft: Draft) -> None:
        """Write a change, durably."""
        line, self.next_digest = encode_change(draft.zxid, draft.rows, self.digest, self.size_bytes)
        self.next_size_bytes = self.size_bytes + len(line)
        files.write_fully(self.fd, [line], self.size_bytes)
        files.sync_data(self.fd)

    def confirm(self) -> None:
        """Take note that the change of `append` counts."""
        self.size_bytes, self.digest = self.next_size_bytes, self.next_digest

    def take_back(self) -> None:
        """Cut off the change of `append`, durably."""
        try:
            files.ftruncate(self.fd, self.size_bytes)
            files.sync_data(self.fd)
        except OSError as error:  # also of a full disk
            raise files.SyncError.of(error) from error

    def replace(self, data: bytes, digest: int) -> None:
        """Replace the journal by one without changes."""
        files.write_atomically(self.path, data)
        try:
            fd = files.open_regular(self.path, files.READ_WRITE)
        except OSError as error:  # the open file has no name any more
            raise files.SyncError.of(error) from error
        self.close()
        self.fd, self.digest = fd, digest
        self.size_bytes = self.written_bytes = len(data)

    def close(self) -> None:
        """Close the file. Every change that counts was synced, so an error says nothing."""
        with suppress(OSError):
            files.close(self.fd)


class Copies:
    """The copies of one store.

    Attributes:
        tree: the znodes as the newest copy has them.
        is_new: no log dir had a copy.
        failures: the log dirs that failed, with their errors. They are used again after an open.
    """

    def __init__(
        self,
        log_dirs: Sequence[str],
        settings: EmbeddedSettings,
        on_failure: FailureCallback = lambda path, error: None,
    ) -> None:
        """Read the journals of all log dirs, and bring each one up to date.

        Raises:
            CopyDamagedError: a copy has wrong bytes, or is a file of another kind.
            CopyForeignError: the copies belong to different stores.
            CopyForkedError: different changes were made to the copies.
            CopyFullError: no copy can be written, because a disk is full.
            CopiesOfflineError: no copy can be used, or none is found while a disk cannot be read.
        """
        self._settings, self._on_failure = settings, on_failure
        self.failures: dict[str, OSError] = {}
        self._copies: dict[str, _Copy] = {}
        self._is_undecided = False
        found = {path: self._read(path) for path in log_dirs}
        journals = {path: journal for path, journal in found.items() if journal is not None}
        self.is_new = not journals
        if self.is_new and self.failures:
            raise CopiesOfflineError(self.failures, "no copy of the store is found")
        _check_ids(journals)
        newest = max(journals.values(), key=lambda one: one.tree.zxid, default=None)
        _check_forks(journals, newest)
        self.tree = newest.tree if newest else Tree()
        self._store_id = newest.store_id if newest else uuid.uuid4().hex
        try:
            for path in log_dirs:
                if path not in self.failures:
                    self._begin(path, journals.get(path))
            self._check_space()
            self._check_working()
        except BaseException:
            self.close()
            raise

    def _read(self, path: str) -> Journal | None:
        """Read the journal of a log dir; None if it has none, or if the disk failed."""
        name = os.path.join(path, JOURNAL_NAME)
        try:
            if not files.exists(name):
                files.lstat(path)  # a log dir that is missing is not a new one
                return None
            data = files.read_file(name, JOURNAL_BYTES_MAX)
        except files.UnfitError as error:
            raise CopyDamagedError(name, 0, error.reason) from None
        except OSError as error:
            if error.errno in PROCESS_IS_FULL:
                raise CopiesOfflineError({path: error}) from error
            self._fail(path, error)
            return None
        return decode_journal(data, name)

    def _begin(self, path: str, journal: Journal | None) -> None:
        """Open the journal of a log dir; write it anew if it has not the newest state."""
        self._remove_unfinished(path)
        if path in self.failures:
            return
        is_newest = (
            journal is not None
            and not journal.is_torn
            and (journal.tree.zxid, journal.tree.nodes) == (self.tree.zxid, self.tree.nodes)
        )
        if journal is not None and is_newest:
            self._open(path, journal.size_bytes, journal.digest, journal.written_bytes)
        else:
            self._write_first(path)

    def _write_first(self, path: str) -> None:
        """Write and open a whole journal at an open."""
        name = os.path.join(path, JOURNAL_NAME)
        data, digest = encode_journal(self._store_id, self.tree)
        try:
            files.write_atomically(name, data)
        except OSError as error:
            if error.errno in PROCESS_IS_FULL and not files.is_of_sync(error):
                raise CopiesOfflineError({path: error}) from error
            self._fail(path, error)
        else:
            self._open(path, len(data), digest, len(data))

    def _remove_unfinished(self, path: str) -> None:
        """Remove the new journals that a crash left unfinished."""
        try:
            for name in files.names(path):
                if name.startswith(f"{JOURNAL_NAME}.") and name.endswith(".tmp"):
                    files.unlink(os.path.join(path, name))
        except OSError as error:
            if error.errno not in NOT_OF_THE_DISK:
                self._fail(path, error)

    # --- changes ----------------------------------------------------------------------------------

    def append(self, draft: Draft) -> None:
        """Write a change to all log dirs, durably; `confirm` must follow.

        Raises:
            CopyFullError: a disk is full; no log dir has the change. If the change only deletes,
                all disks are full.
            CopiesOfflineError: no log dir works, or an earlier change has an unknown outcome.
        """
        if self._is_undecided:
            what = "an earlier change was interrupted, so open the store again"
            raise CopiesOfflineError(self.failures, what)
        self._check_working()
        self._is_undecided = True
        before = len(self._copies)
        full = self._on_each(lambda copy: copy.append(draft))
        if _only_deletes(draft) and self._others_have_space(full):
            self._leave_out(full)
        elif full:
            self._on_each(_Copy.take_back)
            if len(self._copies) < before:
                what = "a change could not be taken back, so it may have happened"
                raise CopiesOfflineError(self.failures, f"{what}; open the store again")
            self._is_undecided = False
            raise CopyFullError(os.path.join(next(iter(full)), JOURNAL_NAME))
        self._check_working()

    def confirm(self) -> None:
        """Take note that the tree has the change of `append`; a long journal is written anew."""
        for copy in self._copies.values():
            copy.confirm()
        least = self._settings.rewrite_bytes_min
        long = [path for path, copy in self._copies.items() if _is_long(copy, least)]
        if long:
            journal = encode_journal(self._store_id, self.tree)
            seconds = len(journal[0]) / REWRITE_BYTES_PER_SECOND
            for path in self._on_each(lambda copy: copy.replace(*journal), long, seconds):
                copy = self._copies[path]
                copy.written_bytes = copy.size_bytes  # its disk is full: try again later
        self._is_undecided = False

    def _on_each(
        self,
        call: Callable[[_Copy], object],
        paths: Sequence[str] | None = None,
        seconds_more: float = 0.0,
    ) -> dict[str, OSError]:
        """Call the disk of each copy; a log dir that fails or hangs is left out.

        Returns:
            the errors of the log dirs whose disk is full, or for whose calls the process lacked
            something.
        """
        calls = {
            path: copy.worker.begin(partial(call, copy))
            for path, copy in list(self._copies.items())
            if paths is None or path in paths
        }
        wait_for(calls.values(), self._settings.disk_seconds_max + seconds_more)
        kept = {}
        for path, made in calls.items():
            has_answered = made.is_over.is_set()
            hangs = TimeoutError(errno.ETIMEDOUT, "the disk hangs, and others do not", path)
            error = made.error if has_answered else hangs
            if isinstance(error, OSError):
                if error.errno in NOT_OF_THE_DISK and not files.is_of_sync(error):
                    kept[path] = error
                else:
                    self._fail(path, error)
            elif error is not None:
                raise error
        return kept

    def _open(self, path: str, size_bytes: int, digest: int, written_bytes: int) -> None:
        """Open the journal of a log dir for changes, and start its worker."""
        name = os.path.join(path, JOURNAL_NAME)
        try:
            fd = files.open_regular(name, files.READ_WRITE)
        except OSError as error:
            self._fail(path, error)
            return
        try:
            worker = DiskWorker(path)
        except BaseException:
            files.close(fd)
            raise
        self._copies[path] = _Copy(worker, name, fd, size_bytes, digest, written_bytes)

    # --- log dirs that fail -----------------------------------------------------------------------

    def _fail(self, path: str, error: OSError) -> None:
        """Leave a log dir out until the next open."""
        self._close(path)
        self.failures[path] = error
        try:
            self._on_failure(path, error)
        except Exception:  # noqa: BLE001 - the callback is a caller's; the change must go on
            _log.exception("the callback for the failure of %s failed", path)

    def leave_out(self, path: str, error: OSError) -> None:
        """Leave out a log dir that its owner releases; if it is not used, do nothing."""
        if path in self._copies:
            self._fail(path, error)

    def _leave_out(self, full: dict[str, OSError]) -> None:
        """Leave out log dirs whose disk is full, without the part of a change that they have."""
        self._on_each(_Copy.take_back, list(full))
        for path in full.keys() & self._copies.keys():
            self._fail(path, full[path])

    def _others_have_space(self, full: dict[str, OSError]) -> bool:
        """Decide whether there are full disks, and whether others have space."""
        are_full = all(error.errno in DISK_IS_FULL for error in full.values())
        return are_full and 0 < len(full) < len(self._copies)

    def _check_space(self) -> None:
        """Raise CopyFullError if no copy could be opened, and one for want of space."""
        for path, error in self.failures.items():
            if not self._copies and error.errno in DISK_IS_FULL and not files.is_of_sync(error):
                raise CopyFullError(os.path.join(path, JOURNAL_NAME)) from error

    def _check_working(self) -> None:
        if not self._copies:
            raise CopiesOfflineError(self.failures)

    def _close(self, path: str) -> Call | None:
        """Have the worker close the file of a log dir, after a call that may still hang."""
        copy = self._copies.pop(path, None)
        return copy.worker.end(copy.close) if copy is not None else None

    def close(self) -> None:
        """Close the files; a second close does nothing."""
        for call in [self._close(path) for path in list(self._copies)]:
            if call is not None:
                call.is_over.wait(self._settings.disk_seconds_max)


def _is_long(copy: _Copy, bytes_min: int) -> bool:
    """Decide whether the changes in a journal are so large that it is written anew."""
    return copy.size_bytes - copy.written_bytes > max(bytes_min, copy.written_bytes)


def _only_deletes(draft: Draft) -> bool:
    """Decide whether a change only deletes, which may be what makes space."""
    return all(row[0] == "delete" for row in draft.rows)


def _check_ids(journals: dict[str, Journal]) -> None:
    """Raise CopyForeignError if the log dirs have copies of different stores."""
    first: tuple[str, str] | None = None
    for path, journal in journals.items():
        name = os.path.join(path, JOURNAL_NAME)
        first = first or (name, journal.store_id)
        if journal.store_id != first[1]:
            raise CopyForeignError(name, journal.store_id, *first)


def _check_forks(journals: dict[str, Journal], newest: Journal | None) -> None:
    """Raise CopyForkedError if the newest copy does not continue another one."""
    for path, journal in journals.items():
        if newest is not None and not _continues(newest.tree, journal.tree):
            (first,) = (place for place, one in journals.items() if one is newest)
            paths = [os.path.join(place, JOURNAL_NAME) for place in (path, first)]
            raise CopyForkedError(paths[0], journal.tree.zxid, paths[1], newest.tree.zxid)


def _continues(newer: Tree, older: Tree) -> bool:
    """Decide whether a tree can come from an older one: what was not written since is the same.

    A fork stays unnoticed if all that it wrote was written again, or deleted, in the newer tree.
    """
    if newer.zxid == older.zxid:
        return newer.nodes == older.nodes
    # without `created`, the last field: a new child changes it, and nothing else of its parent
    return all(
        path in older.nodes and older.nodes[path][:-1] == node[:-1]
        for path, node in newer.nodes.items()
        if node.mzxid <= older.zxid
    )
