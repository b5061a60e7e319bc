"""Check that a new log dir would not be inside another log dir, or contain another log dir.

The deletion of a partition or of a log dir deletes everything below it. So there are places where
no new log dir is made: inside a log dir or partition directory of another store, and around such a
directory. Only new log dirs are checked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from logstore.disk import files
from logstore.disk.documents.meta_properties import FILE_NAME
from logstore.errors import LogDirIdentityError
from logstore.names import BENCH_PREFIX
from logstore.store.start.roster import DirFacts, Roll

PARTITION_METADATA = "partition.metadata"
REMEDY = "give it a directory of its own"
# How many levels below a new log dir are searched. A new log dir is nearly always empty.
DEPTH_MAX = 2


def nested(path: str, *, is_there: bool) -> str:
    """Explain why a new log dir must not be made at a path; return "" if the path is allowed.

    If a directory cannot be read, it does not count as a log dir. For example, a parent directory
    may belong to another user.

    Args:
        path: the resolved path, which has no symbolic links.
        is_there: whether the path is already a directory, so that another log dir may be below it.
    """
    if any(name.startswith(BENCH_PREFIX) for name in path.split(os.sep)):
        return ""  # `logstore bench` made the directory, and removes it later
    outer = os.path.dirname(path)
    while outer != os.path.dirname(outer):
        if _has(outer, FILE_NAME):
            return f"it lies inside the log dir {outer}: {REMEDY}"
        outer = os.path.dirname(outer)
    outer = os.path.dirname(path)
    while outer != os.path.dirname(outer):
        if _has(outer, PARTITION_METADATA):
            return f"it lies inside the partition directory {outer}: {REMEDY}"
        outer = os.path.dirname(outer)
    for inner in _below(path, DEPTH_MAX) if is_there else ():
        if _has(inner, FILE_NAME):
            return f"it lies around the log dir {inner}: {REMEDY}"
    return ""


def _has(directory: str, name: str) -> bool:
    with suppress(OSError):
        return files.exists(os.path.join(directory, name))
    return False


def _below(path: str, depth: int) -> Iterator[str]:
    with suppress(OSError):
        for entry in files.entries(path):
            if entry.is_dir:
                inner = os.path.join(path, entry.name)
                yield inner
                if depth > 1:
                    yield from _below(inner, depth - 1)


def refuse_nested(facts: Iterable[DirFacts], roll: Roll) -> None:
    """Refuse a decision if a new log dir would be inside another log dir, or contain another one.

    Raises:
        LogDirIdentityError: a new log dir would be inside another log dir, or contain one. Nothing
            was written.
    """
    new = {member.path for member in roll.members if member.is_new}
    for fact in facts:
        if fact.path in new:
            refuse(fact)


def refuse(fact: DirFacts) -> None:
    """Refuse to make a new log dir at a path. Raises LogDirIdentityError."""
    if fact.nested:
        raise LogDirIdentityError(path=fact.path, reason=fact.nested)
