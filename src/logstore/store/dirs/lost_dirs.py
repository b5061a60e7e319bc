"""Give up a log dir whose disk is lost: find its id, list its replicas, forget it.

If a disk is missing or dead at a start, the id of its log dir cannot be read. But the other log
dirs have recorded the id and the last path of each log dir. So a user can name the missing log dir
by its last path or its id.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from logstore.disk import files
from logstore.disk.log_dir import LogDir
from logstore.errors import LogDirError
from logstore.names import TopicPartition
from logstore.store.replicas import OfflineReplica
from logstore.store.start.refusals import missing_remedy
from logstore.store.start.undecided import decide_again
from logstore.store.upkeep.purge import outlive_deletions
from logstore.units import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logstore.store.replicas import Replicas
    from logstore.store.state import OwnerState


UNSURE = (
    "The store was killed while this log dir served, so it may hold replicas that were created "
    "there or moved there shortly before"
)


def ids_last_at(replicas: Replicas, path: str) -> list[str]:
    """List the ids of the missing log dirs whose last known path is `path`."""
    return [id_ for id_ in replicas.missing_ids if replicas.last_path_of(id_) == path]


def id_to_replace(replicas: Replicas, path: str) -> str | None:
    """Find the id of the missing log dir that a new disk replaces; None if this is not clear."""
    here = ids_last_at(replicas, path)
    return here[0] if len(here) == 1 else None


def id_to_forget(replicas: Replicas, path: str) -> str | None:
    """Find the id of the missing log dir that was last at a path; return None if there is none.

    Raises:
        LogDirError: it is unclear which missing log dir was at the path. This happens if several
            log dirs were last at the path, or if the last path of a log dir is unknown.
    """
    here = ids_last_at(replicas, path)
    if len(here) == 1:
        return here[0]
    unknown = [id_ for id_ in replicas.missing_ids if replicas.last_path_of(id_) is None]
    may_be = here or unknown
    if not may_be:
        return None
    raise LogDirError(
        path=path,
        reason=f"it is unclear which missing log dir was here ({', '.join(may_be)}): give the id: "
        "logstore remove-dir --lost ID",
    )


def missing_id_of(replicas: Replicas, name: str) -> str | None:
    """Find the id of the missing log dir for which a user gave the id or the last path.

    Raises:
        LogDirError: it is unclear which missing log dir the user means (see `id_to_forget`).
    """
    if name in replicas.missing_ids:
        return name
    for path in dict.fromkeys((os.path.abspath(name), files.real_path(name))):
        if ids_last_at(replicas, path):
            return id_to_forget(replicas, path)
    return None


def replicas_of(
    replicas: Replicas, directory_id: str | None, log_dir: LogDir | None = None
) -> list[TopicPartition]:
    """List the known replicas of a log dir that does not work.

    An open replica belongs to the log dir that has its log. For any other replica, the catalog
    names a log dir. If that log dir does not work, the replica belongs to that log dir. A copy of
    such a replica in a working log dir is ignored, because this copy may be only the unfinished
    copy of a move.
    """
    path = None if log_dir is None else log_dir.path
    return [key for key in replicas.names() if _is_in(replicas, key, directory_id, path)]


def _is_in(
    replicas: Replicas, key: TopicPartition, directory_id: str | None, path: str | None
) -> bool:
    opened, incomplete = replicas.opened.get(key), replicas.incomplete.get(key)
    if opened is not None:
        return opened.log_dir.path == path
    at = replicas.catalog.directory_of(key)
    if at in replicas.ids_away():
        return at == directory_id
    if incomplete is not None:
        return incomplete.log_dir.path == path
    return path in _dirs_of(replicas, key)


def _dirs_of(replicas: Replicas, key: TopicPartition) -> list[str]:
    """Return the paths of the log dirs that have an offline replica's copy, or a part of a copy."""
    offline = replicas.offline.get(key)
    if offline is None:
        return []
    return [offline.log_dir.path, *map(os.path.dirname, offline.paths)]


def _forget_in(replicas: Replicas, key: TopicPartition, log_dir: LogDir) -> None:
    """Forget a replica's copy in a log dir that is given up, but keep its other copies."""
    offline = replicas.offline.get(key)
    paths = () if offline is None else offline.paths
    rest = tuple(path for path in paths if os.path.dirname(path) != log_dir.path)
    if offline is not None and rest:
        other = replicas.dir_of(os.path.dirname(rest[0]))
        replicas.found_offline(key, OfflineReplica(offline.error, other, paths=rest))
    elif replicas.dir_holding(key) is log_dir:
        replicas.remove(key)


def refuse_loss(
    replicas: Replicas,
    path: str,
    directory_id: str | None,
    held: Sequence[TopicPartition],
    *,
    when: str,
    advice: str,
) -> None:
    """Refuse a change that would lose replicas; the error lists the replicas.

    Raises:
        LogDirError: replicas would be lost, or could be lost; the attribute `lost` of the error
            lists the known replicas.
    """
    is_unsure = directory_id in replicas.catalog.unsure_ids
    if held:
        names = ", ".join(_with_other_copies(replicas, key, path) for key in held)
        verb = "is" if len(held) == 1 else "are"
        reason = f"it held {format_count(len(held), 'replica')}, which {verb} lost {when}: {names}"
        reason += f". {UNSURE}, too" if is_unsure else ""
    elif not replicas.catalog.is_known:
        reason = f"no log dir has a record of its replicas; they are lost {when}"
    elif is_unsure:
        reason = f"{UNSURE}; replicas of which nothing is known are lost {when}"
    else:
        return
    raise LogDirError(path=path, reason=f"{reason}. {advice}", lost=[list(key) for key in held])


def _with_other_copies(replicas: Replicas, key: TopicPartition, path: str) -> str:
    """Return a replica's name, with the paths of its other copies, which may be incomplete."""
    incomplete, offline = replicas.incomplete.get(key), replicas.offline.get(key)
    paths = offline.paths if offline is not None else ()
    if incomplete is not None:
        paths = (incomplete.facts.path,)
    others = [other for other in paths if os.path.dirname(other) != path]
    return f"{key} (remaining copies: {', '.join(others)})" if others else str(key)


def give_up(state: OwnerState, log_dir: LogDir, *, may_lose: bool) -> tuple[TopicPartition, ...]:
    """Forget a log dir that does not work, with its replicas; return the lost replicas.

    Another log dir may still have an incomplete copy of a lost replica.

    Raises:
        LogDirError: the log dir works, or its id is unclear, or replicas would be lost although
            `may_lose` is False.
    """
    replicas = state.replicas
    if not log_dir.is_offline:
        reason = "it serves, so it is not lost"
        here = ids_last_at(replicas, log_dir.path)
        told = "".join(f"; log dir {id_} was here before: {missing_remedy(id_)}" for id_ in here)
        raise LogDirError(path=log_dir.path, reason=reason + told)
    directory_id = log_dir.directory_id or id_to_forget(replicas, log_dir.path)
    held = replicas_of(replicas, directory_id, log_dir)
    if not may_lose and (held or directory_id):
        _ask(replicas, log_dir.path, directory_id, held)
    outlive_deletions(replicas, state.keepers, log_dir)
    if directory_id:
        state.membership.forget(directory_id)
    for key in held:
        _forget_in(replicas, key, log_dir)
    state.drop_dir(log_dir)
    decide_again(state, held)
    state.events.removed(log_dir.path)
    return tuple(key for key in held if key not in replicas.opened)


def give_up_missing(
    state: OwnerState, directory_id: str, *, may_lose: bool
) -> tuple[TopicPartition, ...]:
    """Forget the missing log dir with this id, and its replicas; return the lost replicas.

    Raises:
        LogDirError: replicas would be lost, and `may_lose` is False.
    """
    replicas = state.replicas
    held = replicas_of(replicas, directory_id)
    if not may_lose:
        _ask(replicas, directory_id, directory_id, held)
    path = replicas.last_path_of(directory_id)
    state.membership.forget(directory_id)
    decide_again(state, held)
    state.events.removed(path)
    return tuple(key for key in held if key not in replicas.opened)


def _ask(
    replicas: Replicas, path: str, directory_id: str | None, held: Sequence[TopicPartition]
) -> None:
    refuse_loss(
        replicas,
        path,
        directory_id,
        held,
        when="if it is given up",
        advice=f"Mount the disk if it can be read. If not: logstore remove-dir --lost {path} --yes",
    )
