"""Maintain one log dir in a thread of its own: flush, apply retention, checkpoint, purge, scrub.

Compaction takes long, so the keeper's thread starts another thread for it (`compactor`).

There is one keeper per log dir, so a disk that hangs stops only the upkeep of its own log dir. The
thread sleeps on a condition until a duty is due or a removal is requested. Only `stop` ends the
thread. No exception does.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from weakref import ref

from logstore.config import StoreConfig
from logstore.disk import files
from logstore.disk.calls import SYNCING, WORKING, call
from logstore.disk.documents.checkpoint import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from logstore.disk.failures import Verdict, reason_of, verdict_of
from logstore.disk.log_dir import LogDir
from logstore.disk.threads import Thread, start_for
from logstore.errors import LogClosedError, LogStoreError, UnknownPartitionError
from logstore.log.environment import Clock
from logstore.log.host import lift_recovery_point_limit, limited_metadata, replicated_to
from logstore.log.log import Log
from logstore.store.dirs import old_copies
from logstore.store.dirs.slow_disks import judge
from logstore.store.replicas import Replicas, key_of
from logstore.store.start.listing import purge_tree
from logstore.store.upkeep.compactor import Compactor
from logstore.store.upkeep.pressure import relieve
from logstore.store.upkeep.purge import purge_covered, purge_postponed
from logstore.store.upkeep.scrubber import STEP_SECONDS, Scrubber

USAGE_INTERVAL_SECONDS = 10.0
PACE_INTERVAL_SECONDS = 10.0
PROBE, PRESSURE = "probe", "pressure"
# The interval of the probes of a SUSPECT dir.
# A probe begins only after the previous probe has ended.
SUSPECT_PROBE_SECONDS = 1.0
SHORTAGE_SECONDS = 0.05  # the pause after a turn that failed for lack of memory

# The directory of a replica that must be removed, and the function to call after the removal.
Purge = tuple[str, Callable[[], object]]


class Duty(NamedTuple):
    """A piece of work that is done at regular intervals."""

    name: str
    interval_seconds: float
    work: Callable[[], object]


def warn(text: str, *arguments: object, exc_info: bool = False) -> None:
    """Log a warning; the first call imports `logging`.

    Errors are logged as text. If a handler kept a log record that contains the error itself, the
    error's stack frames would stay alive, with the descriptors in them.
    """
    import logging

    told = [str(one) if isinstance(one, Exception) else one for one in arguments]
    logging.getLogger("logstore").warning(text, *told, exc_info=exc_info)


class DirKeeper:
    """The upkeep of one log dir."""

    def __init__(
        self, log_dir: LogDir, replicas: Replicas, config: StoreConfig, clock: Clock
    ) -> None:
        self.log_dir = log_dir
        self._replicas = replicas
        self._clock = clock
        self.scrubber = Scrubber(
            log_dir, replicas, config, clock, lambda: self._is_stopped or log_dir.is_refusing
        )
        self._duties: tuple[Duty, ...] = (
            Duty("flush", config.log_flush_scheduler_interval_ms / 1000, self.flush_due),
            Duty("retention", config.log_retention_check_interval_ms / 1000, self.retain),
            Duty(
                "checkpoint",
                config.log_flush_offset_checkpoint_interval_ms / 1000,
                self.checkpoint,
            ),
            Duty("usage", USAGE_INTERVAL_SECONDS, self.refresh_usage),
            Duty(PRESSURE, USAGE_INTERVAL_SECONDS, partial(relieve, log_dir, replicas)),
            Duty("pace", PACE_INTERVAL_SECONDS, self.keep_pace),
            Duty(PROBE, config.log_dir_probe_interval_ms / 1000, self.probe),
        )
        if config.log_scrub_bytes_per_second:
            self._duties += (Duty("scrub", STEP_SECONDS, self.scrubber.step),)
        self.compactor = Compactor(log_dir, replicas, config, clock)
        if config.log_cleaner_enable:
            seconds = config.log_cleaner_backoff_ms / 1000
            self._duties += (Duty("compaction", seconds, self.compactor.look),)
        self._flushes_seen = 0
        self._suspect_seconds = config.log_dir_suspect_ms / 1000
        now = time.monotonic()
        self._due = {duty.name: now + duty.interval_seconds for duty in self._duties}
        # Threads acquire this lock, not the Condition.
        # The reason is that Ctrl-C could interrupt the Condition's `__enter__`.
        self._waking = threading.RLock()
        self._wakeup = threading.Condition(self._waking)
        self._purges: deque[Purge] = deque()
        self._unpurged: deque[Purge] = deque()  # the failed removals, which are tried again later
        self._is_stopped = False
        self._is_idle = False
        self._thread = Thread(
            target=_keep_house,
            args=(ref(self), self._waking, self._wakeup),
            name=f"logstore-{log_dir.path}",
            daemon=True,
        )

    def start(self) -> None:
        """Start the thread, which first purges superseded copies, perhaps after a flush.

        Raises:
            LogDirError: this process can start no more threads; the error is retriable.
        """
        start_for(self.log_dir.path, self._thread)

    def stop(self) -> None:
        """Ask the thread to end; `join` waits for the end."""
        self.compactor.stop()
        with self._waking:
            self._is_stopped = True
            self._wakeup.notify_all()

    def join(self, timeout: float | None) -> bool:
        """Wait for the end of the thread; return whether it ended."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        # The keeper's thread must end first, because it starts the compactor's thread.
        return not self._thread.is_alive() and self.compactor.join(timeout)

    def purge(self, path: str, then: Callable[[], object] = lambda: None) -> None:
        """Ask the thread to remove a replica's directory, and to call `then` afterwards."""
        self._replicas.copies.doomed[path] = self.log_dir
        with self._waking:
            self._purges.append((path, then))
            self._wakeup.notify_all()

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait until all requested removals are done; return False if the timeout ends first."""
        with self._waking:
            return self._wakeup.wait_for(lambda: self._is_idle and not self._purges, timeout)

    # --- the duties -------------------------------------------------------------------------------

    def flush_due(self) -> None:
        """Flush the logs whose `flush_ms` has passed, and the logs with rolled segments."""
        now_ms = self._clock.now_ms()
        for log in self._replicas.on(self.log_dir):
            self._guard("flush", partial(log.flush_if_due, now_ms))

    def retain(self) -> None:
        """Roll active segments that are too old; drop old segments, and forget old producers."""
        if self.log_dir.is_outdated:  # the logs of an old copy refuse every change
            return
        now_ms = self._clock.now_ms()
        for log in self._replicas.on(self.log_dir):
            self._guard("roll", partial(log.roll_if_due, now_ms))
            self._guard("retention", log.apply_retention)
            self._guard("expiry of producers", partial(log.expire_producers, now_ms))

    def checkpoint(self) -> None:
        """Retry failed removals, checkpoint the logs and the log dir, and request new removals."""
        self._purge_again()
        for log in self._replicas.on(self.log_dir):
            self._guard("checkpoint", log.checkpoint)
        self.write_offsets()
        self._guard("purge", self.purge_covered)
        purge_postponed(self._replicas)

    def write_offsets(self, *, is_last: bool = False) -> None:
        """Write the log dir's offsets checkpoints, which contain only offsets that are durable.

        Args:
            is_last: whether the log dir is being closed or taken offline. The last write raises the
                generation even if no offset changed, so that an older copy is recognised.
        """
        with call(self.log_dir.path, SYNCING):
            self.log_dir.ballast.use(partial(self._write_offsets, is_last))

    def _write_offsets(self, is_last: bool) -> None:
        self.log_dir.check_place()
        points = {key_of(log): log.recovery_point for log in self._replicas.on(self.log_dir)}
        # The logs of an old copy are read-only, so a new checkpoint would lack their offsets.
        if not self.log_dir.is_outdated:
            self._write_checkpoints()
        self._replicas.catalog.write(self.log_dir)
        old_copies.checkpoint(self._replicas, self.log_dir, points, is_last=is_last)
        old_copies.witness(self._replicas, self.log_dir)

    def _write_checkpoints(self) -> None:
        logs, write = self._replicas.on, self.log_dir.checkpoints.write
        limited = [(log, limited_metadata(log)) for log in logs(self.log_dir)]
        write(
            RECOVERY_POINTS,
            lambda: {
                key_of(log): log.recovery.checkpoint_of(log.recovery_point)
                for log in logs(self.log_dir)
            },
            lambda: {key_of(log): log.topic_id for log in logs(self.log_dir)},
        )
        for log, metadata in limited:
            if metadata is not None:
                lift_recovery_point_limit(log, metadata)
        write(
            LOG_START_OFFSETS,
            lambda: {key_of(log): log.log_start_offset for log in logs(self.log_dir)},
            lambda: {key_of(log): log.topic_id for log in logs(self.log_dir)},
        )
        write(
            HIGH_WATERMARKS,
            lambda: {key_of(log): at for log, at in self._replicated()},
            lambda: {key_of(log): log.topic_id for log, _ in self._replicated()},
        )

    def _replicated(self) -> list[tuple[Log, int]]:
        """Return the high watermarks of the replicated logs."""
        found = [(log, replicated_to(log)) for log in self._replicas.on(self.log_dir)]
        return [(log, at) for log, at in found if at is not None]

    def _write_catalog(self) -> None:
        """Bring the catalog file up to date; if the disk is full, a later checkpoint writes it."""
        try:
            with call(self.log_dir.path, SYNCING):
                self.log_dir.ballast.use(partial(self._replicas.catalog.write, self.log_dir))
        except OSError as error:
            if verdict_of(error) is not Verdict.FULL or isinstance(error, files.SyncError):
                raise

    def refresh_usage(self) -> None:
        """Read the disk's free space and the replicas' sizes."""
        figures = self._replicas.figures[self.log_dir.path]
        with call(self.log_dir.path):
            figures.refresh(self._replicas.on(self.log_dir))

    def probe(self) -> None:
        """Probe the disk; a SUSPECT log dir works again after several good probes."""
        log_dir, began = self.log_dir, time.monotonic()
        try:
            with call(log_dir.path, SYNCING):
                log_dir.probe()
        except OSError as error:
            log_dir.take_offline(f"the probe failed: {reason_of(error)}")
            return
        is_good = time.monotonic() - began < self._suspect_seconds
        log_dir.good_probes = log_dir.good_probes + 1 if is_good else 0
        judge(log_dir, [one for one in self._replicas.log_dirs if one is not log_dir])

    def keep_pace(self) -> None:
        """Probe a disk that is in use or SLOW, to compare it with the other disks.

        An idle disk is not probed, because a probe would wake a sleeping disk, and no caller waits
        for an idle disk.
        """
        flushes = self.log_dir.flush_count
        if flushes != self._flushes_seen or self.log_dir.is_slow:
            self._flushes_seen = flushes
            self.probe()

    def probe_soon(self) -> None:
        """Make the thread probe the log dir as soon as possible, because the dir became SUSPECT."""
        self._do_soon(PROBE)

    def relieve_soon(self) -> None:
        """Make the thread look for room as soon as possible, because the dir became full."""
        self._do_soon(PRESSURE)

    def _do_soon(self, duty: str) -> None:
        with self._waking:
            self._due[duty] = 0.0
            self._wakeup.notify_all()

    def run_due(self, now: float) -> None:
        """Do the requested removals, and the duties that are due at `now` (a monotonic time)."""
        while self._purges and not self.log_dir.is_suspect:
            self._guard("purge", self._purge_next)
        for duty in self._duties:
            if self._is_stopped or self.log_dir.is_offline:
                return
            is_suspect = self.log_dir.is_suspect
            if now >= self._due[duty.name] and (duty.name == PROBE or not is_suspect):
                interval = SUSPECT_PROBE_SECONDS if is_suspect else duty.interval_seconds
                self._due[duty.name] = now + interval
                self._guard(duty.name, duty.work)

    def run_one(self, name: str) -> None:
        """Do one duty now, even if it is not due."""
        for duty in self._duties:
            if duty.name == name:
                self._guard(name, duty.work)

    def _purge_next(self) -> None:
        purge = self._purges.popleft()
        if not self.log_dir.is_offline:
            self._purge(purge)

    def _purge(self, purge: Purge) -> None:
        path, then = purge
        self._write_catalog()  # the file must record the log dir of the copy that remains
        try:
            with call(path, WORKING) as work:
                self.log_dir.check_place()  # on an empty mount point, the directory is missing, too
                purge_tree(path, work.beat)
        except (OSError, MemoryError):
            self._unpurged.append(purge)
            raise
        self._replicas.copies.doomed.pop(path, None)
        then()

    def _purge_again(self) -> None:
        """Retry failed removals; the first failure of each removal is already reported."""
        for _ in range(len(self._unpurged)):
            try:
                self._purge(self._unpurged.popleft())
            except OSError as error:
                self.log_dir.failed(error)
                self.log_dir.check()

    def purge_covered(self) -> None:
        """Request the removal of superseded copies whose live copy is on this log dir."""
        purge_covered(self._replicas, self.log_dir)

    def _guard(self, name: str, work: Callable[[], object]) -> None:
        """Do some work; convert or log any exception, so that the thread continues."""
        try:
            work()
        except FileNotFoundError:
            pass  # another thread removed the file first; no disk is at fault
        except OSError as error:
            failure = self.log_dir.failed(error)
            warn("%s of %s failed: %s", name, self.log_dir.path, failure)
        except (LogClosedError, UnknownPartitionError):
            pass  # the log was closed or deleted meanwhile
        except LogStoreError as error:
            warn("%s in %s failed: %s", name, self.log_dir.path, error)
        except Exception:  # noqa: BLE001 - no exception may end the thread
            warn("%s in %s failed", name, self.log_dir.path, exc_info=True)

    # --- the thread -------------------------------------------------------------------------------

    def _next_due(self) -> float:
        """Return the time of the next duty; if the dir is SUSPECT, the time of the next probe."""
        return self._due[PROBE] if self.log_dir.is_suspect else min(self._due.values())

    def begin(self) -> None:
        """Request the removal of superseded copies, once, when the thread starts."""
        self._guard("purge", self.purge_covered)

    def pause_seconds(self) -> float | None:
        """Give the seconds until the next duty: 0.0 if there is work, None if the thread must end.

        The caller must hold the lock.
        """
        self._is_idle = True
        self._wakeup.notify_all()
        if not self._is_stopped and (not self._purges or self.log_dir.is_suspect):
            seconds = self._next_due() - time.monotonic()
            if seconds > 0 and not self.log_dir.is_offline:
                return seconds
        is_over = not self._purges or self.log_dir.is_suspect
        if self.log_dir.is_offline or (self._is_stopped and is_over):
            return None
        self._is_idle = False
        return 0.0


def _keep_house(
    entry: ref[DirKeeper], waking: threading.RLock, wakeup: threading.Condition
) -> None:
    """Do a keeper's work until it ends; while the thread waits, the store can be dropped."""
    keeper = entry()
    if keeper is not None:
        keeper.begin()
    while True:
        with waking:
            keeper = entry()
            seconds = None if keeper is None else keeper.pause_seconds()
            if seconds is None:
                return
            if seconds:
                keeper = None
                wakeup.wait(seconds)
        if keeper is not None:
            try:
                keeper.run_due(time.monotonic())
            except MemoryError:  # the next turn may have memory to log an error
                time.sleep(SHORTAGE_SECONDS)
            keeper = None
