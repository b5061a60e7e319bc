"""Define how the conditions of a log dir follow one another: a pure table, no I/O.

Several conditions may hold at once (a full dir may be cordoned and hang); *the* state of a dir is
the gravest.

    event      from                    adds        ends
    FAILED     any                     OFFLINE     READ_ONLY, SUSPECT, SLOW
    STUCK      any but offline         SUSPECT
    ANSWERED   SUSPECT                             SUSPECT
    FULL       any but offline         READ_ONLY
    ROOM       READ_ONLY                           READ_ONLY
    CORDON     any                     CORDONED
    UNCORDON   CORDONED                            CORDONED
    SLOWED     any but offline         SLOW
    KEPT_UP    SLOW                                SLOW

OFFLINE never ends: `reopen_dir` begins with a new `LogDir`, after identity, lock, probe, recovery.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class LogDirState(enum.Enum):
    """The states of a log dir; ONLINE is the absence of all others."""

    ONLINE = "online"
    READ_ONLY = "read-only"
    SLOW = "slow"
    CORDONED = "cordoned"
    SUSPECT = "suspect"
    OFFLINE = "offline"


Conditions = frozenset[LogDirState]

GRAVEST_FIRST = (
    LogDirState.OFFLINE,
    LogDirState.SUSPECT,
    LogDirState.READ_ONLY,
    LogDirState.CORDONED,
    LogDirState.SLOW,
)


class Event(enum.Enum):
    """What happens to a log dir."""

    FAILED = "its disk failed, or its user took it offline"
    STUCK = "a call to its disk does not return"
    ANSWERED = "it answers again and no call is stuck"
    FULL = "its disk is full"
    ROOM = "its disk has room again"
    CORDON = "its user wants no new replicas on it"
    UNCORDON = "its user lets new replicas on it again"
    SLOWED = "probes take it far longer than the other log dirs"
    KEPT_UP = "probes take it about as long as the others again"


class Change(NamedTuple):
    """What an event does to the conditions."""

    adds: Conditions
    ends: Conditions
    is_while_offline: bool = False


def _change(
    *adds: LogDirState, ends: tuple[LogDirState, ...] = (), is_while_offline: bool = False
) -> Change:
    return Change(frozenset(adds), frozenset(ends), is_while_offline)


TABLE = {
    Event.FAILED: _change(
        LogDirState.OFFLINE,
        ends=(LogDirState.READ_ONLY, LogDirState.SUSPECT, LogDirState.SLOW),
        is_while_offline=True,
    ),
    Event.STUCK: _change(LogDirState.SUSPECT),
    Event.ANSWERED: _change(ends=(LogDirState.SUSPECT,)),
    Event.FULL: _change(LogDirState.READ_ONLY),
    Event.ROOM: _change(ends=(LogDirState.READ_ONLY,)),
    Event.CORDON: _change(LogDirState.CORDONED, is_while_offline=True),
    Event.UNCORDON: _change(ends=(LogDirState.CORDONED,), is_while_offline=True),
    Event.SLOWED: _change(LogDirState.SLOW),
    Event.KEPT_UP: _change(ends=(LogDirState.SLOW,)),
}

REMEDIES = {
    LogDirState.ONLINE: "",
    LogDirState.READ_ONLY: "free some space: it takes records again by itself",
    LogDirState.SLOW: "new replicas go elsewhere; look after the disk, or move its replicas away",
    LogDirState.CORDONED: "uncordon it to let new replicas on it",
    LogDirState.SUSPECT: "look after the disk: it serves again by itself once it answers",
    LogDirState.OFFLINE: "look after the disk and how it is mounted, then reopen the log dir",
}


def after(conditions: Conditions, event: Event) -> Conditions:
    """Give the conditions that hold after an event."""
    change = TABLE[event]
    if LogDirState.OFFLINE in conditions and not change.is_while_offline:
        return conditions
    return (conditions - change.ends) | change.adds


def state_of(conditions: Conditions) -> LogDirState:
    """Give the state that is shown: the gravest condition."""
    for state in GRAVEST_FIRST:
        if state in conditions:
            return state
    return LogDirState.ONLINE
