"""Claim a log dir for one change: a second change of it is refused, and of another one it is not.

A claim is no lock: nobody waits for one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from logstore.disk.failures import reason_of
from logstore.errors import LogDirError, LogDirOfflineError


class Claim:
    """One change of a log dir that is under way; only the changing thread's frame refers to it."""


class DirClaims:
    """The log dirs of a store that are being changed."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        # By path, under `_changing`. Weak references: a thread that was interrupted on its way in
        # or out claims nothing any more.
        self._claims: WeakValueDictionary[str, Claim] = WeakValueDictionary()

    @contextmanager
    def change_of(self, path: str) -> Iterator[str]:
        """Claim a log dir for one change; gives its path.

        Raises:
            LogDirError: retriable; another change of it is under way.
            LogDirOfflineError: the change met an error of its disk.
        """
        mine = Claim()
        with self._changing:
            if path in self._claims:
                raise LogDirError(
                    path=path, reason="another change of it is under way", retriable=True
                )
            self._claims[path] = mine
        try:
            yield path
        except OSError as error:  # from a step before the log dir could report its own failure
            raise LogDirOfflineError(path=path, reason=reason_of(error)) from error
        finally:
            with self._changing:
                del self._claims[path], mine
