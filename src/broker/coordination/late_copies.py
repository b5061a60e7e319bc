"""Bring the copies in log dirs that are left out up to date, while their store runs.

If a disk was full or slow, it may work again later. Then its copy is rewritten in the background,
and changes that are made meanwhile are added. When the copy has all changes, the store uses the log
dir again.
"""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from broker.coordination.disk_workers import Call, DiskWorker, is_free
from broker.coordination.journal_file import NOT_OF_THE_DISK, JournalFile
from broker.coordination.members import Membership, new_id
from broker.coordination.tree import Draft
from logstore.disk.gates import LetGoError
from logstore.errors import LogDirError

CALLS_MAX = 1000  # if a copy lacks more changes, it is given up
DOUBLINGS_MAX = 6


class LateCopy:
    """A copy that is being rewritten.

    Attributes:
        membership: the members when the copy began. If the members change, the copy begins again.
    """

    def __init__(self, path: str, membership: Membership, znodes: tuple[bytes, int]) -> None:
        """Begin to write. Raises LogDirError if the process can start no more threads."""
        self.membership, self.worker = membership, DiskWorker(path)
        self._first = self.worker.begin(partial(JournalFile.created, path, new_id(), znodes))
        self._calls: deque[Call] = deque([self._first])

    @property
    def file(self) -> JournalFile:
        """The journal file. The caller must not use the copy before the first call has ended."""
        assert isinstance(self._first.result, JournalFile)
        return self._first.result

    def follow(self, draft: Draft) -> None:
        """Queue a complete change."""
        self._calls.append(self.worker.begin(partial(self._append, draft)))

    def _append(self, draft: Draft) -> None:
        self.file.append(draft)
        self.file.confirm()

    def is_level(self) -> bool:
        """Report whether all changes are on the disk."""
        while self._calls and self._calls[0].is_good:
            self._calls.popleft()
        return not self._calls

    def has_failed(self) -> bool:
        """Report whether the disk has failed again, or the copy is too far behind."""
        return not self.is_level() and (
            self._calls[0].is_over.is_set() or len(self._calls) > CALLS_MAX
        )

    @property
    def error(self) -> BaseException | None:
        """The error of the first call that failed."""
        return self._calls[0].error if self._calls else None

    def end(self) -> Call:
        """Give up the copy. When the disk answers, the file is closed."""
        return self.worker.end(self._close)

    def _close(self) -> None:
        if isinstance(self._first.result, JournalFile):
            self._first.result.close()


class LateCopies:
    """The copies that are catching up, and the times at which other copies begin to do so.

    Args:
        seconds: the time after which the store tries a log dir again. Each further failure doubles
            this time, up to a limit.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._late: dict[str, LateCopy] = {}
        self._due: dict[str, float] = {}
        self._tries: dict[str, int] = {}
        self._given_up: dict[str, Call] = {}  # the last calls; earlier calls may still run

    def left_out(self, path: str) -> None:
        """Remember that a log dir was left out, or that it has failed again."""
        tries = self._tries[path] = self._tries.get(path, -1) + 1
        self._due[path] = time.monotonic() + self._seconds * 2 ** min(tries, DOUBLINGS_MAX)

    def follow(self, draft: Draft, membership: Membership) -> None:
        """Send a complete change to the copies that are catching up.

        If the members have changed, these copies are given up, because they lack the line that
        begins the new epoch. If these copies got further changes, a later open would treat the
        copies as forks.
        """
        for path, late in list(self._late.items()):
            if late.membership == membership:
                late.follow(draft)
            else:
                self._give_up(path)

    def drop(self, path: str) -> None:
        """Give up the copy of a log dir, because its owner releases the log dir."""
        if path in self._late:
            self._give_up(path)

    def _give_up(self, path: str) -> None:
        self._given_up[path] = self._late.pop(path).end()
        self.left_out(path)

    def advance(
        self,
        failures: dict[str, OSError],
        membership: Membership,
        znodes: Callable[[], tuple[bytes, int]],
    ) -> dict[str, LateCopy]:
        """Begin copies that are due, and give up failed copies; return the copies that caught up.

        Args:
            failures: the log dirs that are left out. If a log dir fails again, its error is
                replaced.
            znodes: a function that encodes the present znodes.
        """
        for path, late in list(self._late.items()):
            if late.has_failed() or late.membership != membership:
                # ENOENT is not permanent: an owner that reopens a log dir removes unfinished files
                if isinstance(late.error, OSError) and late.error.errno != errno.ENOENT:
                    failures[path] = late.error
                self._give_up(path)
        for path, error in failures.items():
            is_due = path not in self._late and self._due[path] <= time.monotonic()
            if is_due and _may_pass(error) and is_free(path):
                self._begin(path, membership, znodes())
        level = [path for path, late in self._late.items() if late.is_level()]
        return {path: self._late.pop(path) for path in level}

    def _begin(self, path: str, membership: Membership, znodes: tuple[bytes, int]) -> None:
        try:
            self._late[path] = LateCopy(path, membership, znodes)
        except LogDirError:  # the process can start no more threads
            self.left_out(path)

    def end(self) -> list[Call]:
        """Give up all copies; return the last calls of all copies that were given up so far."""
        for path in list(self._late):
            self._given_up[path] = self._late.pop(path).end()
        return list(self._given_up.values())


def _may_pass(error: OSError) -> bool:
    """Report whether a disk may work again after an error.

    After any other error, the store does not use the log dir before its next open.
    """
    return isinstance(error, TimeoutError | LetGoError) or error.errno in NOT_OF_THE_DISK
