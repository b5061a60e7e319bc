"""Flush, close and drop the logs of one log dir; the store does it for all of them at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from logstore.disk import files
from logstore.disk.failures import reason_of
from logstore.disk.log_dir import LogDir
from logstore.errors import LogDirOfflineError, LogStoreError
from logstore.log.flushing import unflushed_paths
from logstore.log.log import Log
from logstore.store.background import DirKeeper, warn
from logstore.store.parallel import Outcome
from logstore.store.replicas import Replicas


def flush_dir(replicas: Replicas, log_dir: LogDir) -> None:
    """Flush every log of a log dir, then raise the first error there was."""
    for failure in _for_logs(replicas, log_dir, Log.flush):
        raise failure


def close_dir(replicas: Replicas, keeper: DirKeeper | None, log_dir: LogDir) -> None:
    """Close one log dir in order, or let go of it when it does not serve."""
    failures: list[LogStoreError] = []
    try:
        if keeper is not None and not log_dir.is_refusing:
            failures = _close_good_dir(replicas, keeper, log_dir)
    except OSError as error:
        raise log_dir.failed(error) from error
    finally:
        if log_dir.is_refusing:
            drop_logs(replicas, log_dir)
        log_dir.release()
    if failures:
        raise failures[0]


def _close_good_dir(replicas: Replicas, keeper: DirKeeper, log_dir: LogDir) -> list[LogStoreError]:
    """Flush, write the checkpoints, close; the marker comes last, and only if nothing is amiss."""
    keeper.join(None)
    failures = _for_logs(replicas, log_dir, Log.flush)
    try:
        keeper.write_offsets()
    except OSError as error:  # a full disk has no room for them: the logs are closed all the same
        failures.append(log_dir.failed(error))
    failures += _for_logs(replicas, log_dir, Log.close)
    for incomplete in list(replicas.incomplete.values()):
        if incomplete.log_dir is log_dir:
            incomplete.log.close()
    if failures:  # whoever could not be closed in order lets go at least
        _for_logs(replicas, log_dir, partial(Log.close, flush=False))
    log_dir.check()
    if not failures and log_dir.is_fully_loaded and log_dir.start_id:
        log_dir.lock.mark_clean(log_dir.start_id)
    return failures


def is_suspect(log_dir: LogDir) -> bool:
    """Tell whether it is of no use to wait for a log dir."""
    return log_dir.is_suspect


def let_go(replicas: Replicas, log_dirs: Iterable[LogDir]) -> None:
    """Let go of log dirs that hang, each in a thread that nobody waits for."""
    for log_dir in log_dirs:
        threading.Thread(
            target=close_dir, args=(replicas, None, log_dir), name="logstore-let-go", daemon=True
        ).start()


def drop_logs(replicas: Replicas, log_dir: LogDir) -> None:
    """Let go of every descriptor on a dead disk: else it goes on failing when it is back.

    And of what is in memory of it: who opens it next reads what a failed flush has left there.
    """
    unflushed: list[str] = []
    incomplete = [one.log for one in list(replicas.incomplete.values()) if one.log_dir is log_dir]
    for log in [*replicas.on(log_dir), *incomplete]:
        try:
            if isinstance(log, Log):  # nobody here writes the others
                unflushed += unflushed_paths(log)
            log.detach(log_dir.refusal(), of=log_dir)
        except Exception:  # noqa: BLE001 - the next one must be dropped too
            warn("dropping %s-%s failed", log.topic, log.partition, exc_info=True)
    for path in unflushed:
        with suppress(OSError):
            files.forget_clean(path)


def _for_logs(
    replicas: Replicas, log_dir: LogDir, work: Callable[[Log], object]
) -> list[LogStoreError]:
    """Do something for every log of a log dir; one that fails does not stop the others."""
    failures = []
    for log in replicas.on(log_dir):
        if log.is_closed_whole:
            continue
        try:
            work(log)
        except LogStoreError as error:
            log_dir.check()
            failures.append(error)
    return failures


def raise_first(outcomes: Iterable[Outcome[LogDir]]) -> None:
    """Raise the first error of several log dirs, as an error of this library."""
    for outcome in outcomes:
        if isinstance(outcome.error, OSError):
            raise LogDirOfflineError(
                path=outcome.item.path, reason=reason_of(outcome.error)
            ) from outcome.error
        if outcome.error is not None:
            raise outcome.error
