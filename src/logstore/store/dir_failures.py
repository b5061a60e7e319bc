"""Handle log dirs that fail or hang while the store serves.

None of this runs in the thread that met the failure: that thread may hold a log's lock. The thread
that closes the dead disk's descriptors and the user's callback do not wait for each other either.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from logstore.arguments import function, known_as
from logstore.disk.log_dir import LogDir
from logstore.disk.threads import Thread
from logstore.errors import LogDirOfflineError
from logstore.store.host import StoreHost
from logstore.store.reader import StoreReader

if TYPE_CHECKING:
    from logstore.store.upkeep.events import StoreEvent

FailureCallback = Callable[[LogDirOfflineError], object]

# How long a close waits for a failure callback that has not returned.
FAILURE_SECONDS_MAX = 5.0


@known_as("LogStore")
class StoreFailures(StoreReader):
    """The part of a store that handles its log dirs' failures."""

    def __init__(self, on_log_dir_failure: FailureCallback | None) -> None:
        """Use `LogStore.open`."""
        from logstore.store.upkeep.events import Events

        self._callback = on_log_dir_failure
        self._lifecycle = threading.Lock()
        self._is_armed = False
        self._keepers = {}
        self._events = Events()
        # Under the lifecycle lock: the dirs that were seen to, the threads that do, and those that
        # could not be had.
        self._reported: set[LogDir] = set()
        self._seers: list[threading.Thread] = []
        self._unseen: list[tuple[str, Callable[[LogDir], None], LogDir]] = []
        self.host = StoreHost(self._check, lambda: self._replicas, self._dir_named, self._keepers)

    # --- listeners --------------------------------------------------------------------------------

    def add_listener(self, listener: Callable[[StoreEvent], object]) -> None:
        """Call a function for each event of the store: log dirs, and replicas as wholes.

        Each event is delivered once, and all in order, by a thread of the listener's own. The
        function may block: events wait for it, without a bound, and none is dropped. What it raises
        is logged. Nothing is reported before this call: after it, look at `describe_dirs`. A close
        waits up to 5 s, or its timeout, for the last events. Adding it again changes nothing.

        Raises:
            LogDirError: retriable; the process can have no further thread.
        """
        function(listener, "listener")
        self._check_owner()
        self._events.add(listener, self.log_dirs[0])

    def remove_listener(self, listener: Callable[[StoreEvent], object]) -> None:
        """Call a listener no more, not even for events that wait; twice is fine.

        A call that runs in its thread may still end.
        """
        self._events.remove(function(listener, "listener"))

    def on_close(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a function once, before the store closes its logs; the newest is called first.

        The store still serves then, and `close` waits for the function. What it raises is logged,
        and the store is closed nevertheless. If the store is dropped without a close, it is not
        called.

        Returns:
            A function that withdraws the callback; calling it twice is fine.
        """
        function(callback, "callback")
        self._check_owner()
        return self.host.on_close(callback)

    def _check_owner(self) -> None:
        """Raise unless this process may change the store."""
        self._check()

    # --- failures ---------------------------------------------------------------------------------

    def _log_dir_hangs(self, log_dir: LogDir) -> None:
        """Have a log dir that has become SUSPECT probed until it answers."""
        keeper = self._keepers.get(log_dir.path)
        if keeper is not None:
            keeper.probe_soon()

    def _log_dir_answered(self) -> None:
        """Resume what had to wait for a log dir."""
        self.host.answered()

    def _log_dir_failed(self, log_dir: LogDir) -> None:
        """Handle a log dir that went offline, once."""
        with self._lifecycle:
            if not self._is_armed or log_dir in self._reported:
                return
            self._reported.add(log_dir)
            self._see("logstore-failure", self._let_go_of, log_dir)
            if self._callback is not None:
                self._see("logstore-callback", self._tell, log_dir)

    def _see(self, name: str, work: Callable[[LogDir], None], log_dir: LogDir) -> None:
        """Start a thread that handles a log dir; the lifecycle lock is held."""
        from logstore.store.upkeep.keeper import warn

        thread = Thread(target=work, args=(log_dir,), name=name, daemon=True)
        self._seers = [other for other in self._seers if other.is_alive()]
        try:
            thread.start()
        except RuntimeError as error:  # the failed call reports the disk's error, not this one
            self._unseen.append((name, work, log_dir))
            warn("log dir %s has failed, and is released later: %s", log_dir.path, error)
        else:
            self._seers.append(thread)

    def _tell(self, log_dir: LogDir) -> None:
        """Call the user's callback; an exception of it is logged."""
        from logstore.store.upkeep.keeper import warn

        assert self._callback is not None
        try:
            self._callback(log_dir.offline_error())
        except Exception:  # noqa: BLE001 - it must not end anything of ours
            warn("on_log_dir_failure raised for %s", log_dir.path, exc_info=True)

    def _let_go_of(self, log_dir: LogDir) -> None:
        """Close every descriptor on the dead disk, and release its lock."""
        from logstore.store.dirs.shutdown import drop_logs

        keeper = self._keepers.get(log_dir.path)
        if keeper is not None and keeper.log_dir is log_dir:
            keeper.stop()
        drop_logs(self._replicas, log_dir)
        log_dir.release()

    def _wait_for_seers(self, timeout: float | None) -> None:
        """Wait until all failures are handled, but not for ever: a callback may hang."""
        deadline = time.monotonic() + (FAILURE_SECONDS_MAX if timeout is None else timeout)
        with self._lifecycle:
            unseen, self._unseen = self._unseen, []
            for one in unseen:
                self._see(*one)
            seers = list(self._seers)
        for thread in seers:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
