"""Claim a log dir for one change; until this change ends, other changes of the dir are refused.

A claim is not a lock, because no thread waits for a claim. While a log dir is claimed, other log
dirs can be changed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from logstore.disk.failures import reason_of
from logstore.errors import LogDirError, LogDirOfflineError


class Claim:
    """A running change of a log dir; only stack frames of the changing thread refer to a claim."""


class DirClaims:
    """The log dirs of a store that are being changed."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        # Maps the path of a log dir to its claim; guarded by `_changing`.
        # The references are weak.
        # If a thread is interrupted while it makes or ends a claim, its stack frames are dropped.
        # Then the claim ends, too.
        self._claims: WeakValueDictionary[str, Claim] = WeakValueDictionary()

    @contextmanager
    def change_of(self, path: str) -> Iterator[str]:
        """Claim a log dir for one change; the `with` statement gets the path of the log dir.

        Raises:
            LogDirError: another change of the log dir is running; the error is retriable.
            LogDirOfflineError: the disk failed during the change.
        """
        mine = Claim()
        with self._changing:
            if path in self._claims:
                raise LogDirError(
                    path=path, reason="another change of this log dir is running", retriable=True
                )
            self._claims[path] = mine
        try:
            yield path
        except OSError as error:  # some changes do not convert an OSError
            raise LogDirOfflineError(path=path, reason=reason_of(error)) from error
        finally:
            with self._changing:
                del self._claims[path], mine
