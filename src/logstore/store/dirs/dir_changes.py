"""Change the log dirs of a running store: add, remove, take offline, reopen, cordon, prefer.

Before a thread changes a log dir, it claims that dir. Changes of different dirs do not wait for
each other. A change may wait for the disk of its own dir, but not for another disk that hangs.
Ctrl-C does not interrupt a change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.arguments import StrPath, flag, path_of
from logstore.disk.log_dir import LogDir
from logstore.disk.uninterrupted import uninterruptible
from logstore.errors import LogDirError, LogDirOfflineError, LogStoreError
from logstore.names import TopicPartition, validate_partition, validate_topic

if TYPE_CHECKING:
    from logstore.store.recovery_report import RecoveryReport
    from logstore.store.state import OwnerState

DROP_SECONDS_MAX = 5.0


@uninterruptible
def add(state: OwnerState, path: StrPath, *, format_new: bool) -> RecoveryReport:
    """Implement `LogStore.add_dir`."""
    from logstore.store.dirs.dir_return import bring_in

    flag(format_new, "format_new")
    with state.claims.change_of(_resolved(state, path)) as resolved:
        if state.replicas.find_dir(resolved) is not None:
            reason = "it is already a log dir of this store; if it is offline, reopen it"
            raise LogDirError(path=resolved, reason=reason)
        members = state.membership.roster
        try:
            return bring_in(state, state.membership.admit(resolved, format_new=format_new))
        except (LogDirError, MemoryError) as error:
            is_shortage = isinstance(error, MemoryError) or (
                error.retriable and type(error) is LogDirError  # the disk is not at fault
            )
            if is_shortage:
                _undo_add(state, resolved, members)
            raise


def _undo_add(state: OwnerState, path: str, members: tuple[str, ...]) -> None:
    """Undo an incomplete addition of a log dir: drop the log dir, and forget its id."""
    half_added = state.replicas.find_dir(path)
    if half_added is not None:
        state.failures.wait(DROP_SECONDS_MAX)
        state.failures.release(half_added)  # perhaps no other thread can release the log dir
        state.drop_dir(half_added)
        state.events.removed(path)  # a listener may have got an event about this log dir
    for id_ in state.membership.roster:
        if id_ not in members:
            state.membership.forget(id_)


@uninterruptible
def reopen(
    state: OwnerState, path: StrPath, *, format_new: bool, may_lose: bool = True
) -> RecoveryReport:
    """Implement `LogStore.reopen_dir`.

    Args:
        may_lose: if False, a change that loses replicas is refused, and the error lists the
            replicas.
    """
    from logstore.store.dirs.dir_return import bring_in, replace
    from logstore.store.dirs.lost_dirs import id_to_replace

    flag(format_new, "format_new")
    flag(may_lose, "may_lose")
    log_dir = state.dir_named(path)
    with state.claims.change_of(log_dir.path):
        if not log_dir.is_offline:
            raise LogDirError(path=log_dir.path, reason="it is not offline")
        state.failures.wait(DROP_SECONDS_MAX)
        replaces = log_dir.directory_id or None
        admission = state.membership.admit(
            log_dir.path, format_new=format_new, replaces=replaces if format_new else None
        )
        is_member = admission.directory_id in state.membership.roster
        if format_new and not replaces and not is_member:  # the disk was missing at the start
            missing = id_to_replace(state.replicas, log_dir.path)
            admission = admission._replace(replaces=missing)
        if admission.replaces is None:
            return bring_in(state, admission)
        return replace(state, log_dir, admission, may_lose=may_lose)


@uninterruptible
def take_offline(state: OwnerState, path: StrPath) -> None:
    """Implement `LogStore.take_offline`."""
    from logstore.store.dirs.shutdown import flush_dir
    from logstore.store.upkeep.keeper import warn

    log_dir = state.dir_named(path)
    with state.claims.change_of(log_dir.path):
        if not log_dir.is_refusing:
            try:
                flush_dir(state.replicas, log_dir)
                _checkpoint(state, log_dir)
                others = [other for other in state.replicas.log_dirs if other is not log_dir]
                state.replicas.catalog.write_at_once(others)
            except LogStoreError as error:
                warn("flushing %s before it goes offline failed: %s", log_dir.path, error)
        log_dir.take_offline("the user took it offline")
        state.failures.wait(DROP_SECONDS_MAX)


def _checkpoint(state: OwnerState, log_dir: LogDir) -> None:
    """Before a log dir goes offline, write its checkpoints, so that old copies are recognised."""
    keeper = state.keepers.get(log_dir.path)
    try:
        if keeper is not None:
            keeper.write_offsets(is_last=True)
    except OSError as error:
        raise log_dir.failed(error) from error


@uninterruptible
def remove(
    state: OwnerState, path: StrPath, *, lost: bool, may_lose: bool = True
) -> tuple[TopicPartition, ...]:
    """Implement `LogStore.remove_dir`.

    Args:
        may_lose: if False, a change that loses replicas is refused, and the error lists the
            replicas.
    """
    from logstore.store.dirs.lost_dirs import give_up, give_up_missing, missing_id_of

    flag(lost, "lost")
    flag(may_lose, "may_lose")
    name, replicas = path_of(path, "path"), state.replicas
    is_here = name not in replicas.missing_ids and state.find_dir(name) is not None
    missing = None if is_here else missing_id_of(replicas, name)
    if missing is not None:
        if not lost:
            raise LogDirError(path=name, reason="it is missing: pass lost=True to give it up")
        return give_up_missing(state, missing, may_lose=may_lose)
    log_dir = state.dir_named(path)
    with state.claims.change_of(log_dir.path):
        if all(other.is_offline for other in replicas.log_dirs if other is not log_dir):
            raise LogDirError(path=log_dir.path, reason="no other log dir would remain")
        if lost:
            return give_up(state, log_dir, may_lose=may_lose)
        _remove_empty(state, log_dir)
        return ()


def _remove_empty(state: OwnerState, log_dir: LogDir) -> None:
    """Remove an empty log dir from the store; during the removal, no replica is placed there."""
    from logstore.store.dirs.dir_return import refuse_unless_empty
    from logstore.store.upkeep.purge import purge_superseded_on

    if log_dir.is_offline:
        reason = f"{log_dir.offline_reason}; its contents are unknown: reopen it, or, if it"
        reason += f" is lost for good: logstore remove-dir --lost {log_dir.path}"
        raise LogDirOfflineError(path=log_dir.path, reason=reason)
    log_dir.check_current()  # an old copy may lack replicas that the current disk has
    keeper = state.keepers.get(log_dir.path)
    state.replicas.returning.add(log_dir)
    try:
        if keeper is not None:
            purge_superseded_on(state.replicas, log_dir)
            keeper.wait_idle(DROP_SECONDS_MAX)
        refuse_unless_empty(state, log_dir)
        state.membership.forget(log_dir.directory_id)
    except OSError as error:
        raise log_dir.failed(error) from error
    finally:
        state.replicas.returning.discard(log_dir)
    if keeper is not None:
        keeper.stop()
    state.drop_dir(log_dir)
    state.events.removed(log_dir.path)
    log_dir.release()


@uninterruptible
def cordon(state: OwnerState, path: StrPath, is_cordoned: bool) -> None:
    """Implement `LogStore.cordon` and `LogStore.uncordon`."""
    log_dir = state.dir_named(path)
    with state.claims.change_of(log_dir.path):
        log_dir.change_settings(log_dir.settings._replace(is_cordoned=is_cordoned))


@uninterruptible
def prefer(state: OwnerState, topic: str, partition: int, path: StrPath | None) -> None:
    """Implement `LogStore.prefer_dir`."""
    key = TopicPartition(validate_topic(topic), validate_partition(partition))
    if path is None:
        _withdraw_preference(state, key)
        return
    for error in state.host.prefer([key], path).values():
        raise error


def _withdraw_preference(state: OwnerState, key: TopicPartition) -> None:
    for log_dir in state.replicas.log_dirs:
        if key in log_dir.settings.preferred:
            with state.claims.change_of(log_dir.path):
                log_dir.change_settings(log_dir.settings.without(key))


def _resolved(state: OwnerState, path: StrPath) -> str:
    """Resolve the path of a directory, even if the directory does not exist."""
    from logstore.store.dirs.takeover import does_not_work
    from logstore.store.start.identity import resolve

    configured = resolve(path_of(path, "path"), state.patience_seconds)
    for resolved, reason in configured.bad.items():
        raise does_not_work(resolved, reason)
    return configured.paths[0]
