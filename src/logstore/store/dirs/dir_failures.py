"""Handle log dirs that fail or hang while the store is open.

The thread whose call failed does not handle the failure, because it may hold a log's lock. One new
thread closes the descriptors of the dead disk, and another new thread calls the user's callback.
The two threads do not wait for each other.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from logstore.disk.log_dir import LogDir
from logstore.disk.threads import Thread
from logstore.errors import LogDirOfflineError

if TYPE_CHECKING:
    from logstore.store.replicas import Replicas
    from logstore.store.upkeep.keeper import DirKeeper

FailureCallback = Callable[[LogDirOfflineError], object]
# The name of a thread, the function that the thread calls, and the failed log dir (the argument).
Work = tuple[str, Callable[[LogDir], None], LogDir]

# How many seconds a close waits until the failures, and their callbacks, are handled.
FAILURE_SECONDS_MAX = 5.0


class DirFailures:
    """Handles each failure of a store's log dirs exactly once.

    Args:
        callback: the user's function, which is called with the error of a log dir that failed.
        keepers: maps the path of each log dir to its keeper. The store adds and removes entries.

    Attributes:
        is_armed: whether failures are handled. The value is True from the end of the opening until
            the close. This field is written under `_handling`, except when a store is dropped,
            because then no other thread uses the store.
    """

    def __init__(self, callback: FailureCallback | None, keepers: Mapping[str, DirKeeper]) -> None:
        self.is_armed = False
        self._callback = callback
        self._keepers = keepers
        self._replicas: Replicas | None = None
        self._handling = threading.Lock()
        # `_handling` guards the next three fields.
        # They are: the dirs whose failures were handled, the threads that handle failures,
        # and the work that was postponed for lack of a thread or of memory.
        self._handled: set[LogDir] = set()
        self._threads: list[threading.Thread] = []
        self._put_off: deque[Work] = deque()

    def arm(self, replicas: Replicas) -> None:
        """Handle the failures of log dirs from now on."""
        self._replicas = replicas
        with self._handling:
            self.is_armed = True

    def disarm(self) -> None:
        """Handle no more failures, because the store is closing."""
        with self._handling:
            self.is_armed = False

    def hangs(self, log_dir: LogDir) -> None:
        """Tell the keeper of a SUSPECT log dir to probe the dir until the dir answers."""
        keeper = self._keepers.get(log_dir.path)
        if keeper is not None:
            keeper.probe_soon()

    def full(self, path: str) -> None:
        """Tell the keeper of a full log dir to free space, as far as the logs' settings allow."""
        keeper = self._keepers.get(path)
        if keeper is not None:
            keeper.relieve_soon()

    def failed(self, log_dir: LogDir) -> None:
        """Handle a log dir that went offline; later calls for this log dir do nothing."""
        with self._handling:
            if not self.is_armed or log_dir in self._handled:
                return
            assert log_dir.is_offline, log_dir.path
            self._handled.add(log_dir)
            self._put_off.append(("logstore-failure", self.release, log_dir))
            if self._callback is not None:
                self._put_off.append(("logstore-callback", self._tell, log_dir))
            self._begin()

    def _begin(self) -> None:
        """Try to start a thread for each item of `_put_off`; the caller must hold `_handling`."""
        from logstore.store.upkeep.keeper import warn

        self._threads = [other for other in self._threads if other.is_alive()]
        for _ in range(len(self._put_off)):
            one = self._put_off.popleft()
            name, _, log_dir = one
            try:
                thread = Thread(target=self._do, args=(one,), name=name, daemon=True)
                thread.start()
            except (RuntimeError, MemoryError) as error:
                # the failed call must report the disk's error, not the lack of a thread
                self._put_off.append(one)
                with suppress(MemoryError):
                    more = "this is handled later, because no thread can start"
                    warn("log dir %s has failed; %s: %s", log_dir.path, more, error)
            else:
                self._threads.append(thread)

    def _do(self, one: Work) -> None:
        """Do one piece of work; if memory runs out, a later call of `wait` retries the work."""
        _, work, log_dir = one
        try:
            work(log_dir)
        except MemoryError:
            with self._handling:
                self._put_off.append(one)

    def _tell(self, log_dir: LogDir) -> None:
        """Call the user's callback; if the callback raises, log the error."""
        from logstore.store.upkeep.keeper import warn

        assert self._callback is not None
        try:
            self._callback(log_dir.offline_error())
        except Exception:  # noqa: BLE001 - the store must continue
            warn("on_log_dir_failure raised for %s", log_dir.path, exc_info=True)

    def release(self, log_dir: LogDir) -> None:
        """Close every descriptor on a dead disk, and release the lock of the log dir."""
        from logstore.store.dirs.shutdown import drop_logs

        assert self._replicas is not None
        keeper = self._keepers.get(log_dir.path)
        if keeper is not None and keeper.log_dir is log_dir:
            keeper.stop()
        drop_logs(self._replicas, log_dir)
        log_dir.release()

    def wait(self, timeout: float | None) -> None:
        """Wait until all failures are handled; the time is limited, because a callback may hang."""
        deadline = time.monotonic() + (FAILURE_SECONDS_MAX if timeout is None else timeout)
        with self._handling:
            self._begin()
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
