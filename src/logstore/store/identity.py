"""Find out what stands at the configured paths, and write the identities that were decided.

Nothing is written before the decision: an empty mount point stays empty. `roster` decides.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from logstore.arguments import many, path_of
from logstore.disk import files
from logstore.disk.dir_lock import lock_hint
from logstore.disk.failures import Verdict, reason_of, verdict_of
from logstore.disk.log_dir import LogDir
from logstore.disk.meta_properties import (
    FILE_NAME,
    Hint,
    MetaProperties,
    decode_meta,
    hint_of,
)
from logstore.errors import (
    CorruptCheckpointError,
    LogDirIdentityError,
    UnsupportedFormatError,
)
from logstore.names import parse_dir_name
from logstore.store.roster import DirFacts, Found, Member, Roll

PARTITION_METADATA = "partition.metadata"


class Configured(NamedTuple):
    """The configured paths, resolved; those that cannot be are bad from the start."""

    paths: tuple[str, ...]
    bad: Mapping[str, str]


def resolve(log_dirs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Configured:
    """Resolve the configured paths: one name for one directory, whatever it was called.

    Raises:
        LogDirIdentityError: two names lead to one directory, or one lies inside another.
    """
    if isinstance(log_dirs, str | os.PathLike):
        log_dirs = [log_dirs]
    bad: dict[str, str] = {}
    given: dict[str, str] = {}
    inodes: dict[tuple[int, int], str] = {}
    for log_dir in many(log_dirs, "log_dirs", "paths"):
        name = path_of(log_dir, "a log dir")
        path = os.path.abspath(name)
        try:
            path = files.real_path(name)
            facts = files.stat(path)
            inode = (facts.st_dev, facts.st_ino)
        except FileNotFoundError:
            inode = None
        except OSError as error:
            bad[path], inode = reason_of(error), None
        twin = given.get(path) or (inodes.get(inode) if inode else None)
        if twin is not None:
            reason = f"it is configured twice, as {twin} and as {name}; leave one of them out"
            raise LogDirIdentityError(path=path, reason=reason)
        for other in given:
            check_apart(path, other)
        given[path] = name
        if inode:
            inodes[inode] = name
    if not given:
        raise ValueError("log_dirs is empty: a store needs at least one log dir")
    return Configured(tuple(given), bad)


def check_apart(path: str, other: str) -> None:
    """Raise when one of two log dirs lies inside the other: what deletes there deletes here.

    Raises:
        LogDirIdentityError: that is so.
    """
    outer, inner = sorted((path, other), key=len)
    if inner != outer and inner.startswith(os.path.join(outer, "")):
        where = "inside" if path == inner else "around"
        reason = f"it lies {where} the log dir {other}: give it a directory of its own"
        raise LogDirIdentityError(path=path, reason=reason)


def look_at(configured: Configured) -> list[DirFacts]:
    """Look at all configured dirs; an error of one is a fact about that one."""
    found = []
    for path in configured.paths:
        if path in configured.bad:
            found.append(DirFacts(path, Found.BAD, reason=configured.bad[path]))
            continue
        try:
            found.append(_look_at(path))
        except OSError as error:
            found.append(DirFacts(path, Found.BAD, reason=reason_of(error)))
        except UnsupportedFormatError as error:
            found.append(DirFacts(path, Found.BAD, reason=str(error)))
        except LogDirIdentityError as error:
            found.append(DirFacts(path, Found.BAD, reason=error.reason))
    return found


def _look_at(path: str) -> DirFacts:
    """Read the identity of one dir, or what is left of it."""
    meta_path = os.path.join(path, FILE_NAME)
    try:
        data = files.read_file(meta_path)
    except FileNotFoundError:
        if not files.exists(path):
            return DirFacts(path, Found.ABSENT)
        return DirFacts(path, Found.BARE, hint=lock_hint(path), has_replicas=_has_replicas(path))
    except IsADirectoryError:
        return DirFacts(path, Found.BAD, reason="meta.properties is a directory")
    try:
        return DirFacts(path, Found.FORMATTED, decode_meta(data, meta_path))
    except CorruptCheckpointError as error:
        left, lock = hint_of(data), lock_hint(path)
        hint = Hint(lock.cluster_id or left.cluster_id, lock.directory_id or left.directory_id)
        return DirFacts(path, Found.DAMAGED, hint=hint, reason=error.reason)


def _has_replicas(path: str) -> bool:
    """Tell whether a dir without identity holds replicas all the same."""
    for entry in files.entries(path):
        parsed = parse_dir_name(entry.name) if entry.is_dir else None
        if parsed is not None and files.exists(os.path.join(path, entry.name, PARTITION_METADATA)):
            return True
    return False


def make_missing(path: str) -> None:
    """Make the directory of a new log dir, with its parents, each name durable (R3)."""
    missing = []
    while not files.exists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        try:
            files.make_dir(directory)
        except FileExistsError:  # another log dir has the same parent, and was faster
            files.sync_dir(os.path.dirname(directory))


def write_identities(roll: Roll, log_dirs: Mapping[str, LogDir]) -> None:
    """Write the decided identities, so that a crash at any point leaves a state that is understood.

    A new store is written as forming first, everywhere, then as formed: only then is any of its
    dirs taken for one that may hold data. A dir that joins a store is written before the others
    hear of it, with a roster that names no dir that is still to join. A dir whose disk fails here
    goes offline.
    """
    members = [member for member in roll.members if not log_dirs[member.path].is_offline]
    if roll.is_new_store:
        for member in members:
            if member.is_changed:
                write_identity(log_dirs[member.path], member.meta)
        for member in members:
            write_identity(log_dirs[member.path], member.meta._replace(is_forming=False))
        return
    joining = [member for member in members if member.is_new]
    for number, member in enumerate(joining):
        later = {other.meta.directory_id for other in joining[number + 1 :]}
        roster = tuple(id_ for id_ in member.meta.roster if id_ not in later)
        write_identity(log_dirs[member.path], member.meta._replace(roster=roster))
    for member in _to_update(members, joining):
        write_identity(log_dirs[member.path], member.meta)


def _to_update(members: Sequence[Member], joining: Sequence[Member]) -> list[Member]:
    """Name those that are still to be written once the joining ones are; the last is whole."""
    return [member for member in members if member.is_changed and member not in joining[-1:]]


def write_identity(log_dir: LogDir, meta: MetaProperties) -> None:
    """Write the identity of one log dir; one whose disk fails here goes offline."""
    if log_dir.is_offline:
        return
    try:
        log_dir.write_meta(meta)
    except OSError as error:
        has_one = files.exists(os.path.join(log_dir.path, FILE_NAME))
        if has_one and verdict_of(error) is Verdict.FULL:
            log_dir.warnings.append(f"{log_dir.path}: full, so its roster stays an old one")
            return
        log_dir.take_offline(f"its identity cannot be written: {reason_of(error)}")
