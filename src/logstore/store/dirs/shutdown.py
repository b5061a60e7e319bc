"""Flush, close and drop the logs of log dirs; release log dirs that hang."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from logstore.disk import bulk
from logstore.disk.calls import SYNCING, call
from logstore.disk.documents.meta_properties import new_id
from logstore.disk.failures import Verdict, reason_of, verdict_of
from logstore.disk.log_dir import LogDir
from logstore.disk.threads import Thread
from logstore.errors import LogDirOfflineError, LogStoreError, UnknownPartitionError
from logstore.log import host
from logstore.log.log import Log
from logstore.store.dirs.farewell import Farewell
from logstore.store.dirs.old_copies import witness
from logstore.store.dirs.parallel import Outcome, for_each
from logstore.store.replicas import Replicas
from logstore.store.upkeep.keeper import DirKeeper, warn


def flush_dirs(replicas: Replicas) -> tuple[str, ...]:
    """Flush all log dirs that work, in parallel; return the paths of the other log dirs."""
    skipped = tuple(d.path for d in replicas.log_dirs if d.is_refusing)
    good = [log_dir for log_dir in replicas.log_dirs if not log_dir.is_refusing]
    outcomes = for_each(
        good, partial(flush_dir, replicas), name="logstore-flush", is_given_up=is_suspect
    )
    raise_first(outcomes)
    for outcome in outcomes:
        if not outcome.is_finished:
            raise outcome.item.suspect_error()
    return skipped


def flush_dir(replicas: Replicas, log_dir: LogDir) -> None:
    """Flush every log of a log dir, then raise the first error."""
    for failure in _for_logs(replicas, log_dir, Log.flush):
        raise failure


def close_dir(
    replicas: Replicas,
    keeper: DirKeeper | None,
    log_dir: LogDir,
    farewell: Farewell | None = None,
) -> None:
    """Close one log dir cleanly; if the log dir does not work, only release it.

    Args:
        farewell: the object that is shared by all log dirs that are closed together.
    """
    failures: list[LogStoreError] = []
    farewell = farewell or Farewell((), None)
    try:
        if keeper is not None and not log_dir.is_refusing:
            failures = _close_good_dir(replicas, keeper, log_dir, farewell)
    except OSError as error:
        raise log_dir.failed(error) from error
    finally:
        try:
            farewell.arrive(log_dir)
            drop_logs(replicas, log_dir)  # the logs that were not closed cleanly
        finally:
            log_dir.release()
            log_dir.leave()
    if failures:
        raise failures[0]


def _close_good_dir(
    replicas: Replicas, keeper: DirKeeper, log_dir: LogDir, farewell: Farewell
) -> list[LogStoreError]:
    """Flush and checkpoint the logs, close them, and mark the dir as clean if no step failed."""
    keeper.join(None)
    failures = _for_logs(replicas, log_dir, Log.flush)
    try:
        keeper.write_offsets(is_last=True)
    except OSError as error:  # the logs are closed even if, for example, the disk is full
        failures.append(log_dir.failed(error))
    farewell.arrive(log_dir)
    failures += _for_logs(replicas, log_dir, Log.close)
    log_dir.check()
    farewell.wait()
    _witness(replicas, log_dir)
    if not log_dir.start_id:
        log_dir.begin(new_id())  # this call failed at the start if the disk was full
    if not failures and not log_dir.not_loaded and log_dir.start_id:
        log_dir.ballast.use(partial(log_dir.lock.mark_clean, log_dir.start_id))
    return failures


def _witness(replicas: Replicas, log_dir: LogDir) -> None:
    """Write the other log dirs' last generations to this log dir; on a full disk, do nothing."""
    try:
        with call(log_dir.path, SYNCING):
            log_dir.ballast.use(partial(witness, replicas, log_dir))
    except OSError as error:
        if verdict_of(error) is not Verdict.FULL:
            raise


def is_suspect(log_dir: LogDir) -> bool:
    """Check whether a log dir hangs, so that it is useless to wait for it."""
    return log_dir.is_suspect


def let_go(replicas: Replicas, log_dirs: Iterable[LogDir]) -> None:
    """Release log dirs that hang, each in a thread of its own; do not wait for these threads."""
    for log_dir in log_dirs:
        thread = Thread(
            target=close_dir, args=(replicas, None, log_dir), name="logstore-let-go", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the calling thread must not wait for a disk
            warn("log dir %s hangs, and stays locked by this process: %s", log_dir.path, error)


def drop_logs(replicas: Replicas, log_dir: LogDir) -> None:
    """Release all descriptors on a dead disk: they stay unusable even if the disk comes back.

    The page cache of unflushed files is dropped, too. After a failed flush, the cache may have data
    that is not on the disk, and the next open would read this data. If the disk is good, the logs
    that are not closed yet are closed without a flush.

    Raises:
        MemoryError: some descriptors are not released yet; call the function again.
    """
    unflushed: list[str] = []
    shortages: list[MemoryError] = []
    incomplete = [one.log for one in list(replicas.incomplete.values()) if one.log_dir is log_dir]
    for log in [*replicas.on(log_dir), *incomplete]:
        try:
            if not log_dir.is_refusing:
                log.close(flush=False)
                continue
            if isinstance(log, Log):  # a log of another class is open for reading only
                unflushed += host.unflushed_paths(log)
            log.detach(log_dir.refusal(), of=log_dir)
            host.tell_end(log)
        except MemoryError as error:
            shortages.append(error)
        except Exception:  # noqa: BLE001 - the next log must be dropped too
            warn("dropping %s-%s failed", log.topic, log.partition, exc_info=True)
    for path in unflushed:
        with suppress(OSError):
            bulk.forget_clean(path)
    if shortages:
        raise shortages[0]


def _for_logs(
    replicas: Replicas, log_dir: LogDir, work: Callable[[Log], object]
) -> list[LogStoreError]:
    """Call a function for every log of a log dir, even after an error; return all errors."""
    failures = []
    for log in replicas.on(log_dir):
        if log.is_closed_whole:
            continue
        try:
            work(log)
        except UnknownPartitionError:
            continue  # the partition was deleted meanwhile
        except LogStoreError as error:
            log_dir.check()
            failures.append(error)
    return failures


def raise_first(outcomes: Iterable[Outcome[LogDir]]) -> None:
    """Raise the first error of several log dirs; convert an OSError to a LogDirOfflineError."""
    for outcome in outcomes:
        if isinstance(outcome.error, OSError):
            raise LogDirOfflineError(
                path=outcome.item.path, reason=reason_of(outcome.error)
            ) from outcome.error
        if outcome.error is not None:
            raise outcome.error
