"""Bring one log dir into a running store: lock it, probe it, write its identity, open its logs.

The steps are the same as at a start, but for only one dir, while the other dirs work. A log that
is already open stays open. If a copy in the returned dir outranks an open log, an error reports the
copy and the log.

Each disk call runs in a thread of its own. If a call hangs, its thread is abandoned, and the dir is
offline again, so that the user can give up the dir.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from logstore.disk.calls import awake_seconds, calls_to, longest_seconds, wait_awake
from logstore.disk.documents.meta_properties import new_id
from logstore.disk.log_dir import LogDir
from logstore.errors import DuplicateLogError, LogDirError, LogDirOfflineError
from logstore.log import host
from logstore.store.dirs import parallel, takeover
from logstore.store.dirs.dropped_store import weakly
from logstore.store.dirs.lost_dirs import refuse_loss, replicas_of
from logstore.store.recovery_report import RecoveryReport
from logstore.store.start.loader import Loader
from logstore.store.start.refusals import last_at, missing_remedy
from logstore.store.upkeep.events import StoreEvent, StoreEventKind
from logstore.store.upkeep.purge import forget_postponed, outlive_deletions
from logstore.units import format_count

if TYPE_CHECKING:
    from logstore.store.dirs.membership import Admission
    from logstore.store.state import OwnerState


def bring_in(state: OwnerState, admission: Admission) -> RecoveryReport:
    """Take possession of a log dir, open its logs, and start its keeper.

    Raises:
        LogDirLockedError: another process has the log dir open.
        LogDirOfflineError: the disk failed during the call; the store is unchanged.
        DuplicateLogError: a copy in the log dir outranks an open log. The other replicas of the log
            dir are open.
    """
    _wait_until_quiet(state, admission.path)
    log_dir = LogDir(admission.path)
    log_dir.is_back = True
    before = state.replicas.find_dir(admission.path)
    if before is not None and before.directory_id == admission.directory_id:
        log_dir.generation.hold(before.generation)
    replicas, report = state.replicas, RecoveryReport()
    try:
        _take_possession(state, admission, log_dir)
        replicas.put_dir(log_dir)
        log_dir.report_to(weakly(state.failures.failed))
        state.events.watch(log_dir)
        if log_dir.is_offline:  # the dir failed before the call of `report_to`
            state.failures.failed(log_dir)
        state.membership.note_missing()
        loader = Loader(
            replicas,
            state.environment,
            report,
            threads_per_dir=state.config.num_recovery_threads_per_data_dir,
        )
        loader.load_dir(log_dir)
        replicas.catalog.write_at_once([log_dir])
        log_dir.check()
        state.keep(log_dir).start()
        replicas.returning.discard(log_dir)
        forget_postponed(replicas, loader.purges)
        for doomed in loader.purges:
            replicas.purge(doomed)
        kind = StoreEventKind.LOG_DIR_ADDED if before is None else StoreEventKind.LOG_DIR_RETURNED
        state.events.post(StoreEvent(kind, log_dir.path))
        state.host.answered()
    # Ctrl-C is caught, too: a dir must not be used with only a part of its logs.
    except BaseException as error:
        _break_off(state, log_dir, error)
        raise
    for entry in report.offline:
        if isinstance(entry.error, DuplicateLogError):
            raise entry.error
    report.warnings += still_missing(state)
    return report


def still_missing(state: OwnerState) -> Iterator[str]:
    """Describe each missing log dir of the store, with its replicas."""
    for id_ in state.replicas.missing_ids:
        held = state.replicas.catalog.on(id_)
        names = f", with {', '.join(map(str, held))}" if held else ""
        path = last_at(state.replicas.last_path_of(id_))
        yield f"log dir {id_}{path} is still missing{names}: {missing_remedy(id_)}"


def replace(
    state: OwnerState, old: LogDir, admission: Admission, *, may_lose: bool
) -> RecoveryReport:
    """Replace a lost disk by an empty disk; the report lists the replicas that are lost.

    Raises:
        LogDirError: replicas would be lost, and `may_lose` is False. The attribute `lost` of the
            error lists the lost replicas.
    """
    from logstore.store.upkeep.keeper import warn

    held = replicas_of(state.replicas, admission.replaces, old)
    if not may_lose:
        refuse_loss(
            state.replicas,
            old.path,
            admission.replaces,
            held,
            when="if an empty disk replaces it",
            advice="Mount the old disk if it can be read. To give these replicas up: logstore "
            f"reopen {old.path} --format-new --yes",
        )
    outlive_deletions(state.replicas, state.keepers, old)
    report = bring_in(state, admission)
    report.lost += [key for key in held if key not in state.replicas.opened]
    if report.lost:
        names = ", ".join(map(str, report.lost))
        warn("an empty disk replaced the disk of %s; replicas lost: %s", old.path, names)
    return report


def _break_off(state: OwnerState, log_dir: LogDir, error: BaseException) -> None:
    """End a failed return: take a member offline, or release a log dir that is not a member."""
    state.replicas.returning.discard(log_dir)
    known = state.replicas.find_dir(log_dir.path)
    if known is log_dir:
        log_dir.take_offline(
            f"the log dir could not be taken into use: {error or type(error).__name__}"
        )
        state.failures.failed(log_dir)
    elif not log_dir.is_offline:  # the failed or hung thread unlocks an offline dir
        log_dir.release()
    if known is None:
        log_dir.leave()


def _take_possession(state: OwnerState, admission: Admission, log_dir: LogDir) -> None:
    """Lock and probe a log dir, and write its identity; after an error, the caller must unlock it.

    The order ensures that only a dir that works becomes a member of the store. If a step hangs, its
    thread is abandoned. When the hung call returns, the thread only frees the lock.
    """
    log_dir.belong(state.membership.cluster_id, admission.directory_id)
    log_dir.lock.admin_socket = state.admin.path
    is_new, start_id = admission.is_new, new_id()
    is_member = admission.directory_id in state.membership.roster
    log_dir.generation.is_taken_in = not is_new and not is_member
    steps: tuple[Callable[[LogDir], None], ...] = (
        partial(takeover.lock, is_new=is_new),
        partial(takeover.begin, start_id=start_id, is_new=is_new),
        takeover.probe,
    )
    for step in steps:
        takeover.each([log_dir], step, state.patience_seconds, when="while it is taken into use")
        if log_dir.is_offline:
            raise takeover.does_not_work(log_dir.path, log_dir.offline_reason)
    state.membership.join(log_dir, admission)


def _wait_until_quiet(state: OwnerState, path: str) -> None:
    """Wait until every earlier call to an offline log dir has returned.

    An earlier call that still runs could write to a place that recovery has already read.

    Raises:
        LogDirOfflineError: an earlier call hangs.
    """
    began = time.monotonic()
    before = state.replicas.find_dir(path)
    logs = [] if before is None else state.replicas.on(before)
    while calls_to(path) or any(host.is_writing(log) for log in logs):
        seconds = longest_seconds(path)
        waited = awake_seconds(began, time.monotonic())
        if max(seconds, waited) > state.patience_seconds:
            reason = (
                f"an earlier call to its disk has not returned for {seconds:.0f} s: the disk hangs"
            )
            raise LogDirOfflineError(path=path, reason=reason)
        wait_awake(time.sleep, parallel.LOOK_SECONDS)


def refuse_unless_empty(state: OwnerState, log_dir: LogDir) -> None:
    """Raise LogDirError if a log dir has contents that are still needed; may raise OSError."""
    from logstore.store.start.listing import list_log_dir

    replicas = state.replicas
    held = sorted(str(key) for key in replicas.names() if replicas.dir_holding(key) is log_dir)
    if held:
        reason = f"it holds {format_count(len(held), 'replica')}: {', '.join(held[:20])}"
        reason += "; move or delete them first"
        raise LogDirError(path=log_dir.path, reason=reason)
    targets = [m for m in list(replicas.running_moves.values()) if m.target_dir == log_dir.path]
    if targets:
        reason = f"{len(targets)} moves to it are running; cancel them first"
        raise LogDirError(path=log_dir.path, reason=reason)
    left = list_log_dir(log_dir).replicas
    if replicas.is_a_dir_in_doubt() and any(facts.is_deleted_by_user for facts in left):
        reason = (
            "it has the record of deleted replicas, and another log dir that is missing, offline "
            "or outdated, or hangs, may still have copies of these replicas"
        )
        raise LogDirError(path=log_dir.path, reason=reason)
    deleted = sorted({f"{f.topic}-{f.partition}" for f in left if f.is_deleted_by_user})
    if deleted:  # without this record, a copy in another dir would come back
        reason = f"it has the record that {', '.join(deleted[:20])} was deleted, until the last "
        reason += "copies in other log dirs are removed; try again"
        raise LogDirError(path=log_dir.path, reason=reason, retriable=True)
    is_copy = ("move", "delete")  # a `.move` or `.delete` may be the last copy of its replica
    copies = [facts.dir_name for facts in left if facts.kind in is_copy or not facts.topic_id]
    if copies:
        reason = f"{', '.join(copies)} may still be needed"
        raise LogDirError(path=log_dir.path, reason=reason)
