"""Compact the logs of one log dir, in a thread that ends when no log is due.

At intervals, the keeper of the log dir checks whether a log is due, and starts the thread. The
thread first compacts logs that must be compacted now, and then the log with the largest part that
is not yet compacted. If a log cannot be compacted, the log is reported, and tried again later. The
other logs are still compacted. A disk that hangs stops only this thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from logstore.disk.threads import Thread, start_for
from logstore.errors import LogClosedError, LogStoreError
from logstore.log import host
from logstore.log.compaction.schedule import urgency
from logstore.names import TopicPartition
from logstore.store.dirs.parallel import TURN_SECONDS
from logstore.store.replicas import Replicas, key_of

if TYPE_CHECKING:
    from logstore.config import StoreConfig
    from logstore.disk.log_dir import LogDir
    from logstore.log.compaction.schedule import Plan
    from logstore.log.environment import Clock
    from logstore.log.log import Log

RETRIES_DOUBLED = 8  # the longest pause between two attempts is 256 intervals


class _StoppedError(Exception):
    """Raised to end a compaction when its log dir or store is released. No user sees this error."""


class SetAside(NamedTuple):
    """A log that could not be compacted.

    Attributes:
        failures: how many compactions of the log failed in a row.
        retry_ms: when the compaction is tried again.
    """

    failures: int
    retry_ms: int
    reason: str


class Compactor:
    """The compaction of one log dir.

    Attributes:
        set_aside: the logs that could not be compacted. The thread replaces this dict as a whole.
    """

    def __init__(
        self, log_dir: LogDir, replicas: Replicas, config: StoreConfig, clock: Clock
    ) -> None:
        self.set_aside: dict[TopicPartition, SetAside] = {}
        self._log_dir, self._replicas, self._clock = log_dir, replicas, clock
        self._backoff_ms = config.log_cleaner_backoff_ms
        self._table_bytes = config.log_cleaner_dedupe_buffer_size
        self._bytes_per_second = config.log_cleaner_io_max_bytes_per_second
        self._paid_until = 0.0  # the rate limit allows no more bytes before this monotonic time
        self._stopping = threading.Event()
        self._thread: Thread | None = None

    def look(self) -> None:
        """Start the thread if a log is due and no thread runs; only the keeper may call this.

        Raises:
            LogDirError: this process can start no more threads; the error is retriable.
        """
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = None
        if self._next() is not None and not self._stopping.is_set():
            name = f"logstore-compaction-{self._log_dir.path}"
            thread = Thread(target=self.run_due, name=name, daemon=True)
            start_for(self._log_dir.path, thread)
            self._thread = thread

    def stop(self) -> None:
        """Ask the thread to end; the thread then removes the files that it is writing."""
        self._stopping.set()

    def join(self, timeout: float | None) -> bool:
        """Wait for the end of the thread; return whether it ended."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout)
        return not thread.is_alive()

    def run_due(self) -> None:
        """Compact all logs that are due, one after another.

        If a compaction found nothing to read, its log waits for the next run. A log that waits may
        still be due. Without this wait, the log would keep the thread busy for ever.
        """
        idle: set[TopicPartition] = set()
        try:
            while (log := self._next(idle)) is not None:
                if not self._compact(log):
                    idle.add(key_of(log))
        except _StoppedError:
            pass

    # --- one log ----------------------------------------------------------------------------------

    def _next(self, idle: Collection[TopicPartition] = ()) -> Log | None:
        """Choose the log to compact now, except the `idle` logs; return None if no log is due."""
        if self._log_dir.is_outdated:  # an old copy must not be changed
            return None
        found: list[tuple[Plan, Log]] = []
        now_ms, logs = self._clock.now_ms(), self._replicas.on(self._log_dir)
        here = set(map(key_of, logs))
        self._note({key: one for key, one in self.set_aside.items() if key in here})
        for log in logs:
            aside = self.set_aside.get(key_of(log))
            if not log.config.is_compacted or (aside is not None and now_ms < aside.retry_ms):
                continue
            if key_of(log) in idle:
                continue
            try:
                plan = host.compaction_plan(log)
            except LogStoreError as error:
                self._set_aside(log, error)
                continue
            if plan.is_due:
                found.append((plan, log))
        if not found or self._log_dir.is_refusing:
            return None
        return max(found, key=lambda pair: urgency(pair[0]))[1]

    def _compact(self, log: Log) -> bool:
        """Compact one log; return whether any record was read."""
        try:
            report = host.compact(log, self._pace, self._table_bytes)
        except LogClosedError:
            return False
        except _StoppedError:
            raise
        except Exception as error:  # noqa: BLE001 - an error of one log must not end the thread
            self._set_aside(log, error)
            return False
        self._note({key: one for key, one in self.set_aside.items() if key != key_of(log)})
        return report.bytes_read > 0

    def _set_aside(self, log: Log, error: Exception) -> None:
        """Plan a retry for a log; report the error, unless the same error was already reported."""
        if self._log_dir.is_refusing or self._log_dir.is_outdated:
            return  # the cause is the state of the log dir, which other code reports
        key, before = key_of(log), self.set_aside.get(key_of(log))
        failures = 1 if before is None else before.failures + 1
        wait_ms = self._backoff_ms << min(failures - 1, RETRIES_DOUBLED)
        aside = SetAside(failures, self._clock.now_ms() + wait_ms, str(error))
        self._note({**self.set_aside, key: aside})
        if before is None or before.reason != aside.reason:
            import logging

            logging.getLogger("logstore").warning(
                "%s in %s cannot be compacted: %s; the compaction is tried again later, and the "
                "other logs are still compacted",
                *(key, self._log_dir.path, aside.reason),
            )

    def _note(self, set_aside: dict[TopicPartition, SetAside]) -> None:
        self.set_aside = set_aside
        figures = self._replicas.figures.get(self._log_dir.path)
        if figures is not None:  # the log dir is still part of the store
            figures.uncompacted_logs = len(set_aside)

    def _pace(self, size_bytes: int) -> None:
        """After each part of the work, let other threads run, and sleep to keep the rate limit."""
        log_dir = self._log_dir
        if self._stopping.is_set() or log_dir.is_refusing or log_dir.is_outdated:
            raise _StoppedError
        seconds = TURN_SECONDS
        if self._bytes_per_second is not None:
            now = time.monotonic()
            self._paid_until = max(self._paid_until, now) + size_bytes / self._bytes_per_second
            seconds = max(self._paid_until - now, seconds)
        self._stopping.wait(seconds)
