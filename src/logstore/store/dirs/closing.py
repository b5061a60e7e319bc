"""Close a whole store cleanly, or release it immediately, as in a crash.

wait       stop the background work, then close all log dirs in parallel, then end the other threads
abandon    release everything and write nothing; the next open recovers the logs
"""

from __future__ import annotations

import threading
from contextlib import suppress

from logstore.disk.log_dir import LogDir
from logstore.disk.uninterrupted import uninterrupted
from logstore.errors import LogDirSuspectError, LogStoreError
from logstore.store.dirs.farewell import Farewell
from logstore.store.dirs.parallel import Outcome, for_each, in_time
from logstore.store.dirs.shutdown import close_dir, is_suspect, let_go, raise_first
from logstore.store.dirs.takeover import path_of, release_all
from logstore.store.state import CLOSED, OwnerState
from logstore.store.upkeep.keeper import warn


class Closing:
    """Closes a store. While one call of `LogStore.close` closes the store, other calls wait.

    Threads: the thread that holds `_lock` does the work, and sets `_left` at its end.
    """

    def __init__(self, state: OwnerState) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._ended: dict[LogDir, Outcome[LogDir]] = {}
        self._left: tuple[str, ...] | None = None
        self._errors: list[LogStoreError] = []  # each error is raised once

    def wait(self, timeout: float | None) -> tuple[str, ...]:
        """Close the whole store; return the paths of the log dirs that were not closed cleanly."""
        if self._left is None:
            uninterrupted(lambda _: self._close(timeout))
        if self._errors:
            raise self._errors.pop()
        assert self._left is not None
        return self._left

    def _close(self, timeout: float | None) -> None:
        """Stop the background work, then close the log dirs, unless an earlier call did this."""
        state = self._state
        state.host.closing()
        with self._lock:
            if self._left is not None:
                return
            state.closed = CLOSED
            state.failures.disarm()
            self._close_dirs(timeout)
        state.failures.wait(timeout)
        state.watchdog.stop()
        state.events.close(timeout)

    def _close_dirs(self, timeout: float | None) -> None:
        replicas, keepers = self._state.replicas, self._state.keepers
        self._state.admin.stop()
        for keeper in keepers.values():
            keeper.stop()
        serving = [one for one in replicas.log_dirs if one not in self._ended]
        # An earlier call may have run out of memory, and released a log dir without a clean close.
        left = [one.path for one in serving if one.is_offline or one.is_let_go]
        hanging = [log_dir for log_dir in serving if log_dir.is_suspect]
        let_go(replicas, hanging)
        farewell = Farewell((one for one in serving if one not in hanging), timeout)

        def close_one(log_dir: LogDir) -> None:
            try:
                close_dir(replicas, keepers.get(log_dir.path), log_dir, farewell)
                self._ended[log_dir] = Outcome(log_dir, None, True)
            except MemoryError:
                raise  # the next call of `close` closes this log dir
            except Exception as error:
                self._ended[log_dir] = Outcome(log_dir, error, True)
                raise

        outcomes = for_each(
            [log_dir for log_dir in serving if log_dir not in hanging],
            close_one,
            timeout=timeout,
            name="logstore-close",
            is_given_up=is_suspect,
            on_break=_wait_for_all,
        )
        for outcome in outcomes:
            if isinstance(outcome.error, MemoryError):
                raise outcome.error
        outcomes += [Outcome(log_dir, None, False) for log_dir in hanging]
        before = [one for one in replicas.log_dirs if one not in serving]
        outcomes += [self._ended[log_dir] for log_dir in before]
        for outcome in outcomes:
            if outcome.error is not None or not outcome.is_finished:
                left.append(outcome.item.path)
                why = outcome.error or outcome.item.reason or f"it still hangs after {timeout} s"
                warn("log dir %s was not closed cleanly: %s", outcome.item.path, why)
        try:
            raise_first(o for o in outcomes if not isinstance(o.error, LogDirSuspectError))
        except LogStoreError as error:
            self._errors = [error]
        self._left = tuple(left)


def _wait_for_all() -> None:
    """Ask no thread to end: after Ctrl-C, `for_each` calls this, then waits for its threads.

    The next call of `close` does the remaining work.
    """


def abandon(state: OwnerState, reason: str) -> None:
    """Release all resources of a store and write nothing, as if the process had crashed."""

    def close_all(log_dir: LogDir) -> None:
        keeper = state.keepers.get(log_dir.path)
        if keeper is not None:  # the keeper may be removing a directory, so wait
            keeper.join(None)
        for log in state.replicas.on(log_dir):
            with suppress(LogStoreError):
                log.close(flush=False)

    state.closed = reason
    state.failures.is_armed = False
    for keeper in state.keepers.values():
        keeper.stop()
    state.admin.stop()
    state.watchdog.stop()
    log_dirs = state.replicas.log_dirs
    in_time(log_dirs, close_all, path_of, state.patience_seconds, name="logstore-abandon")
    release_all(log_dirs, state.patience_seconds)
