"""Detect disks that hang; each store has one watchdog thread, which never calls a disk.

    a call runs longer than the bound           the dir becomes SUSPECT: new calls raise at once
    while the dir is SUSPECT                    threads that wait for locks of its logs are freed
    good probes in a row, and no call is stuck  the dir works again

The bound is `log_dir_suspect_ms` of the configuration. The bound is three times as long for calls
that wait for the disk to write, and twelve times as long for work on a whole log. Time in which the
process did not run is not counted. Nothing in this module waits for a lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple
from weakref import ref

from logstore.disk.bell import Bell
from logstore.disk.calls import awake_seconds, calls_under_way, wait_awake
from logstore.disk.log_dir import LogDir
from logstore.disk.states import Event
from logstore.disk.threads import Thread, start_for
from logstore.log import host
from logstore.log.log import Log
from logstore.log.write.hung_locks import Relief, is_free
from logstore.store.replicas import Replicas

GOOD_PROBES = 3
LOOK_SECONDS_MAX = 0.5
RELIEF_SECONDS = 0.1
LAST_LOOKS = 5


class Stuck(NamedTuple):
    """The oldest running call; `seconds` is its age divided by the factor of its kind of call."""

    seconds: float
    path: str


class _Appending(NamedTuple):
    """A running append, and when it was first seen. The same position means the same append."""

    position: int
    since: float


class Watchdog:
    """Watches the log dirs of one store."""

    def __init__(
        self,
        replicas: Replicas,
        suspect_seconds: float,
        on_suspect: Callable[[LogDir], None] = lambda log_dir: None,
        on_answered: Callable[[], None] = lambda: None,
    ) -> None:
        self._replicas = replicas
        self._bound = suspect_seconds
        self._on_suspect = on_suspect
        self._on_answered = on_answered
        self._appending: dict[Log, _Appending] = {}
        self._relief: dict[LogDir, Relief] = {}
        self._stopped = Bell()
        self._thread = Thread(
            target=_watch, args=(ref(self), self._stopped), name="logstore-watchdog", daemon=True
        )

    def start(self) -> None:
        """Start the thread. Raises a retriable LogDirError if no more threads can be started."""
        start_for(self._replicas.log_dirs[0].path, self._thread)

    def stop(self) -> None:
        """Ask the thread to end, and wait until it has ended, unless a disk hangs."""
        self.leave()
        if self._thread.ident is not None and not self._relief:
            self._thread.join()

    def leave(self) -> None:
        """Ask the thread to end, and do not wait for the end."""
        self._stopped.ring()

    def last_looks(self) -> None:
        """For a short time, continue to free threads that wait for locks of hanging log dirs."""
        for _ in range(LAST_LOOKS if self._relief else 0):
            time.sleep(RELIEF_SECONDS)
            self.look(time.monotonic())

    def pause(self) -> float:
        """Return the seconds until the next check.

        While a log dir is SUSPECT, this is `RELIEF_SECONDS`. While no log dir is SUSPECT, the
        interval is a tenth of the bound, but at most `LOOK_SECONDS_MAX`.
        """
        if self._relief:
            return RELIEF_SECONDS
        return min(self._bound / 10, LOOK_SECONDS_MAX)

    # --- one look ---------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Check every log dir; `now` is the time of the monotonic clock."""
        calls = [
            (call.path, awake_seconds(call.since, now), call.patience) for call in calls_under_way()
        ]
        appending: dict[Log, _Appending] = {}
        for log_dir in self._replicas.log_dirs:
            logs = self._replicas.on(log_dir)
            stuck = max(
                self._appends(logs, now, appending),
                *self._calls(log_dir, calls),
                Stuck(0.0, log_dir.path),
            )
            self._judge(log_dir, logs, stuck)
        self._appending = appending

    def _calls(self, log_dir: LogDir, calls: list[tuple[str, float, float]]) -> Iterator[Stuck]:
        """Return the calls to one log dir; divide each age by the factor of its kind of call."""
        below = log_dir.path + "/"
        for path, seconds, patience in calls:
            if path.startswith(below) or path == log_dir.path:
                yield Stuck(seconds / patience, path)

    def _appends(self, logs: list[Log], now: float, seen: dict[Log, _Appending]) -> Stuck:
        """Return the append that has been writing at one position for the longest time."""
        oldest = Stuck(0.0, "")
        for log in logs:
            position = host.writing_position(log)
            if position is None:
                continue
            before = self._appending.get(log)
            if before is None or before.position != position:
                before = _Appending(position, now)
            seen[log] = before
            oldest = max(oldest, Stuck(awake_seconds(before.since, now), log.directory))
        return oldest

    def _judge(self, log_dir: LogDir, logs: list[Log], stuck: Stuck) -> None:
        """Change the state of one log dir according to its longest running call."""
        if log_dir.is_offline:
            self._relief.pop(log_dir, None)
            return
        if stuck.seconds > self._bound:
            log_dir.good_probes = 0
            reason = f"a call to {stuck.path} has not returned for {stuck.seconds:.1f} s"
            if log_dir.change(Event.STUCK, reason):
                self._on_suspect(log_dir)
        if not log_dir.is_suspect:
            return
        locks = [host.locks_of(log) for log in logs]
        self._relief.setdefault(log_dir, Relief()).look(locks)
        is_back = all(map(is_free, locks))
        if is_back and log_dir.good_probes >= GOOD_PROBES and stuck.seconds < self._bound:
            del self._relief[log_dir]
            if log_dir.change(Event.ANSWERED):
                self._on_answered()


def _watch(entry: ref[Watchdog], stopped: Bell) -> None:
    """Check the log dirs at regular intervals; while the thread waits, the store can be dropped."""
    watchdog = entry()
    while watchdog is not None:
        pause_seconds = watchdog.pause()
        watchdog = None
        is_over = wait_awake(stopped.wait, pause_seconds)
        watchdog = entry()
        if watchdog is not None and is_over:
            watchdog.last_looks()
            return
        if watchdog is not None:
            with suppress(MemoryError):  # there may be more memory at the next check
                watchdog.look(time.monotonic())
