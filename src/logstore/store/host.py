"""Give the packages above the store access to the store, through `LogStore.host`.

A mover or a broker works on a store. The mover reserves replicas, asks the store to purge
directories, and must stop before the logs are closed. For this, the mover uses only `StoreHost` and
public methods.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Protocol

from logstore.disk.log_dir import LogDir
from logstore.errors import LogDirError, LogStoreError, PartitionExistsError
from logstore.log.environment import LogEnvironment
from logstore.names import TopicPartition
from logstore.store.replicas import Replicas

Callback = Callable[[], object]
# Every change writes all preferences of a log dir into one file, so their number has a limit.
PREFERENCES_MAX = 10_000


class TooManyPreferencesError(LogDirError):
    """Report that a log dir is already preferred for the largest allowed number of partitions."""


class Keeper(Protocol):
    """Removes directories of one log dir in the background."""

    def purge(self, path: str) -> None:
        """Request the removal of a directory."""

    def wait_idle(self, timeout: float) -> object:
        """Wait until every directory whose removal was requested is removed."""


class StoreHost:
    """Gives the store's log dirs, replicas and events to the packages that work on the store.

    Args:
        check: a function that raises LogClosedError if the store is closed, or was opened before a
            fork.
        check_owner: a function that raises like `check`, and raises ReadOnlyStoreError for a view.
        replicas: the store's replicas, including those that are reserved, moving or to be purged.
        dir_named: a function that finds a log dir by any path that leads to it.
        change_of: a function that claims a log dir for one change; see `DirClaims.change_of`.
        keepers: maps the path of each log dir to its keeper. The store adds and removes entries.
        environment: the objects that the logs of the store share.
    """

    def __init__(
        self,
        check: Callable[[], None],
        check_owner: Callable[[], object],
        replicas: Replicas,
        dir_named: Callable[[str | os.PathLike[str]], LogDir],
        change_of: Callable[[str], AbstractContextManager[object]],
        keepers: Mapping[str, Keeper],
        environment: LogEnvironment,
    ) -> None:
        self.replicas = replicas
        self._check = check
        self._check_owner = check_owner
        self._dir_named = dir_named
        self._change_of = change_of
        self._keepers = keepers
        self._environment = environment
        self._before_close: list[Callback] = []
        self._on_answer: list[Callback] = []
        # Each callback is in its own list, so that two registrations of one function are distinct.
        self._on_close: list[list[Callback]] = []
        self._closing = threading.RLock()  # a callback may close the store

    def check(self) -> None:
        """Raise LogClosedError if the store is closed, or was opened before a fork."""
        self._check()

    def check_owner(self) -> None:
        """Raise ReadOnlyStoreError for a view, and LogClosedError in the same cases as `check`."""
        self._check_owner()

    # --- log dirs and replicas --------------------------------------------------------------------

    @property
    def log_dirs(self) -> tuple[LogDir, ...]:
        """The store's log dirs, including offline log dirs."""
        return self.replicas.log_dirs

    def dir_named(self, path: str | os.PathLike[str]) -> LogDir:
        """Find a log dir by any path that leads to it. Raises LogDirError if there is none."""
        return self._dir_named(path)

    def dir_of(self, path: str) -> LogDir:
        """Find a log dir by its own `path`. Raises LogDirError after the removal of the log dir."""
        return self.replicas.dir_of(path)

    def prefer(
        self, keys: Sequence[TopicPartition], path: str | os.PathLike[str]
    ) -> dict[TopicPartition, LogStoreError]:
        """Durably prefer a log dir for partitions that are created later, with one write.

        Returns:
            The refused partitions, each with its error.

        Raises:
            LogDirError: there is no such log dir, or another change of it is running.
            LogStoreError: the store is a view or closed, or the log dir cannot be written.
        """
        self._check_owner()
        log_dir = self._dir_named(path)
        with self._change_of(log_dir.path):
            return _prefer(self.replicas, log_dir, keys)

    def keep_deletions_if(self, check: Callable[[str, int], bool]) -> None:
        """Let compaction keep the tombstones and markers of some partitions.

        Args:
            check: returns whether compaction of a partition, given by its topic and number, must
                keep them. This function must not wait, and must not raise an error.
        """
        self._environment.keeps_deletions = check

    # --- directories to be purged -----------------------------------------------------------------

    def purge(self, log_dir: LogDir, path: str) -> None:
        """Ask the keeper of a log dir, if there is one, to remove a replica's directory."""
        keeper = self._keepers.get(log_dir.path)
        if keeper is not None:
            keeper.purge(path)

    def wait_purged(self, timeout: float) -> None:
        """Wait until the requested removals are done, at most `timeout` seconds per log dir."""
        for keeper in list(self._keepers.values()):
            keeper.wait_idle(timeout)

    # --- events -----------------------------------------------------------------------------------

    def before_close(self, callback: Callback) -> None:
        """Register a function to call before the logs close.

        If the function raises an error, the close raises this error.
        """
        self._before_close.append(callback)

    def on_close(self, callback: Callback) -> Callable[[], None]:
        """Register a function to call once before a close; see `LogStore.on_close`."""
        entry = [callback]
        self._on_close.append(entry)

        def withdraw() -> None:
            entry.clear()
            with suppress(ValueError):
                self._on_close.remove(entry)

        return withdraw

    def on_answer(self, callback: Callback) -> None:
        """Register a function to call, without waiting, when a log dir answers or returns."""
        self._on_answer.append(callback)

    def forget(self, callback: Callback) -> None:
        """Unregister a function of `before_close` or `on_answer`, if it is registered."""
        for listed in (self._before_close, self._on_answer):
            with suppress(ValueError):
                listed.remove(callback)

    def closing(self) -> None:
        """Call the functions of `on_close` and `before_close`, before the logs are closed.

        If another close is already calling the functions of `on_close`, this close waits for the
        end of these calls.
        """
        with self._closing:
            while self._on_close:
                with suppress(IndexError):  # the last callback was just withdrawn
                    for callback in self._on_close.pop():
                        self._call(callback)
        for callback in list(self._before_close):
            callback()

    def _call(self, callback: Callback) -> None:
        try:
            callback()
        except Exception:  # a failing callback does not stop the close
            import logging

            text = "a callback of on_close raised"
            logging.getLogger("logstore").warning(text, exc_info=True)

    def answered(self) -> None:
        """Call the functions of `on_answer`, because a log dir answers again, or has returned."""
        for callback in list(self._on_answer):
            callback()


def _prefer(
    replicas: Replicas, log_dir: LogDir, keys: Sequence[TopicPartition]
) -> dict[TopicPartition, LogStoreError]:
    """Durably prefer a log dir for partitions that are created later, with at most one write.

    The caller must have claimed the log dir. A preference that is already in force is not written
    again.

    Returns:
        The refused partitions, each with its error.

    Raises:
        LogStoreError: the settings of the log dir cannot be written; nothing was changed.
    """
    settings, refused = log_dir.settings, dict[TopicPartition, LogStoreError]()
    preferred, now_ms = dict(settings.preferred), time.time_ns() // 1_000_000
    for key in dict.fromkeys(keys):
        if key in replicas:
            refused[key] = PartitionExistsError(topic=key.topic, partition=key.partition)
            continue
        elsewhere = [d.settings.preferred.get(key, 0) for d in replicas.log_dirs if d != log_dir]
        latest = max(elsewhere, default=0)
        if preferred.get(key, 0) > latest:
            continue
        if key not in preferred and len(preferred) >= PREFERENCES_MAX:
            reason = f"it is preferred for {PREFERENCES_MAX} partitions that do not exist yet"
            refused[key] = TooManyPreferencesError(path=log_dir.path, reason=reason)
            continue
        preferred[key] = max(now_ms, latest + 1)  # the preference with the latest time counts
    if preferred != settings.preferred:
        log_dir.change_settings(settings._replace(preferred=preferred))
    return refused
