"""Take possession of log dirs step by step: lock, begin, probe; used by a start and a return.

Each step is taken on all log dirs at once and is bounded in time. A dir that does not end it in
time is offline, and its thread is abandoned. When that thread returns, it sees that it is no longer
waited for, writes nothing more and gives the lock back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from logstore.disk.failures import reason_of, refuse_shortage
from logstore.disk.log_dir import LogDir
from logstore.errors import LogDirOfflineError
from logstore.store.dirs.parallel import in_time
from logstore.store.start.identity import make_missing


def does_not_work(path: str, reason: str | None) -> LogDirOfflineError:
    """Make the error of a log dir that could not be taken into use, with what to do."""
    return LogDirOfflineError(
        path=path, reason=f"{reason}; check the path and its disk, then try again"
    )


def release_all(log_dirs: Sequence[LogDir], patience_seconds: float) -> None:
    """Give all locks back; the lock of a dir that hangs is given back once its call returns."""

    def release(log_dir: LogDir) -> None:
        log_dir.release()
        log_dir.leave()

    in_time(log_dirs, release, path_of, patience_seconds, name="logstore-release")


def path_of(log_dir: LogDir) -> str:
    """Give a log dir's path, as a function for passes over several."""
    return log_dir.path


def each(
    log_dirs: Sequence[LogDir],
    step: Callable[[LogDir], None],
    patience_seconds: float,
    *,
    when: str = "at the start",
) -> None:
    """Take one step with every log dir at once; a dir that does not end it in time is offline.

    A dir that fails or is late has given its lock back. If an error interrupts the step, it is
    raised after that; a thread that still hangs then gives back what it took.

    Args:
        when: the time that the reason names, for a dir that hangs.
    """
    is_broken_off = threading.Event()
    ended: set[LogDir] = set()  # set before its thread checks, and read after it is taken offline

    def take(log_dir: LogDir) -> None:
        try:
            step(log_dir)
        except BaseException:
            log_dir.release()
            raise
        ended.add(log_dir)
        if log_dir.is_offline or is_broken_off.is_set():  # it failed, or is no longer waited for
            log_dir.release()

    try:
        outcomes = in_time(log_dirs, take, path_of, patience_seconds, name="logstore-open")
        for outcome in outcomes:
            if not outcome.is_finished:
                reason = f"it hangs {when}, longer than {patience_seconds:.0f} s"
                outcome.item.take_offline(reason)
                # it ended at that very moment: its thread may have seen nothing
                if outcome.item in ended:
                    outcome.item.release()
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
    except BaseException:
        is_broken_off.set()
        raise


def lock(log_dir: LogDir, *, is_new: bool) -> None:
    """Lock a log dir, after making a new one; another owner refuses, a bad disk goes offline.

    Raises:
        LogDirLockedError: another process has it open.
        LogDirError: retriable; this process lacks a resource, such as descriptors or memory.
    """
    try:
        if is_new:
            make_missing(log_dir.path, log_dir.check)
        log_dir.check_place()
        log_dir.check()
        log_dir.lock.acquire()
        log_dir.spare.fill()
    except OSError as error:
        refuse_shortage(error, log_dir.path)
        log_dir.take_offline(f"it cannot be locked: {reason_of(error)}")


def begin(log_dir: LogDir, start_id: str, *, is_new: bool) -> None:
    """Remove a locked log dir's clean-shutdown marker, and record this start in the lock file."""
    try:
        log_dir.begin(start_id, is_new=is_new)
    except OSError as error:
        refuse_shortage(error, log_dir.path)
        log_dir.take_offline(f"it cannot be taken into possession: {reason_of(error)}")


def probe(log_dir: LogDir) -> None:
    """Probe a log dir, and read what its user decided about it."""
    try:
        log_dir.probe()
        log_dir.load_settings()
        log_dir.refresh_usage()
    except OSError as error:
        refuse_shortage(error, log_dir.path)
        log_dir.take_offline(f"the probe failed: {reason_of(error)}")
