"""Give the packages above the store their access to it: `LogStore.host`.

A mover, and later a broker, works on a store: it reserves replicas, has directories purged, and
must stop before the logs are closed. It uses this class and public methods only.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from logstore.disk.log_dir import LogDir
from logstore.store.replicas import Replicas

Callback = Callable[[], object]


class Keeper(Protocol):
    """Removes directories of one log dir in the background."""

    def purge(self, path: str) -> None:
        """Have a directory removed."""

    def wait_idle(self, timeout: float) -> object:
        """Wait until everything that was requested is removed."""


class StoreHost:
    """Gives the store's log dirs, replicas and events to the packages that work on it.

    Args:
        check: raises LogClosedError if the store is closed, or was opened before a fork.
        check_owner: raises what `check` does, and ReadOnlyStoreError for a view.
        replicas: the store's replicas: which are open and where, reserved, moving, or to be purged.
        dir_named: finds a log dir by any path that leads to it.
        keepers: by the path of the log dir; the store adds and removes entries.
    """

    def __init__(
        self,
        check: Callable[[], None],
        check_owner: Callable[[], object],
        replicas: Replicas,
        dir_named: Callable[[str | os.PathLike[str]], LogDir],
        keepers: Mapping[str, Keeper],
    ) -> None:
        self.replicas = replicas
        self._check = check
        self._check_owner = check_owner
        self._dir_named = dir_named
        self._keepers = keepers
        self._before_close: list[Callback] = []
        self._on_answer: list[Callback] = []
        self._on_close: list[list[Callback]] = []  # each in a list of its own, told apart by it
        self._closing = threading.RLock()  # a callback may close the store

    def check(self) -> None:
        """Raise LogClosedError if the store is closed, or was opened before a fork."""
        self._check()

    def check_owner(self) -> None:
        """Raise ReadOnlyStoreError unless this process may change the store; and as `check`."""
        self._check_owner()

    # --- log dirs and replicas --------------------------------------------------------------------

    @property
    def log_dirs(self) -> tuple[LogDir, ...]:
        """The store's log dirs, offline ones included."""
        return self.replicas.log_dirs

    def dir_named(self, path: str | os.PathLike[str]) -> LogDir:
        """Find a log dir by any path that leads to it; raises LogDirError if there is none."""
        return self._dir_named(path)

    def dir_of(self, path: str) -> LogDir:
        """Find a log dir by its own `path`; raises LogDirError once it was removed."""
        return self.replicas.dir_of(path)

    # --- directories to be purged -----------------------------------------------------------------

    def purge(self, log_dir: LogDir, path: str) -> None:
        """Have a replica's directory removed in the background, if its log dir serves."""
        keeper = self._keepers.get(log_dir.path)
        if keeper is not None:
            keeper.purge(path)

    def wait_purged(self, timeout: float) -> None:
        """Wait until every log dir has removed what was requested, each for at most `timeout`."""
        for keeper in list(self._keepers.values()):
            keeper.wait_idle(timeout)

    # --- events -----------------------------------------------------------------------------------

    def before_close(self, callback: Callback) -> None:
        """Register a call to make before the store closes its logs; an exception ends the close."""
        self._before_close.append(callback)

    def on_close(self, callback: Callback) -> Callable[[], None]:
        """Call something once, before a close, which waits for it; see `LogStore.on_close`."""
        entry = [callback]
        self._on_close.append(entry)

        def withdraw() -> None:
            entry.clear()
            with suppress(ValueError):
                self._on_close.remove(entry)

        return withdraw

    def on_answer(self, callback: Callback) -> None:
        """Register a call to make when a log dir answers again or returns; it must not wait."""
        self._on_answer.append(callback)

    def forget(self, callback: Callback) -> None:
        """Unregister a function; unregistering it twice is allowed."""
        for listed in (self._before_close, self._on_answer):
            with suppress(ValueError):
                listed.remove(callback)

    def closing(self) -> None:
        """Call those that asked for it before the logs are closed.

        A close that comes while another one calls them waits until all were called.
        """
        with self._closing:
            while self._on_close:
                with suppress(IndexError):  # the last one was withdrawn just now
                    for callback in self._on_close.pop():
                        self._call(callback)
        for callback in list(self._before_close):
            callback()

    def _call(self, callback: Callback) -> None:
        try:
            callback()
        except Exception:  # the store is closed nevertheless
            import logging

            text = "a callback of on_close raised"
            logging.getLogger("logstore").warning(text, exc_info=True)

    def answered(self) -> None:
        """Call the functions that wait for a log dir."""
        for callback in list(self._on_answer):
            callback()
