"""Take possession of log dirs at a start or a return, in the steps `lock`, `begin` and `probe`.

Each step is taken on all log dirs in parallel, and its time is limited. If a dir takes longer than
the limit, it goes offline and its thread is abandoned. When the hung call returns, the thread sees
that it was abandoned, writes nothing more and frees the dir's lock.
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
    """Make the error for a log dir that could not be taken into use; the error contains advice."""
    return LogDirOfflineError(
        path=path, reason=f"{reason}; check the path and its disk, then try again"
    )


def release_all(log_dirs: Sequence[LogDir], patience_seconds: float) -> None:
    """Free all locks; the lock of a dir that hangs is freed when the hung call returns."""

    def release(log_dir: LogDir) -> None:
        log_dir.release()
        log_dir.leave()

    in_time(log_dirs, release, path_of, patience_seconds, name="logstore-release")


def path_of(log_dir: LogDir) -> str:
    """Return the path of a log dir; `in_time` calls this function."""
    return log_dir.path


def each(
    log_dirs: Sequence[LogDir],
    step: Callable[[LogDir], None],
    patience_seconds: float,
    *,
    when: str = "during the start",
) -> None:
    """Take one step on all log dirs in parallel; if a dir needs too long, take the dir offline.

    If a dir fails, its thread frees the dir's lock. If the step takes too long, the thread frees
    the lock when the hung call returns. The error of a step is raised after all threads have ended
    or were abandoned.

    Args:
        when: the phrase in a dir's offline reason that says when the dir hung.
    """
    is_broken_off = threading.Event()
    # A thread adds its dir to `ended` before it checks whether the dir is offline.
    # The caller takes a dir offline before it reads `ended`.
    # So at least one of these two threads releases a dir that took too long.
    ended: set[LogDir] = set()

    def take(log_dir: LogDir) -> None:
        try:
            step(log_dir)
        except BaseException:
            log_dir.release()
            raise
        ended.add(log_dir)
        if log_dir.is_offline or is_broken_off.is_set():  # the dir failed, or no thread waits
            log_dir.release()

    try:
        outcomes = in_time(log_dirs, take, path_of, patience_seconds, name="logstore-open")
        for outcome in outcomes:
            if not outcome.is_finished:
                reason = f"it hangs {when}: a step took longer than {patience_seconds:.0f} s"
                outcome.item.take_offline(reason)
                # The step may have ended just before `take_offline`.
                # Then the thread of the step may not have seen that the dir is offline.
                # In that case, the calling thread releases the dir.
                if outcome.item in ended:
                    outcome.item.release()
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
    except BaseException:
        is_broken_off.set()
        raise


def lock(log_dir: LogDir, *, is_new: bool) -> None:
    """Lock a log dir, which is first made if it is new; if the disk fails, take the dir offline.

    Raises:
        LogDirLockedError: another process has the log dir open.
        LogDirError: this process lacks a resource, such as descriptors or memory; the error is
            retriable.
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
    """Remove a locked log dir's clean-shutdown marker, and write this start into the lock file."""
    try:
        log_dir.begin(start_id, is_new=is_new)
    except OSError as error:
        refuse_shortage(error, log_dir.path)
        log_dir.take_offline(f"it cannot be taken into possession: {reason_of(error)}")


def probe(log_dir: LogDir) -> None:
    """Probe a log dir, and read its settings and its free space."""
    try:
        log_dir.probe()
        log_dir.load_settings()
        log_dir.refresh_usage()
    except OSError as error:
        refuse_shortage(error, log_dir.path)
        log_dir.take_offline(f"the probe failed: {reason_of(error)}")
