"""Read the identities at the configured paths, and write the identities that `roster` decided.

Nothing is written before the decision, so an empty mount point stays empty.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from logstore.arguments import many, path_of
from logstore.disk import files
from logstore.disk.dir_lock import lock_hint
from logstore.disk.documents.generations import last_paths
from logstore.disk.documents.meta_properties import (
    FILE_NAME,
    Hint,
    MetaProperties,
    decode_meta,
    hint_of,
)
from logstore.disk.failures import Verdict, reason_of, refuse_shortage, verdict_of
from logstore.disk.log_dir import LogDir
from logstore.disk.mounts import unmounted_point
from logstore.errors import (
    CorruptCheckpointError,
    LogDirIdentityError,
    UnsupportedFormatError,
)
from logstore.names import parse_dir_name
from logstore.store.dirs.parallel import in_time
from logstore.store.kafka.hands import UnfinishedChangeError, refuse_unfinished
from logstore.store.start.nesting import PARTITION_METADATA, nested
from logstore.store.start.roster import DirFacts, Found, Member, Roll


class Configured(NamedTuple):
    """The resolved configured paths. `bad` maps each path that cannot be resolved to the reason."""

    paths: tuple[str, ...]
    bad: Mapping[str, str]


class _Resolved(NamedTuple):
    """The directory to which a path leads. If the identity is unknown, `bad` gives the reason."""

    path: str
    inode: tuple[int, int] | None = None
    bad: str = ""


def resolve(
    log_dirs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    patience_seconds: float | None = None,
) -> Configured:
    """Resolve the configured paths, so that each directory has only one path.

    Args:
        patience_seconds: if resolving a path takes longer than this, the path is bad. None means
            that there is no limit.

    Raises:
        LogDirIdentityError: two paths lead to one directory, one directory lies inside another, or
            a path is not UTF-8.
        LogDirError: this process lacks a resource, such as descriptors or memory; the error is
            retriable.
        ValueError: there is no path, or the only path looks like a list that is written as one
            string.
    """
    listed = [log_dirs] if isinstance(log_dirs, str | os.PathLike) else log_dirs
    names = [path_of(log_dir, "a log dir") for log_dir in many(listed, "log_dirs", "paths")]
    if not names:
        raise ValueError("log_dirs is empty: a store needs at least one log dir")
    found: dict[str, _Resolved] = {}

    def look(name: str) -> None:
        found[name] = _resolve(name)

    for outcome in in_time(
        list(dict.fromkeys(names)), look, os.path.abspath, patience_seconds, name="logstore-resolve"
    ):
        if outcome.error is not None:
            raise outcome.error
        if not outcome.is_finished:
            reason = f"it hangs: no answer within {patience_seconds or 0:.0f} s"
            found[outcome.item] = _Resolved(os.path.abspath(outcome.item), bad=reason)
    if listed is not log_dirs:
        _refuse_list_in_one_text(names[0], found[names[0]])
    bad: dict[str, str] = {}
    given: dict[str, str] = {}
    inodes: dict[tuple[int, int], str] = {}
    for name in names:
        path, inode, reason = found[name]
        _refuse_other_bytes(name)
        _refuse_other_bytes(path)  # a symlink may lead to it
        twin = given.get(path) or (inodes.get(inode) if inode else None)
        if twin is not None:
            reason = f"it is configured twice, as {twin} and as {name}; leave one of them out"
            raise LogDirIdentityError(path=path, reason=reason)
        for other in given:
            check_apart(path, other)
        given[path] = name
        if inode:
            inodes[inode] = name
        if reason:
            bad[path] = reason
    return Configured(tuple(given), bad)


def _refuse_list_in_one_text(name: str, found: _Resolved) -> None:
    """Raise an error if the only path has a comma and does not exist: it may be meant as a list."""
    if "," in name and found.inode is None and not found.bad:
        several = [part.strip() for part in name.split(",") if part.strip()]
        raise ValueError(
            f"there is no directory {name!r}; each string is one path: give several log dirs as a "
            f"list, {several!r}; if the comma is part of the name, make the directory first"
        )


def _refuse_other_bytes(path: str) -> None:
    """Raise if a path is not UTF-8, because documents and answers to clients contain the path."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise LogDirIdentityError(
            path=path.encode("ascii", "backslashreplace").decode(),
            reason="its path is not UTF-8; rename the directory, or mount its disk at a path that "
            "is UTF-8; the log dir keeps its replicas",
        ) from None


def check_apart(path: str, other: str) -> None:
    """Raise an error if one log dir is inside another: a deletion could delete the inner log dir.

    Raises:
        LogDirIdentityError: one of two log dirs is inside the other.
    """
    outer, inner = sorted((path, other), key=len)
    if inner != outer and inner.startswith(os.path.join(outer, "")):
        where = "inside" if path == inner else "around"
        reason = f"it lies {where} the log dir {other}: give it a directory of its own"
        raise LogDirIdentityError(path=path, reason=reason)


def _resolve(name: str) -> _Resolved:
    """Find the directory to which a path leads, even if the directory does not exist yet."""
    path = os.path.abspath(name)
    try:
        path = files.real_path(name)
        facts = files.stat(path)
    except FileNotFoundError:
        return _Resolved(path)
    except OSError as error:
        refuse_shortage(error, path)
        return _Resolved(path, bad=reason_of(error))
    return _Resolved(path, (facts.st_dev, facts.st_ino))


def look_at(configured: Configured) -> list[DirFacts]:
    """Read the identity of each configured dir; a dir that cannot be read is `Found.BAD`.

    Raises:
        LogDirError: this process lacks a resource, such as descriptors or memory; the error is
            retriable.
        UnfinishedChangeError: a dir is between Kafka and a store.
    """
    found = []
    for path in configured.paths:
        if path in configured.bad:
            found.append(DirFacts(path, Found.BAD, reason=configured.bad[path]))
            continue
        try:
            found.append(_look_at(path))
        except OSError as error:
            refuse_shortage(error, path)
            found.append(DirFacts(path, Found.BAD, reason=reason_of(error)))
        except UnsupportedFormatError as error:
            found.append(DirFacts(path, Found.BAD, reason=str(error)))
        except UnfinishedChangeError:
            raise
        except LogDirIdentityError as error:
            found.append(DirFacts(path, Found.BAD, reason=error.reason))
    return found


def _look_at(path: str) -> DirFacts:
    """Read the identity of one dir, or the readable part of a damaged identity."""
    refuse_unfinished(path)
    meta_path = os.path.join(path, FILE_NAME)
    try:
        data = files.read_file(meta_path)
    except FileNotFoundError:
        if not files.exists(path):
            why = nested(path, is_there=False)
            return DirFacts(path, Found.ABSENT, unmounted=unmounted_point(path), nested=why)
        hint, has_replicas = lock_hint(path), _has_replicas(path)
        point = None if has_replicas or hint.directory_id else unmounted_point(path)
        why = nested(path, is_there=not has_replicas)
        return DirFacts(path, Found.BARE, None, hint, has_replicas, unmounted=point, nested=why)
    except files.UnfitError as error:
        return DirFacts(path, Found.DAMAGED, hint=lock_hint(path), reason=error.reason)
    try:
        meta = decode_meta(data, meta_path)
        paths = last_paths(path)
        return DirFacts(path, Found.FORMATTED, meta, lock_hint(path), last_paths=paths)
    except CorruptCheckpointError as error:
        left, lock = hint_of(data), lock_hint(path)
        hint = Hint(lock.cluster_id or left.cluster_id, lock.directory_id or left.directory_id)
        return DirFacts(path, Found.DAMAGED, hint=hint, reason=error.reason)


def own_identities(facts: Sequence[DirFacts]) -> list[DirFacts]:
    """If a `meta.properties` was copied from another log dir, treat it as damaged.

    Each log dir has two files with its identity: `meta.properties`, and the `.lock` that the last
    owner left. If `.lock` names a log dir of this store, but `meta.properties` names another log
    dir or another store, then `meta.properties` was copied. Without this check, two log dirs would
    have one identity, or would belong to two stores, and the store would not open.
    """
    return [_own_identity(fact, [one for one in facts if one is not fact]) for fact in facts]


def _own_identity(fact: DirFacts, others: Sequence[DirFacts]) -> DirFacts:
    meta, hint = fact.meta, fact.hint
    if meta is None or None in hint or hint == (meta.cluster_id, meta.directory_id):
        return fact
    metas = [other.meta for other in others if other.meta is not None]
    is_ours = any(
        hint.cluster_id == one.cluster_id and hint.directory_id in one.roster for one in metas
    )
    is_twin = any(meta.directory_id == one.directory_id for one in metas)
    if is_ours and (is_twin or meta.cluster_id != hint.cluster_id):
        reason = "it has the identity of another log dir"
        return fact._replace(found=Found.DAMAGED, meta=None, reason=reason)
    return fact


def _has_replicas(path: str) -> bool:
    """Check whether a dir without identity has replicas."""
    for entry in files.entries(path):
        parsed = parse_dir_name(entry.name) if entry.is_dir else None
        if parsed is not None and files.exists(os.path.join(path, entry.name, PARTITION_METADATA)):
            return True
    return False


def make_missing(path: str, check: Callable[[], None]) -> None:
    """Make the directory of a new log dir, and its missing parents, all durably.

    Args:
        check: a function that is called before each directory is made. `check` raises an error if
            the result is no longer needed.
    """
    missing = []
    while not files.exists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        check()
        try:
            files.make_dir(directory)
        except FileExistsError:  # another log dir's thread made this parent first
            files.sync_dir(os.path.dirname(directory))


# A function that takes one step on several log dirs in parallel.
# A dir that fails or hangs goes OFFLINE.
Steps = Callable[[Sequence[LogDir], Callable[[LogDir], None]], None]


def write_identities(roll: Roll, log_dirs: Mapping[str, LogDir], each: Steps) -> None:
    """Write the decided identities in an order that leaves a known state after any crash.

    The identities of a new store first say "forming" on all dirs, then "formed". Only a dir whose
    identity says "formed" may contain data. When a dir joins a store, it first gets its identity,
    and then the rosters of the other dirs get its id. The roster of a joining dir contains only
    this dir, and the dirs that joined earlier. If the disk of a dir fails here, the dir goes
    offline.
    """
    members = [member for member in roll.members if not log_dirs[member.path].is_offline]

    def write(metas: Iterable[tuple[str, MetaProperties]]) -> None:
        by_path = dict(metas)
        each(
            [log_dirs[path] for path in by_path],
            lambda log_dir: write_identity(log_dir, by_path[log_dir.path]),
        )

    if roll.is_new_store:
        write((member.path, member.meta) for member in members if member.is_changed)
        write((member.path, member.meta._replace(is_forming=False)) for member in members)
        return
    joining = [member for member in members if member.is_new]
    for number, member in enumerate(joining):
        later = {other.meta.directory_id for other in joining[number + 1 :]}
        roster = tuple(id_ for id_ in member.meta.roster if id_ not in later)
        write([(member.path, member.meta._replace(roster=roster))])
    write((member.path, member.meta) for member in _to_update(members, joining))


def _to_update(members: Sequence[Member], joining: Sequence[Member]) -> list[Member]:
    """List the dirs that still need the final roster; the dir that joined last already has it."""
    return [member for member in members if member.is_changed and member not in joining[-1:]]


def write_identity(log_dir: LogDir, meta: MetaProperties) -> None:
    """Write the identity of one log dir; if the disk fails, the dir goes offline.

    Raises:
        LogDirError: this process lacks a resource, such as descriptors or memory; the error is
            retriable.
    """
    if log_dir.is_offline:
        return
    try:
        log_dir.write_meta(meta)
    except OSError as error:
        refuse_shortage(error, log_dir.path)
        if verdict_of(error) is Verdict.FULL and _has_identity(log_dir.path):
            log_dir.warnings.append(
                f"{log_dir.path}: the disk is full, so its roster is not updated"
            )
            return
        log_dir.take_offline(f"its identity cannot be written: {reason_of(error)}")


def _has_identity(path: str) -> bool:
    """Check whether a dir already has a `meta.properties`; return False if the disk fails."""
    try:
        return files.exists(os.path.join(path, FILE_NAME))
    except OSError:
        return False
