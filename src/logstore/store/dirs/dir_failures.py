"""Handle log dirs that fail or hang while the store serves.

None of this runs in the thread that met the failure: that thread may hold a log's lock. The thread
that closes the dead disk's descriptors and the user's callback do not wait for each other either.
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
# What is to be done for a log dir, and the name of the thread that does it.
Work = tuple[str, Callable[[LogDir], None], LogDir]

# How long a close waits for a failure callback that has not returned.
FAILURE_SECONDS_MAX = 5.0


class DirFailures:
    """Handles the failures of a store's log dirs, each one once.

    Args:
        callback: the user's; called with the error of a log dir that failed.
        keepers: by the path of their log dir; the store's own, which it changes.

    Attributes:
        is_armed: whether failures are handled: from the end of the opening to the close. Written
            under `_handling`, except by a store that is dropped: no other thread uses it then.
    """

    def __init__(self, callback: FailureCallback | None, keepers: Mapping[str, DirKeeper]) -> None:
        self.is_armed = False
        self._callback = callback
        self._keepers = keepers
        self._replicas: Replicas | None = None
        self._handling = threading.Lock()
        # Under the lock: the dirs whose failure is handled, the threads that do that, and the work
        # for which there was no thread, or no memory.
        self._handled: set[LogDir] = set()
        self._threads: list[threading.Thread] = []
        self._put_off: deque[Work] = deque()

    def arm(self, replicas: Replicas) -> None:
        """Handle the failures of log dirs from now on."""
        self._replicas = replicas
        with self._handling:
            self.is_armed = True

    def disarm(self) -> None:
        """Handle no further failure: the store is being closed."""
        with self._handling:
            self.is_armed = False

    def hangs(self, log_dir: LogDir) -> None:
        """Have a log dir that has become SUSPECT probed until it answers."""
        keeper = self._keepers.get(log_dir.path)
        if keeper is not None:
            keeper.probe_soon()

    def failed(self, log_dir: LogDir) -> None:
        """Handle a log dir that went offline, once."""
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
        """Start a thread for each work, as far as that can be had; the lock is held."""
        from logstore.store.upkeep.keeper import warn

        self._threads = [other for other in self._threads if other.is_alive()]
        for _ in range(len(self._put_off)):
            one = self._put_off.popleft()
            name, _, log_dir = one
            try:
                thread = Thread(target=self._do, args=(one,), name=name, daemon=True)
                thread.start()
            except (RuntimeError, MemoryError) as error:
                # the failed call reports the disk's error, not this one
                self._put_off.append(one)
                with suppress(MemoryError):
                    warn("log dir %s has failed, and is released later: %s", log_dir.path, error)
            else:
                self._threads.append(thread)

    def _do(self, one: Work) -> None:
        """Do one work; for want of memory it is put off until somebody waits for it."""
        _, work, log_dir = one
        try:
            work(log_dir)
        except MemoryError:
            with self._handling:
                self._put_off.append(one)

    def _tell(self, log_dir: LogDir) -> None:
        """Call the user's callback; an exception of it is logged."""
        from logstore.store.upkeep.keeper import warn

        assert self._callback is not None
        try:
            self._callback(log_dir.offline_error())
        except Exception:  # noqa: BLE001 - it must not end anything of ours
            warn("on_log_dir_failure raised for %s", log_dir.path, exc_info=True)

    def release(self, log_dir: LogDir) -> None:
        """Close every descriptor on a dead disk, and release its lock."""
        from logstore.store.dirs.shutdown import drop_logs

        assert self._replicas is not None
        keeper = self._keepers.get(log_dir.path)
        if keeper is not None and keeper.log_dir is log_dir:
            keeper.stop()
        drop_logs(self._replicas, log_dir)
        log_dir.release()

    def wait(self, timeout: float | None) -> None:
        """Wait until all failures are handled, but not for ever: a callback may hang."""
        deadline = time.monotonic() + (FAILURE_SECONDS_MAX if timeout is None else timeout)
        with self._handling:
            self._begin()
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
