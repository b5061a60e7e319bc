"""Take possession of the log dirs: read their identities, lock them, then probe them.

Nothing is written into a directory before its identity is known and its lock is held. If a step
fails or hangs for one dir, only that dir goes offline. The whole opening stops in two cases: no log
dir serves any more, or this process is short of descriptors or memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from logstore.disk.documents.meta_properties import new_id
from logstore.disk.log_dir import LogDir
from logstore.errors import LogDirIdentityError, LogDirOfflineError
from logstore.store.dirs import takeover
from logstore.store.dirs.parallel import in_time
from logstore.store.dirs.takeover import each, release_all
from logstore.store.start.identity import Configured, look_at, own_identities, write_identities
from logstore.store.start.nesting import refuse_nested
from logstore.store.start.refusals import READER_REMEDY, Refused, last_at, missing_remedy
from logstore.store.start.roster import (
    DirFacts,
    Found,
    Roll,
    decide,
    known_paths,
    not_mounted,
)

ATTEMPTS_MAX = 5
PATIENCE_SECONDS = 15.0

FailureHandler = Callable[[LogDir], None]


class OpenedDirs(NamedTuple):
    """The log dirs in the order of the configuration, including log dirs that do not work."""

    log_dirs: tuple[LogDir, ...]
    missing_ids: tuple[str, ...]
    warnings: list[str]
    roll: Roll

    @property
    def broker_id(self) -> int:
        """The broker id that the log dirs record."""
        return self.roll.members[0].meta.broker_id

    def good(self) -> list[LogDir]:
        """List the log dirs that work."""
        return [log_dir for log_dir in self.log_dirs if not log_dir.is_offline]


def open_log_dirs(
    configured: Configured,
    *,
    broker_id: int | None,
    format_new: bool,
    on_failure: FailureHandler,
    admin_socket: str | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> OpenedDirs:
    """Take possession of all log dirs that can work.

    Args:
        admin_socket: the address of the owner's admin socket, which is written into each lock file.
        patience_seconds: if one step takes longer than this for a log dir, the log dir goes
            offline.

    Raises:
        LogDirLockedError: another process has one of the dirs open; nothing was changed.
        LogDirIdentityError: the identity of the dirs is unclear, or no dir belongs to this store.
        LogDirOfflineError: no log dir works.
        LogDirError: this process is short of descriptors or memory; the error is retriable.
    """
    for _ in range(ATTEMPTS_MAX):
        facts, roll = foresee(
            configured,
            broker_id=broker_id,
            format_new=format_new,
            patience_seconds=patience_seconds,
        )
        opened = _make(configured, facts, roll, on_failure=on_failure, read_only=False)
        for log_dir in opened.log_dirs:
            log_dir.lock.admin_socket = admin_socket
        try:
            _lock(opened, roll, patience_seconds)
            # Another process may have formatted a dir before this process locked it.
            serving = tuple(log_dir.path for log_dir in opened.good())
            now = look(configured._replace(paths=serving), patience_seconds)
            if _essence(now) == _essence(fact for fact in facts if fact.path in serving):
                _begin(opened, roll, patience_seconds)
                return opened
        except BaseException:
            release_all(opened.log_dirs, patience_seconds)
            raise
        release_all(opened.log_dirs, patience_seconds)
    raise LogDirOfflineError(
        path=configured.paths[0], reason="its identity changed repeatedly during the opening"
    )


def foresee(
    configured: Configured,
    *,
    broker_id: int | None,
    format_new: bool = False,
    patience_seconds: float = PATIENCE_SECONDS,
) -> tuple[list[DirFacts], Roll]:
    """Decide what `open_log_dirs` would do with the dirs, without changing anything."""
    facts = look(configured, patience_seconds)
    roll = decide(facts, broker_id=broker_id, format_new=format_new, new_id=new_id)
    refuse_nested(facts, roll)
    return facts, roll


def view_log_dirs(
    configured: Configured,
    *,
    on_failure: FailureHandler,
    patience_seconds: float = PATIENCE_SECONDS,
) -> OpenedDirs:
    """Open a store's log dirs for reading, without changes; another process may own the store."""
    facts = look(configured, patience_seconds)
    if all(fact.found in (Found.BARE, Found.ABSENT) and not fact.has_replicas for fact in facts):
        why = not_mounted(*facts)
        path, reason = configured.paths[0], f"there is no store here{why and f' ({why})'}"
        remedy = "open it for writing to make one, or correct the path"
        raise LogDirIdentityError(f"log dir {path}: {reason}; {remedy}", path=path, reason=reason)
    _check_a_store_is_seen(facts)
    roll = decide(facts, broker_id=None, format_new=False, new_id=new_id)
    roll = roll._replace(members=tuple(m for m in roll.members if not m.is_new))
    return _make(configured, facts, roll, on_failure=on_failure, read_only=True)


def _check_a_store_is_seen(facts: Sequence[DirFacts]) -> None:
    """Refuse a read-only view if some dirs are empty and all other dirs are unreadable."""
    bad = [fact for fact in facts if fact.found is Found.BAD]
    empty = [fact for fact in facts if fact.found in (Found.BARE, Found.ABSENT)]
    empty = [fact for fact in empty if not fact.has_replicas and not fact.hint.directory_id]
    if bad and empty and len(bad) + len(empty) == len(facts):
        reason = f"{bad[0].reason}; {empty[0].path} holds no store: {READER_REMEDY}"
        raise LogDirIdentityError(path=bad[0].path, reason=reason)


def _essence(facts: Iterable[DirFacts]) -> list[tuple[object, ...]]:
    """Return the fields on which the decision depends, except fields that this opening changes."""
    return [(fact.path, fact.meta, fact.found is Found.BAD, fact.has_replicas) for fact in facts]


def _make(
    configured: Configured,
    facts: Sequence[DirFacts],
    roll: Roll,
    *,
    on_failure: FailureHandler,
    read_only: bool,
) -> OpenedDirs:
    """Create the `LogDir` objects that a decision needs, in the order of the configuration."""
    members = {member.path: member for member in roll.members}
    refused = {refusal.path: refusal for refusal in roll.refused}
    if not members:
        raise _none_serves(
            [Refused(r.path, r.explained(to_reader=read_only), r.is_identity) for r in roll.refused]
        )
    log_dirs, warnings, taken_in = [], [], _taken_in(facts, roll)
    for path in configured.paths:
        log_dir = LogDir(path, on_failure=on_failure, read_only=read_only)
        member = members.get(path)
        if member is not None:
            log_dir.belong(member.meta.cluster_id, member.meta.directory_id)
            log_dir.generation.is_taken_in = path in taken_in
            if member.warning:
                warnings.append(member.warning)
        elif path in refused:
            reason = refused[path].explained(to_reader=read_only)
            log_dir.take_offline(reason, has_remedy=refused[path].has_remedy)
        else:
            log_dir.take_offline("the store is still being formatted")
        log_dirs.append(log_dir)
    paths = known_paths(fact for fact in facts if fact.path in members)
    explained = {refusal.missing_id for refusal in roll.refused}
    warnings += [
        f"log dir {id_}{last_at(paths.get(id_))} is missing: its partitions are offline; "
        + missing_remedy(id_)
        for id_ in roll.missing_ids
        if id_ not in explained
    ]
    return OpenedDirs(tuple(log_dirs), roll.missing_ids, warnings, roll)


def _taken_in(facts: Sequence[DirFacts], roll: Roll) -> set[str]:
    """List the dirs that the user gave up earlier, and now adds to the store again."""
    cluster_id = roll.members[0].meta.cluster_id
    metas = [fact.meta for fact in facts if fact.meta and fact.meta.cluster_id == cluster_id]
    epoch = max((meta.roster_epoch for meta in metas), default=0)
    before = {id_ for meta in metas if meta.roster_epoch == epoch for id_ in meta.roster}
    joining = [one for one in roll.members if before and one.meta.directory_id not in before]
    return {one.path for one in joining if not one.is_new}


def _none_serves(refused: Sequence[Refused]) -> LogDirIdentityError | LogDirOfflineError:
    """Make the error for a store in which no log dir works."""
    reason = refused[0].reason
    if len(refused) > 1:
        reason = "no log dir serves: " + "; ".join(f"{r.path}: {r.reason}" for r in refused)
    if all(refusal.is_identity for refusal in refused):
        return LogDirIdentityError(path=refused[0].path, reason=reason)
    return takeover.does_not_work(refused[0].path, reason)


def check_one_serves(log_dirs: Sequence[LogDir]) -> None:
    """Raise LogDirOfflineError if no log dir works."""
    if all(log_dir.is_offline for log_dir in log_dirs):
        refused = [Refused(d.path, d.offline_reason or "offline", False) for d in log_dirs]
        raise _none_serves(refused)


def look(configured: Configured, patience_seconds: float) -> list[DirFacts]:
    """Read all configured dirs in parallel; a dir that does not answer in time is `Found.BAD`."""
    found: dict[str, DirFacts] = {}

    def look_at_one(path: str) -> None:
        (found[path],) = look_at(Configured((path,), configured.bad))

    outcomes = in_time(configured.paths, look_at_one, str, patience_seconds, name="logstore-look")
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    found = {outcome.item: found[outcome.item] for outcome in outcomes if outcome.is_finished}
    hangs = f"it hangs: it did not answer within {patience_seconds:.0f} s"
    facts = [found.get(p) or DirFacts(p, Found.BAD, reason=hangs) for p in configured.paths]
    return own_identities(facts)


def _lock(opened: OpenedDirs, roll: Roll, patience_seconds: float) -> None:
    """Lock all log dirs; raise if another process owns a dir, or if no log dir works."""
    new = {member.path for member in roll.members if member.is_new}
    each(opened.good(), lambda d: takeover.lock(d, is_new=d.path in new), patience_seconds)
    check_one_serves(opened.log_dirs)


def _begin(opened: OpenedDirs, roll: Roll, patience_seconds: float) -> None:
    """Remove the clean-shutdown markers first, then write identities, then probe."""
    start_id = new_id()
    new = {member.path for member in roll.members if member.is_new}

    def begin(log_dir: LogDir) -> None:
        takeover.begin(log_dir, start_id, is_new=log_dir.path in new)

    each(opened.good(), begin, patience_seconds)
    by_path = {log_dir.path: log_dir for log_dir in opened.log_dirs}
    write_identities(roll, by_path, partial(each, patience_seconds=patience_seconds))
    each(opened.good(), takeover.probe, patience_seconds)
    check_one_serves(opened.log_dirs)
