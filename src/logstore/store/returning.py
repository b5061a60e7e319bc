"""Bring one log dir into a running store: identity, lock, probe, start-up table, recovery.

The same steps as at a start, for one dir, while the others serve. A log that is open already stays
what it is; a copy that outranks it is told as an error that names both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.disk.failures import reason_of, refuse_shortage
from logstore.disk.log_dir import LogDir
from logstore.disk.meta_properties import new_id
from logstore.errors import DuplicateLogError, LogDirError, LogStoreError
from logstore.store.identity import make_missing
from logstore.store.purging import forget_postponed
from logstore.store.recovery_report import RecoveryReport

if TYPE_CHECKING:
    from logstore.store.administration import StoreAdministration
    from logstore.store.membership import Admission


def bring_in(store: StoreAdministration, admission: Admission) -> RecoveryReport:
    """Take a log dir into possession, load what is in it, and look after it from now on.

    Raises:
        LogDirLockedError: another process has it.
        LogDirOfflineError: its disk failed on the way; the store is what it was.
        DuplicateLogError: a copy in it outranks one that is open; all else of it serves.
    """
    log_dir = _take_possession(store, admission)
    replicas, report = store._replicas, RecoveryReport()
    replicas.put_dir(log_dir)
    log_dir.report_to(store._log_dir_failed)
    if log_dir.is_offline:  # it failed before anybody was told of failures
        store._log_dir_failed(log_dir)
    store._membership.note_missing()
    try:
        loader = store._loader(report)
        loader.load_dir(log_dir)
    except LogStoreError as error:
        log_dir.take_offline(f"bringing it in broke off: {error}")
        raise
    finally:
        replicas.returning.discard(log_dir)
    log_dir.check()
    store._keep(log_dir).start()
    forget_postponed(replicas, loader.purges)
    for doomed in loader.purges:
        replicas.purge(doomed)
    for entry in report.offline:
        if isinstance(entry.error, DuplicateLogError):
            raise entry.error
    return report


def _take_possession(store: StoreAdministration, admission: Admission) -> LogDir:
    """Lock, begin, write the identity, probe; whatever fails leaves the dir unlocked."""
    log_dir = LogDir(admission.path)
    log_dir.belong(store._membership.cluster_id, admission.directory_id)
    log_dir.lock.admin_socket = store.admin.path
    try:
        if admission.is_new:
            make_missing(log_dir.path)
        log_dir.check_place()
        log_dir.lock.acquire()
        log_dir.begin(new_id(), is_new=admission.is_new)
        store._membership.join(log_dir, admission)
        log_dir.probe()
        log_dir.load_settings()
        log_dir.refresh_usage()
    except OSError as error:
        log_dir.release()
        refuse_shortage(error, log_dir.path)
        reason = f"it cannot be taken into possession: {reason_of(error)}"
        raise log_dir.take_offline(reason) from error
    except LogStoreError:
        log_dir.release()
        raise
    return log_dir


def refuse_unless_empty(store: StoreAdministration, log_dir: LogDir) -> None:
    """Raise LogDirError while something in a log dir is still of use; raises OSError too."""
    from logstore.store.listing import list_log_dir

    replicas = store._replicas
    held = sorted(str(key) for key in replicas.names() if replicas.dir_holding(key) is log_dir)
    if held:
        reason = f"it holds {len(held)} replicas: {', '.join(held[:20])}; move or delete them first"
        raise LogDirError(path=log_dir.path, reason=reason)
    targets = [m for m in list(replicas.running_moves.values()) if m.target_dir == log_dir.path]
    if targets:
        reason = f"{len(targets)} moves to it are under way; cancel them first"
        raise LogDirError(path=log_dir.path, reason=reason)
    left = list_log_dir(log_dir).replicas
    if replicas.is_a_dir_in_doubt() and any(facts.is_deleted_by_user for facts in left):
        reason = (
            "it keeps the record of deletions that a log dir which is offline, or hangs, has yet "
            "to learn"
        )
        raise LogDirError(path=log_dir.path, reason=reason)
    copies = [facts.dir_name for facts in left if facts.kind == "move" or not facts.topic_id]
    if copies:
        reason = f"{', '.join(copies)} may be needed still"
        raise LogDirError(path=log_dir.path, reason=reason)
