"""Keep a copy of an embedded store's journal in each log dir, with the same changes.

A change is complete when it is durable in every log dir that works, and at least one log dir works.
If a disk fails, or hangs while other disks answer, its log dir is left out. The other log dirs
record which log dir is left out before the next change is complete. If a disk is full, the change
is removed again from all log dirs, and the caller gets an error. There are two exceptions: an open,
and a change that only deletes. In these cases, if a disk is full and another disk has space, the
log dir with the full disk is left out. If no missing copy can be newer, an open uses the newest
copy (see `members`). The content of the newest copy then replaces the content of the other copies.

The caller must hold the locks of the log dirs. Only one thread at a time calls `append`.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from broker.coordination.disk_workers import Call, DiskWorker, HangingError, ask, is_free
from broker.coordination.errors import CopiesOfflineError, CopyDamagedError, CopyFullError
from broker.coordination.found_copies import Past, is_up_to_date, newest_of
from broker.coordination.journal import JOURNAL_NAME, Journal, decode_journal, encode_znodes
from broker.coordination.journal_file import JournalFile, read_bytes, read_size
from broker.coordination.late_copies import LateCopies
from broker.coordination.members import Membership, new_id
from broker.coordination.tree import Draft, EmbeddedSettings, Tree
from logstore.disk import files
from logstore.disk.failures import DISK_IS_FULL, PROCESS_IS_FULL

BYTES_PER_SECOND = 5 << 20  # if a disk reads or writes a journal more slowly, it counts as hanging
NOT_OF_THE_DISK = DISK_IS_FULL | PROCESS_IS_FULL

_log = logging.getLogger(__name__)

FailureCallback = Callable[[str, OSError], object]


class Copies:
    """The journals of one store, one in each log dir.

    Attributes:
        tree: the znodes of the newest copy.
        is_new: whether no log dir had a copy.
        failures: the log dirs that are left out, with their errors. `take_in` uses some of the
            left-out log dirs again. A log dir stays in `failures` until its copy is a member.
    """

    def __init__(
        self,
        log_dirs: Sequence[str],
        settings: EmbeddedSettings,
        on_failure: FailureCallback = lambda path, error: None,
        *,
        accept_incomplete: bool = False,
        past: Past | None = None,
    ) -> None:
        """Read the journals of all log dirs, and bring them up to date.

        Args:
            accept_incomplete: use the newest copy that is found, even if a missing copy may be
                newer.
            past: the store as this process used it last; newer than the copies that it covers.

        Raises:
            CopyDamagedError: a copy has wrong bytes, or is a file of another kind.
            CopyForeignError: the copies belong to different stores.
            CopyForkedError: different changes were made to the copies.
            CopiesIncompleteError: copies that may be newer are missing.
            CopyFullError: no copy can be written, because a disk is full.
            CopiesOfflineError: no copy can be used, or no copy was found and a disk cannot be read.
        """
        self._settings, self._on_failure = settings, on_failure
        self.failures: dict[str, OSError] = {}
        self._released: set[str] = set()  # log dirs that `leave_out` has left out
        self._workers: dict[str, DiskWorker] = {}
        self._copies: dict[str, JournalFile] = {}
        self._late = LateCopies(settings.return_seconds)
        self._is_undecided, self._is_epoch_due = False, True
        self._begun = set() if past is None else set(past.begun)
        try:
            self._start_workers(log_dirs)
            journals = self._read()
            is_past = past is not None and past.covers(journals)
            self.is_new = not journals and not is_past
            if self.is_new and self.failures:
                raise CopiesOfflineError(self.failures, "no copy of the store is found")
            if self.is_new:
                self._found()
            else:
                newest = past if past and is_past else newest_of(journals, accept_incomplete)
                self.tree, self._store_id = newest.tree, newest.store_id
                self._membership = newest.membership
                self._begin(journals, newest)
            self._settle(self.tree.zxid, is_accepted=accept_incomplete)
            self._check_space()
            self._check_working()
        except BaseException:
            self.close()
            raise

    # --- the open ---------------------------------------------------------------------------------

    def _start_workers(self, log_dirs: Sequence[str]) -> None:
        """Start a thread for each log dir; leave out a log dir if an earlier store's call hangs."""
        deadline = time.monotonic() + self._settings.disk_seconds_max
        for path in log_dirs:
            if is_free(path, max(0.0, deadline - time.monotonic())):
                self._workers[path] = DiskWorker(path)
            else:
                text = "a call that a closed store made to the disk still hangs"
                self._fail(path, TimeoutError(errno.ETIMEDOUT, text, path))

    def _read(self) -> dict[str, Journal]:
        """Read the journals that exist."""
        found = self._at_open({path: partial(read_size, path) for path in self._workers})
        sizes = {path: size for path, size in found.items() if size is not None}
        seconds = max(sizes.values(), default=0) / BYTES_PER_SECOND
        data = self._at_open({path: partial(read_bytes, path) for path in sizes}, seconds)
        return {
            path: decode_journal(data.pop(path), os.path.join(path, JOURNAL_NAME))
            for path in list(data)
        }

    def _found(self) -> None:
        """Create the copies of a new store. At first, only one copy is a member."""
        self.tree, self._store_id = Tree(), new_id()
        for path in list(self._workers):
            copy_id = new_id()
            self._membership = Membership.first(copy_id, path)
            self._begun.add(self._membership.epoch.epoch_id)
            self._open({path: partial(JournalFile.created, path, copy_id, self._znodes())})
            if self._copies:
                break
        self._begin({}, None)

    def _begin(self, journals: Mapping[str, Journal], newest: Journal | Past | None) -> None:
        """Open the journals that are up to date. Rewrite the other journals."""
        ids: set[str] = set()
        calls: dict[str, Callable[[], JournalFile]] = {}
        znodes: tuple[bytes, int] | None = None
        for path in [one for one in self._workers if one not in self._copies]:
            journal = journals.get(path)
            is_known = journal is not None and journal.copy_id not in ids
            copy_id = journal.copy_id if journal is not None and is_known else new_id()
            ids.add(copy_id)
            if journal and newest and is_known and is_up_to_date(journal, newest):
                calls[path] = partial(JournalFile.opened, path, journal)
            else:
                znodes = znodes or self._znodes()
                calls[path] = partial(JournalFile.created, path, copy_id, znodes)
        self._open(calls, len(znodes[0]) if znodes else 0)

    def _open(self, calls: Mapping[str, Callable[[], JournalFile]], size_bytes: int = 0) -> None:
        self._copies.update(self._at_open(calls, size_bytes / BYTES_PER_SECOND))

    def _at_open(
        self, calls: Mapping[str, Callable[[], Any]], seconds_more: float = 0.0
    ) -> dict[str, Any]:
        """Call disks. Leave out log dirs that fail; return the results of all other log dirs."""
        seconds = self._settings.disk_seconds_max + seconds_more
        results, errors = ask(dict(self._workers), calls, seconds)
        for path, error in errors.items():
            if isinstance(error, files.UnfitError):
                raise CopyDamagedError(os.path.join(path, JOURNAL_NAME), 0, error.reason) from None
            if error.errno in PROCESS_IS_FULL and not files.is_of_sync(error):
                raise CopiesOfflineError({path: error}) from error
            self._fail(path, error)
        return results

    def past(self, tree: Tree) -> Past:
        """Return the state for the next open in this process."""
        return Past(self._store_id, self._membership, tree, frozenset(self._begun))

    # --- changes ----------------------------------------------------------------------------------

    def append(self, draft: Draft) -> None:
        """Write a change durably to all log dirs. The caller must call `confirm` next.

        Raises:
            CopyFullError: a disk is full, and no log dir has the change. If the change only
                deletes, CopyFullError means that all disks are full.
            CopiesOfflineError: no log dir works, or an earlier change has an unknown outcome.
        """
        if self._is_undecided:
            what = "an earlier change was interrupted, so open the store again"
            raise CopiesOfflineError(self.failures, what)
        self._check_working()
        self._is_undecided = True
        self._rewrite([path for path, copy in self._copies.items() if copy.is_at_bound()])
        self._refuse(self._settle(self.tree.zxid))
        self._check_working()
        before = len(self._copies)
        full = self._on_each(lambda copy: copy.append(draft))
        if _only_deletes(draft) and self._others_have_space(full):
            self._leave_out(full)
        elif full:
            self._on_each(JournalFile.take_back)
            if len(self._copies) < before:
                raise self._unknown("a change could not be taken back")
            self._refuse(full)
        self._confirm_lines()
        if self._settle(draft.zxid):
            raise self._unknown("no disk has space to record which log dirs still work")
        self._check_working()
        self._late.follow(draft, self._membership)

    def _refuse(self, full: Mapping[str, OSError]) -> None:
        """If disks are full, raise CopyFullError, because no log dir has the change."""
        if full:
            self._is_undecided = False
            raise CopyFullError(os.path.join(next(iter(full)), JOURNAL_NAME))

    def _unknown(self, what: str) -> CopiesOfflineError:
        may = "so the change may have happened; open the store again"
        return CopiesOfflineError(self.failures, f"{what}, {may}")

    def confirm(self) -> None:
        """Complete the change of `append`. Rewrite long journals."""
        least = self._settings.rewrite_bytes_min
        self._rewrite([path for path, copy in self._copies.items() if copy.is_long(least)])
        self._settle(self.tree.zxid)
        self._is_undecided = False

    def _rewrite(self, paths: Sequence[str]) -> None:
        """Rewrite journals. If a disk has no space for this, the old journal remains."""
        if paths:
            znodes = self._znodes()
            seconds = len(znodes[0]) / BYTES_PER_SECOND
            least = self._settings.rewrite_bytes_min
            for path in self._on_each(lambda copy: copy.replace(znodes), paths, seconds):
                copy = self._copies[path]
                copy.long_bytes = copy.size_bytes + least  # try again after more changes

    def take_in(self) -> None:
        """Let the log dirs that are left out catch up, and then use them again.

        The caller must call `take_in` from time to time, but never at the same time as `append` or
        `confirm`.
        """
        if self._is_undecided or not self._copies:
            return
        unused = self.failures.keys() - self._released - self._copies.keys()
        waiting = {path: one for path, one in self.failures.items() if path in unused}
        level = self._late.advance(waiting, self._membership, self._znodes)
        self.failures.update(waiting)
        for path, late in level.items():
            self._workers[path], self._copies[path] = late.worker, late.file
        self._is_undecided = True
        self._settle(self.tree.zxid)
        self._is_undecided = False  # if `_settle` raises, some journals may lack a line

    def _settle(self, zxid: int, *, is_accepted: bool = False) -> dict[str, OSError]:
        """If the members have changed, or after an open, write the members into all copies.

        A later open trusts the members of the last step that the members themselves have recorded.
        So if no member has written down a step, the other copies are not used, and the store stops.

        Args:
            zxid: the last change that the copies have.
            is_accepted: whether an operator has accepted the copies, even if none of them is a
                member.

        Returns:
            The errors of the log dirs, if all their disks are full, so that no copy has the new
            members.
        """
        while copies := dict(self._copies):
            wanted = {copy.copy_id: path for path, copy in copies.items()}
            step = self._membership.step_to(wanted, zxid)
            if step is None and not self._is_epoch_due:
                break
            membership = step or self._membership.renewed(zxid)
            self._begun.add(membership.epoch.epoch_id)
            full = self._on_each(partial(JournalFile.append_epoch, membership=membership))
            if full and full.keys() == self._copies.keys():
                self._on_each(JournalFile.take_back)
                return full
            self._leave_out(full)
            if not is_accepted and not self._has_member():
                self._leave_out_unrecorded()
                break
            self._confirm_lines()
            self._membership, self._is_epoch_due = membership, False
            for path, copy in self._copies.items():
                if copy.copy_id in membership.members:
                    self.failures.pop(path, None)
        return {}

    def _has_member(self) -> bool:
        return any(copy.copy_id in self._membership.members for copy in self._copies.values())

    def _leave_out_unrecorded(self) -> None:
        """Leave out the copies that are not members yet, because all members failed too early."""
        for path in list(self._copies):
            text = "all members failed before they recorded that this copy has all changes"
            error = self.failures.get(path)
            self._fail(path, error or OSError(errno.ESTALE, text, path))

    def _confirm_lines(self) -> None:
        for copy in list(self._copies.values()):
            copy.confirm()

    def _znodes(self) -> tuple[bytes, int]:
        return encode_znodes(self._store_id, self._membership, self.tree)

    # --- the disks --------------------------------------------------------------------------------

    def _on_each(
        self,
        call: Callable[[JournalFile], object],
        paths: Sequence[str] | None = None,
        seconds_more: float = 0.0,
    ) -> dict[str, OSError]:
        """Call the disk of each copy. If a log dir fails or hangs, leave it out.

        Returns:
            The errors of log dirs that are not left out: the disk is full, or the process lacks
            something, such as memory.
        """
        chosen = {
            path: partial(call, copy)
            for path, copy in list(self._copies.items())
            if paths is None or path in paths
        }
        seconds, kept = self._settings.disk_seconds_max + seconds_more, {}
        for path, error in ask(dict(self._workers), chosen, seconds)[1].items():
            if error.errno in NOT_OF_THE_DISK and not files.is_of_sync(error):
                kept[path] = error
            else:
                self._fail(path, error)
        return kept

    # --- log dirs that fail -----------------------------------------------------------------------

    def _fail(self, path: str, error: OSError) -> None:
        """Leave a log dir out."""
        self._end(path, error.call if isinstance(error, HangingError) else None)
        self.failures[path] = error
        self._late.left_out(path)
        try:
            self._on_failure(path, error)
        except Exception:  # noqa: BLE001 - the callback is not ours; the change continues
            _log.exception("the callback for the failure of %s failed", path)

    def leave_out(self, path: str, error: OSError) -> None:
        """Leave out a log dir until the next open, because its owner releases it."""
        self._released.add(path)
        self._late.drop(path)
        if path in self._copies:
            self._fail(path, error)

    def _leave_out(self, full: Mapping[str, OSError]) -> None:
        """Cut incomplete lines off the journals on full disks. Leave out their log dirs."""
        self._on_each(JournalFile.take_back, list(full))
        for path in full.keys() & self._copies.keys():
            self._fail(path, full[path])

    def _others_have_space(self, full: Mapping[str, OSError]) -> bool:
        """Report whether at least one disk is full, and at least one disk has space."""
        are_full = all(error.errno in DISK_IS_FULL for error in full.values())
        return are_full and 0 < len(full) < len(self._copies)

    def _check_space(self) -> None:
        """Raise CopyFullError if no copy could be opened, and at least one disk is full."""
        for path, error in self.failures.items():
            if not self._copies and error.errno in DISK_IS_FULL and not files.is_of_sync(error):
                raise CopyFullError(os.path.join(path, JOURNAL_NAME)) from error

    def _check_working(self) -> None:
        if not self._copies:
            raise CopiesOfflineError(self.failures)

    def _end(self, path: str, hanging: Call | None = None) -> Call | None:
        """Let the worker of a log dir close the journal, after a call that may still hang."""
        copy, worker = self._copies.pop(path, None), self._workers.pop(path, None)
        return worker.end(partial(_close, copy, hanging)) if worker is not None else None

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        deadline = time.monotonic() + self._settings.disk_seconds_max
        for call in [*self._late.end(), *(self._end(path) for path in list(self._workers))]:
            if call is not None:
                call.is_over.wait(max(0.0, deadline - time.monotonic()))


def _only_deletes(draft: Draft) -> bool:
    """Report whether a change only deletes znodes, so that it may free space."""
    return all(row[0] == "delete" for row in draft.rows)


def _close(copy: JournalFile | None, hanging: Call | None) -> None:
    """Close a journal, even if a call that hung has opened it in the meantime."""
    for one in (copy, hanging.result if hanging is not None else None):
        if isinstance(one, JournalFile):
            one.close()
