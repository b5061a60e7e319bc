"""See to log dirs that fail or hang while the store serves.

Nothing of it happens in the thread that met the failure: that one may hold a log's lock. Whoever
drops the dead disk's descriptors does not wait for the user's callback either, nor it for him.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from logstore.arguments import known_as
from logstore.disk.log_dir import LogDir
from logstore.disk.threads import Thread
from logstore.errors import LogDirOfflineError
from logstore.store.host import StoreHost
from logstore.store.reader import StoreReader

FailureCallback = Callable[[LogDirOfflineError], object]

# So long does a close wait for a failure callback that has not returned.
FAILURE_SECONDS_MAX = 5.0


@known_as("LogStore")
class StoreFailures(StoreReader):
    """The part of a store that sees to its log dirs' failures."""

    def __init__(self, on_log_dir_failure: FailureCallback | None) -> None:
        """Use `LogStore.open`."""
        self._callback = on_log_dir_failure
        self._lifecycle = threading.Lock()
        self._is_armed = False
        self._keepers = {}
        # Under the lifecycle lock: the dirs that were seen to, the threads that do, and those that
        # could not be had.
        self._reported: set[LogDir] = set()
        self._seers: list[threading.Thread] = []
        self._unseen: list[tuple[str, Callable[[LogDir], None], LogDir]] = []
        self.host = StoreHost(self._check, lambda: self._replicas, self._dir_named, self._keepers)

    def _log_dir_hangs(self, log_dir: LogDir) -> None:
        """Have a log dir that has become suspect probed until it answers."""
        keeper = self._keepers.get(log_dir.path)
        if keeper is not None:
            keeper.probe_soon()

    def _log_dir_answered(self) -> None:
        """Let go on what had to wait for a log dir."""
        self.host.answered()

    def _log_dir_failed(self, log_dir: LogDir) -> None:
        """See to a log dir that went offline, once."""
        with self._lifecycle:
            if not self._is_armed or log_dir in self._reported:
                return
            self._reported.add(log_dir)
            self._see("logstore-failure", self._let_go_of, log_dir)
            if self._callback is not None:
                self._see("logstore-callback", self._tell, log_dir)

    def _see(self, name: str, work: Callable[[LogDir], None], log_dir: LogDir) -> None:
        """Do something about a log dir in a thread; the lifecycle lock is held."""
        from logstore.store.upkeep.keeper import warn

        thread = Thread(target=work, args=(log_dir,), name=name, daemon=True)
        self._seers = [other for other in self._seers if other.is_alive()]
        try:
            thread.start()
        except RuntimeError as error:  # whoever met the failure is told of the disk, not of this
            self._unseen.append((name, work, log_dir))
            warn("log dir %s has failed, and is let go of later: %s", log_dir.path, error)
        else:
            self._seers.append(thread)

    def _tell(self, log_dir: LogDir) -> None:
        """Tell the user; whatever his callback raises is logged."""
        from logstore.store.upkeep.keeper import warn

        assert self._callback is not None
        try:
            self._callback(log_dir.offline_error())
        except Exception:  # noqa: BLE001 - it must not end anything of ours
            warn("on_log_dir_failure raised for %s", log_dir.path, exc_info=True)

    def _let_go_of(self, log_dir: LogDir) -> None:
        """Drop every descriptor on the dead disk, and its lock."""
        from logstore.store.dirs.shutdown import drop_logs

        keeper = self._keepers.get(log_dir.path)
        if keeper is not None and keeper.log_dir is log_dir:
            keeper.stop()
        drop_logs(self._replicas, log_dir)
        log_dir.release()

    def _wait_for_seers(self, timeout: float | None) -> None:
        """Wait until all failures are seen to, but not for ever: a callback may hang."""
        deadline = time.monotonic() + (FAILURE_SECONDS_MAX if timeout is None else timeout)
        with self._lifecycle:
            unseen, self._unseen = self._unseen, []
            for one in unseen:
                self._see(*one)
            seers = list(self._seers)
        for thread in seers:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
