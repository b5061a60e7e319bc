"""Say what may be removed in the background, and in which order.

A copy that another superseded goes once that one has as much, durably. What a user deleted goes
with its deletion last, and only while no log dir is bad: until then the deletion is what keeps the
other copies dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from logstore.disk.log_dir import LogDir
from logstore.names import TopicPartition
from logstore.store.facts import facts_of_open
from logstore.store.replicas import Doomed, Replicas
from logstore.store.startup import ReplicaFacts, is_covered

if TYPE_CHECKING:
    from logstore.store.background import DirKeeper


def doomed(replicas: Replicas, copies: Iterable[ReplicaFacts]) -> list[Doomed]:
    """Give what is to be purged, in order; nothing of it goes before what stands before it."""
    copies = list(copies)
    is_deletion = any(facts.is_deleted_by_user for facts in copies)
    return [Doomed(replicas.dir_of(facts.log_dir), facts.path, is_deletion) for facts in copies]


def purge_in_order(
    replicas: Replicas, keepers: Mapping[str, DirKeeper], doomed: Sequence[Doomed]
) -> None:
    """Remove directories in the background, each once the one before it is gone.

    While a log dir is bad a deletion stays on record: a copy may come back with that dir.
    """
    if not doomed:
        return
    first, *rest = doomed
    keeper = keepers.get(first.log_dir.path)
    if keeper is not None and not (first.is_deletion and replicas.is_a_dir_bad()):
        keeper.purge(first.path, partial(purge_in_order, replicas, keepers, rest))


def purge_covered(replicas: Replicas, log_dir: LogDir) -> None:
    """Ask for the removal of what the live copies on this log dir cover, flushing those first."""
    for path, old in list(replicas.superseded.items()):
        key = TopicPartition(old.topic, old.partition)
        replica = replicas.opened.get(key)
        if replica is None or replica.log_dir is not log_dir:
            continue
        if replica.log.recovery_point < old.end_offset <= replica.log.log_end_offset:
            replica.log.flush()
        if is_covered(old, facts_of_open(replica)):
            replicas.superseded.pop(path, None)
            replicas.purge([Doomed(replicas.dir_of(old.log_dir), path)])


def companions(replicas: Replicas, key: TopicPartition) -> list[Doomed]:
    """Give what has to go before the deletion of a replica may: its other copies."""
    copies = [
        facts for facts in replicas.superseded.values() if (facts.topic, facts.partition) == key
    ]
    move = replicas.moves.get(key)
    copies += [move.facts] if move is not None else []
    incomplete = replicas.incomplete.get(key)
    copies += incomplete.others if incomplete is not None else []
    return [Doomed(replicas.dir_of(facts.log_dir), facts.path, True) for facts in copies]


def forget_companions(replicas: Replicas, key: TopicPartition) -> None:
    """Forget the other copies of a replica that was deleted."""
    replicas.moves.pop(key, None)
    for path, facts in list(replicas.superseded.items()):
        if (facts.topic, facts.partition) == key:
            replicas.superseded.pop(path, None)
