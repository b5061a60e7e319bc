"""Keep the journals of an embedded store in its log dirs: one copy in each, with the same changes.

A change counts when every log dir that works has it durably, and at least one works. If a disk
fails, its log dir is left out from then on, and the others continue. If a disk is full, the change
is taken back from all log dirs, and the caller gets an error. At an open, the copy with the highest
zxid wins, and the other copies are written anew from it.

The caller owns the log dirs: it holds their locks. One thread at a time calls `append`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from broker.coordination.errors import (
    CopiesOfflineError,
    CopyDamagedError,
    CopyForeignError,
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
NOT_OF_THE_DISK = DISK_IS_FULL | PROCESS_IS_FULL

FailureCallback = Callable[[str, OSError], object]


@dataclass(slots=True)
class _Copy:
    """The open journal of one log dir.

    Attributes:
        size_bytes: where the next change is written.
        digest: the checksum of the last line.
        written_bytes: the size of the journal when it was last written anew.
    """

    fd: int
    size_bytes: int
    digest: int
    written_bytes: int
    next_digest: int = 0
    next_size_bytes: int = 0


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
            CopyFullError: a copy had to be written, and its disk is full.
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
        self.tree = newest.tree if newest else Tree()
        self._store_id = newest.store_id if newest else uuid.uuid4().hex
        try:
            for path in log_dirs:
                if path not in self.failures:
                    self._begin(path, journals.get(path))
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
        elif not self._write_anew(path, *encode_journal(self._store_id, self.tree)):
            raise CopyFullError(os.path.join(path, JOURNAL_NAME))

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
            CopyFullError: a disk is full; no log dir has the change.
            CopiesOfflineError: no log dir works, or an earlier change has an unknown outcome.
        """
        if self._is_undecided:
            what = "an earlier change was interrupted, so open the store again"
            raise CopiesOfflineError(self.failures, what)
        self._check_working()
        self._is_undecided = True

        def write(copy: _Copy) -> None:
            place = (copy.digest, copy.size_bytes)
            line, copy.next_digest = encode_change(draft.zxid, draft.rows, *place)
            copy.next_size_bytes = copy.size_bytes + len(line)
            files.write_fully(copy.fd, [line], copy.size_bytes)

        full = self._on_each(write)
        if full is not None:
            self._take_back()
            raise CopyFullError(os.path.join(full, JOURNAL_NAME))
        self._on_each(lambda copy: files.sync_data(copy.fd))
        self._check_working()

    def confirm(self) -> None:
        """Take note that the tree has the change of `append`; a long journal is written anew."""
        self._on_each(_advance)
        self._rewrite_long_ones()
        self._is_undecided = False

    def _on_each(self, call: Callable[[_Copy], object]) -> str | None:
        """Call the disk of each copy; a log dir that fails is left out. Returns a full log dir."""
        full = None
        for path, copy in list(self._copies.items()):
            try:
                call(copy)
            except OSError as error:
                if error.errno in DISK_IS_FULL and not files.is_of_sync(error):
                    full = path
                else:
                    self._fail(path, error)
        return full

    def _take_back(self) -> None:
        """Cut the change off that could not be written to all copies, durably."""
        before = len(self._copies)

        def cut(copy: _Copy) -> None:
            try:
                files.ftruncate(copy.fd, copy.size_bytes)
                files.sync_data(copy.fd)
            except OSError as error:  # also of a full disk
                raise files.SyncError.of(error) from error

        self._on_each(cut)
        if len(self._copies) < before:
            what = "a change could not be taken back, so it may have happened; open the store again"
            raise CopiesOfflineError(self.failures, what)
        self._is_undecided = False

    # --- whole journals ---------------------------------------------------------------------------

    def _rewrite_long_ones(self) -> None:
        journal: tuple[bytes, int] | None = None
        for path, copy in list(self._copies.items()):
            changes_bytes = copy.size_bytes - copy.written_bytes
            if changes_bytes > max(self._settings.rewrite_bytes_min, copy.written_bytes):
                journal = journal or encode_journal(self._store_id, self.tree)
                if not self._write_anew(path, *journal):
                    copy.written_bytes = copy.size_bytes  # the disk is full: try again later

    def _write_anew(self, path: str, data: bytes, digest: int) -> bool:
        """Replace the journal of a log dir by one without changes; False if the disk is full."""
        try:
            files.write_atomically(os.path.join(path, JOURNAL_NAME), data)
        except OSError as error:
            if error.errno in NOT_OF_THE_DISK and not files.is_of_sync(error):
                return False
            self._fail(path, error)
        else:
            self._open(path, len(data), digest, len(data))
        return True

    def _open(self, path: str, size_bytes: int, digest: int, written_bytes: int) -> None:
        """Open the journal of a log dir for changes; the one that was open before is closed."""
        try:
            fd = files.open_regular(os.path.join(path, JOURNAL_NAME), files.READ_WRITE)
        except OSError as error:
            self._fail(path, error)
            return
        self._close(path)
        self._copies[path] = _Copy(fd, size_bytes, digest, written_bytes)

    # --- log dirs that fail -----------------------------------------------------------------------

    def _fail(self, path: str, error: OSError) -> None:
        """Leave a log dir out until the next open."""
        self._close(path)
        self.failures[path] = error
        self._on_failure(path, error)

    def _check_working(self) -> None:
        if not self._copies:
            raise CopiesOfflineError(self.failures)

    def _close(self, path: str) -> None:
        copy = self._copies.pop(path, None)
        if copy is not None:
            with suppress(OSError):  # every change was synced
                files.close(copy.fd)

    def close(self) -> None:
        """Close the files; a second close does nothing."""
        for path in list(self._copies):
            self._close(path)


def _advance(copy: _Copy) -> None:
    copy.size_bytes, copy.digest = copy.next_size_bytes, copy.next_digest


def _check_ids(journals: dict[str, Journal]) -> None:
    """Raise CopyForeignError if the log dirs have copies of different stores."""
    first: tuple[str, str] | None = None
    for path, journal in journals.items():
        name = os.path.join(path, JOURNAL_NAME)
        first = first or (name, journal.store_id)
        if journal.store_id != first[1]:
            raise CopyForeignError(name, journal.store_id, *first)
