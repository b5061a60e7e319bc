"""Decide which directories are removed in the background, and in which order.

A superseded copy is removed when the live copy durably has as many records. If a user deleted a
partition, its copies are removed first, and the `.delete` with the record of the deletion is
removed last. While a log dir is bad, this `.delete` is kept. Without this `.delete`, a copy on the
bad dir would come back when that dir returns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from logstore.disk.calls import SYNCING, call
from logstore.disk.log_dir import LogDir
from logstore.errors import LogStoreError
from logstore.log.metadata import PartitionMetadata
from logstore.names import NAME_BYTES_MAX, TopicPartition, parse_dir_name
from logstore.store.dirs.parallel import for_each
from logstore.store.other_copies import Doomed
from logstore.store.replicas import OfflineReplica, Replica, Replicas
from logstore.store.start.replica_facts import facts_of_open
from logstore.store.start.startup_table import Act, Decision, ReplicaFacts, is_covered


class Purger(Protocol):
    """The keeper of one log dir, which removes directories in the background."""

    def purge(self, path: str, then: Callable[[], object] = ..., /) -> None:
        """Remove a directory, and call `then` after the removal."""


def doomed(replicas: Replicas, copies: Iterable[ReplicaFacts]) -> list[Doomed]:
    """List the directories to purge, in the order in which they will be removed."""
    copies = list(copies)
    is_deletion = any(facts.is_deleted_by_user for facts in copies)
    return [Doomed(replicas.dir_of(facts.log_dir), facts.path, is_deletion) for facts in copies]


def forget_purged(
    replicas: Replicas,
    decisions: Iterable[Decision],
    before: Mapping[TopicPartition, OfflineReplica],
) -> None:
    """Forget offline replicas whose directories are purged, unless they have new records."""
    for decision in decisions:
        record = before.get(decision.topic_partition)
        if decision.act is Act.PURGE and record is not None and not record.is_missing:
            replicas.forget_record(decision.topic_partition, record)


def purge_in_order(
    replicas: Replicas, keepers: Mapping[str, Purger], doomed: Sequence[Doomed]
) -> None:
    """Remove directories in the background, one after another.

    While a log dir is bad, the directories of a deletion are not removed. A copy may come back with
    that dir, and then the start-up table decides again. While a log dir hangs, or is being opened
    or removed, the removals of a deletion are postponed.
    """
    if not doomed:
        return
    first, *rest = doomed
    last = doomed[-1].path
    if first.is_deletion:
        if len(doomed) > len(replicas.copies.deletions.get(last, ())):
            replicas.copies.deletions[last] = doomed
        if replicas.is_a_dir_bad():
            return
        if replicas.is_a_dir_in_doubt() or replicas.returning:
            replicas.copies.postponed.append(doomed)
            return
    keeper = keepers.get(first.log_dir.path)
    if keeper is not None:
        then = partial(purge_in_order, replicas, keepers, rest)
        end = partial(replicas.copies.deletions.pop, last, None)
        keeper.purge(first.path, then if rest else end)


def outlive_deletions(replicas: Replicas, keepers: Mapping[str, Purger], log_dir: LogDir) -> None:
    """When a log dir is given up, write its deletions into other copies of the deleted replicas.

    A copy on another bad log dir does not get the record of the deletion. If this other log dir
    returns, its copy counts as the last copy of the partition, and the user decides about it.
    """
    orphans = []
    for last, doomed in list(replicas.copies.deletions.items()):
        rest = [one for one in doomed if one.log_dir.path != log_dir.path]
        if len(rest) == len(doomed):
            continue
        replicas.copies.deletions.pop(last, None)
        if rest:
            replicas.copies.deletions[rest[-1].path] = rest
        orphans += rest

    def hand_on(to: LogDir) -> None:
        for one in orphans:
            if one.log_dir is to and not note_deletion(one) and to.path in keepers:
                keepers[to.path].purge(one.path)

    serving = {one.log_dir for one in orphans if not one.log_dir.is_refusing}
    for_each([*serving], hand_on, name="logstore-deletions", is_given_up=lambda d: d.is_suspect)


def note_deletion(doomed: Doomed) -> bool:
    """Write durably into a directory that the user deleted the replica; return True on success.

    The result is False if the disk fails, or if the directory has no readable `partition.metadata`.
    """
    log_dir = doomed.log_dir
    try:
        with call(doomed.path, SYNCING):
            metadata = PartitionMetadata.read(doomed.path)
            if metadata is None:
                return False
            if not metadata.is_deleted_by_user:
                deleted = metadata.with_deletion()
                log_dir.ballast.use(partial(deleted.write, doomed.path, log_dir.replacing))
    except FileNotFoundError:  # the keeper has removed the directory already
        return False
    except OSError as error:
        log_dir.failed(error, doomed.path)
        return False
    except LogStoreError:
        return False
    return True


def purge_postponed(replicas: Replicas) -> None:
    """Request all postponed removals again; some of them may be postponed once more."""
    for _ in range(len(replicas.copies.postponed)):
        with suppress(IndexError):  # another keeper may empty the queue first
            replicas.purge(replicas.copies.postponed.popleft())


def forget_postponed(replicas: Replicas, decided: Iterable[Sequence[Doomed]]) -> None:
    """Drop postponed removals that a new decision of the start-up table has replaced."""
    last = {doomed[-1].path for doomed in decided if doomed}
    for _ in range(len(replicas.copies.postponed)):
        with suppress(IndexError):
            doomed = replicas.copies.postponed.popleft()
            if doomed[-1].path not in last:
                replicas.copies.postponed.append(doomed)


def purge_covered(replicas: Replicas, log_dir: LogDir) -> None:
    """Request the removal of superseded copies whose live copy is on this log dir.

    If a live copy has enough records, but has not flushed all of them, the live copy is flushed
    first.
    """
    for path, old in list(replicas.copies.superseded.items()):
        replica = replicas.opened.get(TopicPartition(old.topic, old.partition))
        if replica is not None and replica.log_dir is log_dir:
            _purge_if_covered(replicas, replica, path, old)


def purge_superseded_on(replicas: Replicas, log_dir: LogDir) -> None:
    """Request the removal of superseded copies on this log dir, wherever their live copies are."""
    for path, old in list(replicas.copies.superseded.items()):
        replica = replicas.opened.get(TopicPartition(old.topic, old.partition))
        if replica is not None and old.log_dir == log_dir.path:
            with suppress(LogStoreError):  # if the flush fails, the superseded copy is still needed
                _purge_if_covered(replicas, replica, path, old)


def _purge_if_covered(replicas: Replicas, replica: Replica, path: str, old: ReplicaFacts) -> None:
    if replica.log_dir.is_refusing:
        return
    if replica.log.recovery_point < old.end_offset <= replica.log.log_end_offset:
        replica.log.flush()
    if is_covered(old, facts_of_open(replica)):
        replicas.purge([Doomed(replicas.dir_of(old.log_dir), path)])
        replicas.copies.superseded.pop(path, None)


def companions(replicas: Replicas, key: TopicPartition) -> list[Doomed]:
    """List the other copies of a replica, which are removed before the record of its deletion.

    The list includes copies that are being removed already, because a start would serve a half
    removed copy if there is no record of the deletion.
    """
    known = replicas.copies
    copies = [old for old in known.superseded.values() if (old.topic, old.partition) == key]
    incomplete = replicas.incomplete.get(key)
    copies += incomplete.others if incomplete is not None else []
    others = {facts.path: replicas.dir_of(facts.log_dir) for facts in copies}
    move = known.moves.get(key)
    others |= {move.path: move.log_dir} if move is not None else {}
    for paths in (known.begun, known.left):
        others |= {p: d for p, (of, d) in list(paths.items()) if of == key}
    others |= {p: d for p, d in list(known.doomed.items()) if _may_be_of(p, key)}
    return [Doomed(log_dir, path, True) for path, log_dir in others.items()]


def _may_be_of(path: str, key: TopicPartition) -> bool:
    """Check whether a directory may belong to a replica, even if its name has a shortened topic."""
    base = os.path.basename(path)
    name = parse_dir_name(base)
    if name is None or name.partition != key.partition:
        return False
    is_cut = len(base) == NAME_BYTES_MAX
    return name.topic == key.topic or (is_cut and key.topic.startswith(name.topic))
