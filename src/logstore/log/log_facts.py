"""Keep a log's facts in `partition.metadata`: small JSON values that a program stores there.

A move of the replica copies `partition.metadata`, and so keeps the facts. The log itself never
reads a fact. The module `disk/documents/facts` defines the class `Facts`, and stores the facts
about log dirs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from logstore.disk.documents.facts import Facts, Noted
from logstore.log.follow.followed_replica import FollowedReplica
from logstore.log.metadata import CONFIG_LOST, FACTS, FILE_NAME
from logstore.log.replica import Replica
from logstore.log.state import LogState
from logstore.log.write.flush import set_metadata
from logstore.log.write.hung_locks import held


def facts_of(state: Replica) -> Facts:
    """Return the facts of a log; if another process owns the log, the facts are read-only."""
    if isinstance(state, LogState):
        return Facts(partial(_current, state), partial(_replace, state))
    assert isinstance(state, FollowedReplica)
    return Facts(partial(_current, state), partial(_refuse, state))


def _current(state: Replica) -> Noted:
    state.check()
    state.refresh()
    extra = state.metadata.extra
    damage = f"{FILE_NAME} was lost or damaged" if extra.get(CONFIG_LOST) else ""
    if FACTS not in extra:
        return Noted(damage=damage)
    return Noted(extra[FACTS]["generation"], extra[FACTS]["facts"])


def _replace(state: LogState, change: Callable[[Noted], Noted]) -> None:
    with state.flush_lock, held(state, "flush_lock"):
        noted = change(_current(state))
        set_metadata(state, extra=state.metadata.extra | {FACTS: noted.to_document()})


def _refuse(state: FollowedReplica, _: Callable[[Noted], Noted]) -> None:
    raise state.refusal()
